"""Agents to test."""

from tests.journal.places import durable, m, place, place_of, shared_url, sqlite
from tests.state.edits import small_folds

__all__ = ["durable", "m", "place", "place_of", "shared_url", "small_folds", "sqlite"]
