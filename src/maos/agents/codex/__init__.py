"""Dialect of Codex."""
