"""`maos mcp`: the MCP server by which an agent's program reaches maos."""

from __future__ import annotations

import click

from maos.cli import documents
from maos.cli.commands import LazyCommand, json_option
from maos.cli.database import DatabaseTarget


@click.command(cls=LazyCommand, examples=["maos mcp --list", "maos mcp --json"])
@click.option("--list", "only_list", is_flag=True, help="List the tools instead.")
@json_option
@click.pass_obj
@click.pass_context
def mcp(ctx: click.Context, database: DatabaseTarget, only_list: bool, as_json: bool) -> None:
    """Run the MCP server of one agent on standard input and output.

    Agents' programs start it; maos configures them to. Its tools let an agent report findings and progress, send
    messages to other agents, ask a person, and store what it must remember. It writes to the journal itself, so it
    works while no engine runs.

    Its agent is named by the variables MAOS_AGENT, MAOS_ATTEMPT and, in a run, MAOS_RUN.
    """
    from maos.mcp import tools

    if as_json:
        documents.show({"tools": [tool.describe() for tool in tools.TOOLS]})
    elif only_list:
        from maos.cli import render

        for tool in tools.TOOLS:
            named = [name if name in tool.required else f"{name}?" for name in tool.properties]
            render.line(f"{tool.name}({', '.join(named)})")
            render.line(f"    {tool.description}")
    else:
        import os

        from maos.mcp.server import main

        ctx.exit(main({**os.environ, "MAOS_DB": database.name}))
