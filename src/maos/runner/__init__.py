"""Processes and workspaces: agents that outlive the engine, and the folders they work in."""
