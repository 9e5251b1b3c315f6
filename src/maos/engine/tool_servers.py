"""The door an attempt is given: the tools by which its agent reaches the journal, whoever runs or does not run."""

from __future__ import annotations

import sys

from maos.agents.contract import McpServer
from maos.model import tool_calls

ARGV = (sys.executable, "-P", "-m", "maos.mcp")
"""Without the working folder on its path: a repository could have a `json.py` of its own (A12)."""


class ToolServers:
    """Makes doors to one journal."""

    def __init__(self, database: str, *, schema: str = "") -> None:
        self._database = database
        """A path that does not depend on the working folder, or a URL."""
        self._schema = schema

    def server(self, agent: str, attempt: str, *, run: str = "") -> McpServer:
        """The door of one attempt. Its variables are its identity: the sender of what comes through it is `agent`."""
        env = {tool_calls.DATABASE: self._database, tool_calls.AGENT: agent, tool_calls.ATTEMPT: attempt}
        env |= {tool_calls.SCHEMA: self._schema} if self._schema else {}
        env |= {tool_calls.RUN: run} if run else {}
        return McpServer(tool_calls.NAME, ARGV, env)
