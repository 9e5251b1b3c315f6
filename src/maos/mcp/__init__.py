"""The MCP server of one agent (`maos mcp`): a server of the Model Context Protocol on standard input and output.

Each agent has one of its own, started by the agent's program. It opens the database itself, so it works while no engine
runs. Until the first tool call it is a plain loop that has loaded only a JSON parser.
"""
