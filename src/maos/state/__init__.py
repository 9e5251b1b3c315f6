"""Versioned state of agents: a fold of the stream `agent/<id>`."""
