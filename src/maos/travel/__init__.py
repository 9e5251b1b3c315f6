"""Points in time of a run: rollback, fork, comparison, join and relocation."""
