"""What an attempt is to do, as recorded before it starts: another engine, or the next attempt, continues from this.

Values of variables are never recorded, only their names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from maos import settings
from maos.agents.contract import LaunchOrder, McpServer
from maos.errors import InvalidInput, NotFound
from maos.model import tool_calls
from maos.model.attempt import Attempt
from maos.model.events.attempt import AttemptPlanned
from maos.model.run import Run
from maos.redact import without_secrets
from maos.settings import schema
from maos.workspaces import Workspace

TIME_LIMIT_S = schema.AgentSettings().time_limit_s
ASKED = "it works in the folder itself, as requested: files are not saved with checkpoints and cannot be restored"
TERMS = ("model", "instructions", "turns_max", "budget_usd", "tools_allowed", "permission", "takes_input")
"""Options of a start that are fields of the `LaunchOrder` under the same names, with the same defaults."""
ARGV = (sys.executable, "-P", "-m", "maos.mcp")
"""Without the working folder on its path: a repository could have a `json.py` of its own (A12)."""


class StartOptions(TypedDict, total=False):
    """How an agent is started."""

    kind: str
    """The kind of program; `shell` by default."""
    argv: Sequence[str]
    cwd: Path | str
    in_place: bool
    """Whether it works in the folder itself, without a worktree of its own."""
    base: str | None
    """The commit that its worktree begins with; the current one by default."""
    model: str
    instructions: str
    time_limit_s: float
    turns_max: int
    budget_usd: float
    tools_allowed: Sequence[str]
    permission: str
    """What it may do without asking; `ask` by default."""
    takes_input: bool
    tool_server: bool
    """Whether a plain command has an MCP server too, by which it reaches maos."""
    mcp: Sequence[McpServer]
    run: str
    pass_variables: Sequence[str]
    """Names of variables of this process that it is given."""


class ResumeOptions(TypedDict, total=False):
    """What is different when an agent is resumed; everything else is as it was started."""

    time_limit_s: float | None
    turns_max: int | None
    budget_usd: float | None
    mcp: Sequence[McpServer]
    pass_variables: Sequence[str]


def plan(
    order: LaunchOrder,
    kind: str,
    task: str,
    *,
    time_limit_s: float,
    workspace: Workspace,
    run: str = "",
    inbox_cursor: int = 0,
    told: Sequence[int] = (),
    transcript: tuple[str, int] = ("", 0),
) -> AttemptPlanned:
    """The event that begins an attempt, without its owner, the folder of its holder and the time.

    `task` is the request of the person, `order.task` the prompt of the agent now, with the messages `told`.
    """

    def clean(text: str) -> str:
        return without_secrets(text, order.env)

    agent, _, number = order.attempt.rpartition(".")
    return AttemptPlanned(
        agent=agent,
        number=int(number),
        agent_kind=kind,
        task=clean(task),
        session=order.session,
        owner={},
        folder="",
        workspace=workspace.to_data(),
        inbox_cursor=inbox_cursor,
        told=list(told),
        transcript=transcript,
        at_us=0,
        order={
            "task": clean(order.task),
            "resume": order.resume,
            "cwd": str(order.cwd),
            "home": str(order.home),
            "model": order.model,
            "instructions": clean(order.instructions),
            "turns_max": order.turns_max,
            "budget_usd": order.budget_usd,
            "tools_allowed": list(order.tools_allowed),
            "permission": order.permission,
            "takes_input": order.takes_input,
            "mcp": [{"name": each.name, "argv": list(each.argv), "env": sorted(each.env)} for each in order.mcp],
            "env": sorted(order.env),
            "argv": [clean(each) for each in order.argv],
            "time_limit_s": time_limit_s,
            "run": run,
        },
    )


def check_same(before: Attempt, given: Mapping[str, Any], values: Mapping[str, str]) -> None:
    """InvalidInput unless an attempt was begun with what is given now, as it is for `Attempts.start`: what came with a
    file can say anything. `values` are those of the variables that were passed on."""
    order = before.order
    found = {
        "kind": (before.kind, given.get("kind", "shell")),
        "command": (list(order["argv"]), [without_secrets(each, values) for each in given.get("argv", ())]),
        "task": (before.task, without_secrets(given.get("task", ""), values)),
        "instructions": (order["instructions"], without_secrets(given.get("instructions", ""), values)),
        "list of tools": (list(order["tools_allowed"]), list(given.get("tools_allowed", ()))),
        "permission": (order["permission"], given.get("permission", "ask")),
    }
    for name, (one, other) in found.items():
        if one != other:
            raise InvalidInput(
                f"{before.agent} was started with another {name} than is requested now: {one!r}, not {other!r}",
                hint=f"nothing was started; `maos agent show {before.agent}` shows what is recorded of it",
            )


def order_of(attempt: Attempt) -> LaunchOrder:
    """The order of a recorded attempt; variables have their names and no values."""
    order = {name: value for name, value in attempt.order.items() if name in LaunchOrder._fields}
    order |= {name: Path(order[name]) for name in ("cwd", "home")}
    order["env"] = dict.fromkeys(order["env"], "")
    order["mcp"] = [McpServer(each["name"], each["argv"], dict.fromkeys(each["env"], "")) for each in order["mcp"]]
    return LaunchOrder(attempt=attempt.id, session=attempt.session, **order)


class ToolServers(NamedTuple):
    """The MCP servers by which agents reach one journal."""

    database: str
    """A path that does not depend on the working folder, or a URL."""
    schema: str = ""

    def server(self, agent: str, attempt: str, *, run: str = "") -> McpServer:
        """The server of one attempt. Its variables are its identity: the sender of what it writes is `agent`."""
        env = {tool_calls.DATABASE: self.database, tool_calls.AGENT: agent, tool_calls.ATTEMPT: attempt}
        env[tool_calls.HOME] = str(settings.state_folder())  # the agent has another home, and no registry of databases
        env |= {tool_calls.SCHEMA: self.schema} if self.schema else {}
        env |= {tool_calls.RUN: run} if run else {}
        return McpServer(tool_calls.NAME, ARGV, env)


def check_places(run: Run) -> None:
    """NotFound when what a run works on is not where it was."""
    workspace = run.options.get("workspace") or {}
    missing = [place for place in (run.folder, workspace.get("tree")) if place and not Path(place).is_dir()]
    if not missing and workspace and not Path(workspace["repository"]).is_dir():
        missing = [workspace["repository"]]
    if missing:
        where = run.folder if missing[0] != run.folder else "NEW"
        is_missing = "is missing" if len(missing) == 1 else "are missing"
        raise NotFound(
            f"{run.id} cannot be resumed: {' and '.join(missing)} {is_missing}",
            hint="put back what was moved or removed, or a link to where it is now; or say where the folder is: "
            f"`maos resume {run.id} --cwd {where}`",
        )
