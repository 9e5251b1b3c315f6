"""Dialects of the agent CLIs: how each is started, what its lines mean, how it is spoken to and resumed."""
