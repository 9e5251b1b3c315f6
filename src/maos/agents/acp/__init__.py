"""Dialect of the Agent Client Protocol."""
