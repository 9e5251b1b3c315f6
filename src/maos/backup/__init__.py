"""Continuous backup: events leave the machine in sealed segments, and become a database again anywhere."""
