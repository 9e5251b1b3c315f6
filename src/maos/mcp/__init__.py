"""The door of an agent: a server of the Model Context Protocol on standard input and output.

Each agent has one of its own, started by the agent's program. It opens the store itself, so it works while no engine
runs. Until the first tool is called it is a plain loop that has loaded nothing but a JSON parser.
"""
