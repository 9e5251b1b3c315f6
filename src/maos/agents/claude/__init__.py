"""Dialect of Claude Code."""
