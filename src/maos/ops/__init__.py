"""What operators need of a machine that runs agents: examinations and repairs."""
