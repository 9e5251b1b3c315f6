"""What an attempt is to do, as recorded before it starts: another engine, or the next attempt, continues from this.

Values of variables are never recorded, only their names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from maos import settings
from maos.agents.contract import LaunchOrder, McpServer
from maos.errors import InvalidInput, NotFound
from maos.files import private_folder, replace_file
from maos.model import tool_calls
from maos.model.attempt import Attempt, check_agent
from maos.model.events.attempt import AttemptPlanned, Earlier
from maos.model.events.parts import PreparationData, ServerData
from maos.model.preparation import Preparation, of_options, to_options, variables
from maos.model.run import Run
from maos.redact import without_secrets
from maos.settings import DatabaseName, schema
from maos.tuples import NamedTuple
from maos.workspaces import Workspace

HOLDERS, HOMES = "holders", "homes"
"""The folders below that of a database: of holders, each named by its attempt, and of agents' homes, by the agent."""
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
    env: Mapping[str, str | None] | Sequence[str]
    """Variables: `NAME=VALUE`, or `NAME` for one of this process that is passed on; in a mapping, None passes it on."""
    setup: Sequence[Sequence[str]]
    """Commands that run before it starts, once for all agents that need the same."""
    setup_inputs: Sequence[str]
    """Patterns of the files that the result of these commands depends on; build files and lists of dependencies by
    default."""
    setup_env: Sequence[str] | None
    """The variables of these commands; those of the agent by default."""
    copy_ignored: Sequence[str]
    """Patterns of ignored files of the folder that its worktree gets copies of."""
    include_uncommitted: bool | Sequence[str]
    """Whether its worktree has the uncommitted changes of the folder; or patterns of the files whose changes it has."""
    project_settings: Sequence[str]
    """What of the project reaches its program: some of instructions, skills, mcp, settings and hooks; nothing by
    default."""
    mcp_servers: Sequence[str] | None
    """Which MCP servers of the settings it is given, by name; all by default."""


class ResumeOptions(TypedDict, total=False):
    """What is different when an agent is resumed; everything else is as it was started."""

    time_limit_s: float | None
    turns_max: int | None
    budget_usd: float | None
    mcp: Sequence[McpServer]
    env: Mapping[str, str | None] | Sequence[str]
    argv: Sequence[str]
    """The command in place of the one it was started with."""
    instead: str
    """What it is to do in place of what it was started for."""


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
    earlier: Earlier | None = None,
    session_kept: bool = False,
    prepared: Preparation | None = None,
    servers: Sequence[str] | None = None,
) -> AttemptPlanned:
    """The event that begins an attempt, without its owner, the folder of its holder and the time.

    `task` is the request of the person, `order.task` the prompt of the agent now, with the messages `told`.
    """

    def clean(text: str) -> str:
        return without_secrets(text, order.env)

    agent, _, number = order.attempt.rpartition(".")
    made = AttemptPlanned(
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
        earlier=earlier,
        session_kept=session_kept,
        at_us=0,
        order={
            "task": clean(order.task),
            "task_anew": clean(order.task_anew),
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
            "mcp": [_server_data(each) for each in order.mcp],
            "env": sorted(order.env),
            "argv": [clean(each) for each in order.argv],
            "time_limit_s": time_limit_s,
            "run": run,
        },
    )
    if order.project:
        made.order["project"] = list(order.project)
        made.order["project_text"] = clean(order.project_text)
    if servers is not None:
        made.order["mcp_servers"] = list(servers)
    if order.values:
        made.order["values"] = dict(order.values)
    if prepared is not None and (said := to_options(prepared)):
        said.pop("env", None)  # as `env` and `values`
        made.order["preparation"] = cast(PreparationData, said)
    return made


def _server_data(server: McpServer) -> ServerData:
    found: ServerData = {"name": server.name, "argv": list(server.argv), "env": sorted(server.env)}
    return found if server.is_allowed else {**found, "asks": True}


def preparation_of(attempt: Attempt) -> Preparation:
    """How the workspace of a recorded attempt is prepared again if its files were lost."""
    order = attempt.order
    env = [*order["env"], *variables(order.get("values", {}))]
    return of_options({**order.get("preparation", {}), "env": env})


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


def order_of(attempt: Attempt, home: Path) -> LaunchOrder:
    """The order of a recorded attempt; variables have their names and no values.

    The agent's home is below that of its database, whatever the event says: it may have been made on another machine.
    """
    order = {name: value for name, value in attempt.order.items() if name in LaunchOrder._fields}
    own, cwd = Path(order["home"]), Path(order["cwd"])
    if own.name != attempt.agent or not settings.is_own_folder(own, HOMES, home):
        own = home / HOMES / check_agent(attempt.agent)
    order |= {"cwd": cwd, "home": own}
    order["env"] = dict.fromkeys(order["env"], "")
    order["mcp"] = [
        McpServer(each["name"], each["argv"], dict.fromkeys(each["env"], ""), is_allowed=not each.get("asks"))
        for each in order["mcp"]
    ]
    return LaunchOrder(attempt=attempt.id, session=attempt.session, **order)


def holder_folder(attempt: Attempt, home: Path) -> Path | None:
    """The folder of an attempt's holder; None when it is not where maos makes it: events can name any folder."""
    folder = Path(attempt.folder)
    return folder if folder.name == attempt.id and settings.is_own_folder(folder, HOLDERS, home) else None


class ToolServers(NamedTuple):
    """The MCP servers by which agents reach one journal."""

    database: DatabaseName
    """A path that does not depend on the working folder, or a URL."""
    schema: str = ""
    folder: Path = Path()
    """Where the password of a URL is while an attempt runs: what is given to agents names the file only."""

    def server(self, attempt: str, *, run: str = "") -> McpServer:
        """The server of one attempt. The secret that proves it is not among its variables, which programs store in
        files: the server inherits it from the agent's process."""
        database = self.database.with_password_in(self.folder / attempt) if self._password else self.database
        env = {tool_calls.DATABASE: database.reveal(), tool_calls.ATTEMPT: attempt}
        env[tool_calls.HOME] = str(settings.state_folder())  # the agent has another home, and no registry of databases
        env |= {tool_calls.SCHEMA: self.schema} if self.schema else {}
        env |= {tool_calls.RUN: run} if run else {}
        return McpServer(tool_calls.NAME, ARGV, env)

    @property
    def _password(self) -> str:
        return self.database.password_line

    def lend_password(self, attempt: str) -> None:
        """Write the password of the database where the MCP server of an attempt reads it."""
        if self._password:
            replace_file(private_folder(self.folder) / attempt, self._password.encode(), sync=False)

    def withdraw_password(self, attempt: str) -> None:
        """Remove it: the attempt has ended."""
        if self._password:
            (self.folder / attempt).unlink(missing_ok=True)


def check_places(run: Run) -> None:
    """NotFound when what a run works on is not where it was. A worktree can be missing: it is created again."""
    workspace = run.options.get("workspace") or {}
    missing = [place for place in (run.folder, workspace.get("tree")) if place and not Path(place).is_dir()]
    if run.folder not in missing:
        missing = [workspace["repository"]] if workspace and not Path(workspace["repository"]).is_dir() else []
    if missing:
        where = run.folder if missing[0] != run.folder else "NEW"
        is_missing = "is missing" if len(missing) == 1 else "are missing"
        raise NotFound(
            f"{run.id} cannot be resumed: {' and '.join(missing)} {is_missing}",
            hint="put back what was moved or removed, or a link to where it is now; or say where the folder is: "
            f"`maos resume {run.id} --cwd {where}`",
        )
