"""Runs on the command line."""
