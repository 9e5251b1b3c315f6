"""Benchmarks of maos against peers and against the bare database, run by ``python -m benchmarks.run``."""
