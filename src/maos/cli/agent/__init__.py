"""`maos agent`: agents that keep running after maos exits."""
