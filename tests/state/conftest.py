"""Agents to test."""

from tests.journal.places import durable, m, place, place_of, shared_url, sqlite

__all__ = ["durable", "m", "place", "place_of", "shared_url", "sqlite"]
