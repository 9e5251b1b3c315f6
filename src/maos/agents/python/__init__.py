"""Python functions as agents."""
