"""`maos state`: the state of agents."""
