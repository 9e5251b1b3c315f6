"""The command `maos` itself: the tables of its commands and of its larger groups, and `maos mcp`."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, cast

import click

import maos
from maos.cli import documents, failures, render
from maos.cli.commands import Entry, LazyGroup, find_installed, json_command
from maos.cli.database import DatabaseTarget
from maos.errors import NotFound

SECTIONS: dict[str, dict[str, Entry]] = {
    "Start": {
        "run": ("maos.cli.runs.start:run", "Run a request, a plan file, or one command."),
        "chat": ("maos.cli.runs.start:chat", "Begin a run and steer it in conversation."),
        "demo": ("", "See a run survive kill -9, with a proof."),  # the distribution maos-demo has it
    },
    "Look": {
        "ps": ("maos.cli.status:ps", "List runs, open ones first."),
        "status": ("maos.cli.status:status", "Show what runs and what needs you, or one run, task or agent."),
        "logs": ("maos.cli.runs.control:logs", "Print what a run or an agent did, in order."),
        "attach": ("maos.cli.runs.control:attach", "Follow a run or an agent until it ends."),
        "stats": ("maos.cli.statistics:stats", "Show figures: growth, agents and models, what is unusual."),
        "diff": ("maos.cli.runs.control:diff", "Show what a run or an agent changed, or compare two runs."),
        "report": ("maos.cli.report:report", "Write a run as one HTML file that opens from disk."),
    },
    "Answer": {
        "inbox": ("maos.cli.status:inbox", "List open questions."),
        "answer": ("maos.cli.status:answer", "Answer a question."),
        "permission": ("maos.cli.permissions:permission", "List, add and revoke rules of what agents may do."),
    },
    "Control": {
        "resume": ("maos.cli.runs.start:resume", "Resume a paused, interrupted or failed run."),
        "update": ("maos.cli.runs.control:update", "Change the limits of a run, also while it is executed."),
        "pause": ("maos.cli.runs.control:pause", "Pause a run; `maos resume` continues it."),
        "cancel": ("maos.cli.runs.control:cancel", "Cancel a run, or one task of it."),
        "retry": ("maos.cli.runs.control:retry", "Retry the failed tasks of a run, or a failed workflow run."),
        "skip": ("maos.cli.runs.control:skip", "Skip a task, so that tasks that need it can start."),
        "rm": ("maos.cli.runs.control:rm", "Remove a run from lists, and its worktrees from the disk."),
        "erase": ("maos.cli.keys:erase", "Erase a run or an agent from an encrypted database, for good."),
        "merge": ("maos.cli.runs.control:merge", "Merge the work of a run or an agent into your branch."),
    },
    "Points in time": {
        "checkpoint": ("maos.cli.runs.travel:checkpoint", "Name the state of a run, or list its checkpoints."),
        "rollback": ("maos.cli.runs.travel:rollback", "Roll a run back to an earlier point in time."),
        "fork": ("maos.cli.runs.travel:fork", "Start a second run from any point in time of a run."),
        "join": ("maos.cli.runs.travel:join", "Merge what a fork has done into a run, or vice versa."),
    },
    "Groups": {
        "agent": ("maos.cli.program:agent", "Run agents that keep running after maos exits."),
        "workflow": ("maos.cli.program:workflow", "Run workflows that survive a crash."),
        "state": ("maos.cli.program:state", "Show, change and roll back the states of agents."),
        "message": ("maos.cli.messages:messages", "Read and send messages of agents."),
        "backup": ("maos.cli.program:backup", "Back the database up continuously, and restore it."),
        "key": ("maos.cli.program:key", "Encrypt the database, and manage its keys."),
        "data": ("maos.cli.program:data", "Export what is recorded of a person."),
        "admin": ("maos.cli.program:admin", "Check, copy, move, clean up and configure."),
    },
    "Other programs": {
        "serve": ("maos.cli.serve:serve", "Run the server: engine, HTTP API and page in one process."),
        "token": ("maos.cli.serve:token", "Decide who may use `maos serve`."),
        "access": ("maos.cli.access:access", "Decide who may do what with projects, runs and agents."),
        "audit": ("maos.cli.audit:audit", "See who read or did what over HTTP, and verify that."),
        "mcp": ("maos.cli.program:mcp", "Run the MCP server of one agent on standard input and output."),
        "completion": ("maos.cli.commands:completion", "Print the completion script of a shell."),
    },
}  # fmt: skip
COMMANDS = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}
COMMANDS_BEFORE = ("status", "pause", "resume", "merge", "checkpoint", "rollback", "fork", "join", "diff")
"""Commands of `maos` that once were commands of `maos orchestration`, and still are."""
ADMIN: dict[str, Entry] = {
    "doctor": ("maos.cli.admin:doctor", "Check the installation, the database, and leftovers."),
    "verify": ("maos.cli.state.queries:verify", "Check that everything is as it was written."),
    "copy": ("maos.cli.admin:copy", "Copy the database to a new file while it is in use."),
    "export": ("maos.cli.admin:export", "Export a run or a workflow run to one file."),
    "import": ("maos.cli.admin:import_", "Import a run from another machine, or the runs of maos-cli."),
    "trust": ("maos.cli.admin:trust", "Agree to use a database, or settings of a project, that came from elsewhere."),
    "cleanup": ("maos.cli.runs.control:cleanup", "Remove the worktrees of runs that were completed long ago."),
    "pin": ("maos.cli.runs.control:pin", "Exempt a run from cleanup."),
    "save-interval": ("maos.cli.runs.control:save_interval", "Set or show how often files are saved."),
    "config": ("maos.cli.config:config", "Show, check and change settings."),
    "notify": ("maos.cli.admin:notify", "Test notifications, and list those that were sent."),
    "traces": ("maos.cli.statistics:traces", "Send what agents did to an OpenTelemetry collector."),
    "effects": ("maos.cli.admin:effects", "List side effects: tool calls, commands and workflow steps."),
}  # fmt: skip
ADMIN_BEFORE = ("doctor", "verify", "copy", "export", "import", "config", "notify", "effects")
"""Commands of `maos admin` that once were commands of `maos` itself, and still are without being listed."""


class RootGroup(LazyGroup):
    """The outermost group: what its commands raise becomes a message and an exit code, for tests too."""

    spoken = ("help", "version")

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        work: Any = partial(super().main, *args, standalone_mode=False, **extra)
        if standalone_mode:
            raise SystemExit(failures.exit_code_of(work))
        return work()

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with failures.closed_pipe_noticed():  # the help is printed here
            return super().make_context(*args, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for arg in args:
            try:
                arg.encode()
            except UnicodeEncodeError:  # bytes that are not UTF-8; no database could store them
                raise click.UsageError(f"{arg!r} is not text", ctx) from None
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "version":
            click.echo(f"maos {maos.__version__}")
            ctx.exit()
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load_demo() if cmd_name == "demo" else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        with failures.closed_pipe_noticed():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            self.write_commands(title, entries, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in failures.EXIT_CODES])


def _load_demo() -> click.Command:
    """Load the command of maos-demo; without that, return one that says how to install it, whatever its arguments."""
    found = find_installed("demo")
    if found is not None:
        return cast(click.Command, found.load())

    def refuse() -> None:
        what = "the demo, a run that survives kill -9, is the package maos-demo, which is not installed"
        raise NotFound(f"{what}: `pip install maos-demo`, or `make demo` in a clone")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command("demo", anything, refuse, add_help_option=False)


@click.group(
    cls=RootGroup,
    lazy=COMMANDS,
    aliases={
        "orchestrate": "maos.cli.runs.start:run",
        "orchestration": "maos.cli.program:orchestration",
        "questions": "maos.cli.status:inbox",
        "messages": "maos.cli.messages:messages",
        "recover": "maos.cli.status:recover",
        **{name: ADMIN[name][0] for name in ADMIN_BEFORE},
    },
    examples=[
        "maos run 'Add a --verbose option, with tests'",
        "maos run -- make test",
        "maos status",
        "maos --db postgresql://maos@127.0.0.1/maos ps",
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.option(
    "--db",
    metavar="TEXT",
    help="The database: a path or a postgresql:// URL. Comes before the command: `maos --db x.db ps`."
    "  [default: the variable MAOS_DB, else the setting database.path, else the maos.db of the project]",
)
@click.version_option(maos.__version__, prog_name="maos", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context, db: str | None) -> None:
    """Run agents that survive crashes: everything they do is recorded, and every run can be resumed."""
    ctx.obj = DatabaseTarget(db)
    if ctx.invoked_subcommand is None:
        from maos.cli.status import print_home

        print_home(ctx.obj)


@click.group(
    cls=LazyGroup,
    lazy=ADMIN,
    aliases={"keep": "maos.cli.runs.control:pin"},
    examples=["maos admin doctor", "maos admin copy backup.db", "maos admin cleanup --dry-run"],
)  # fmt: skip
def admin() -> None:
    """Check, copy, move, clean up and configure."""


@click.group(
    cls=LazyGroup,
    lazy={
        "run": ("maos.cli.agent.lifecycle:run", "Run an agent and follow its output; it keeps running if maos exits."),
        "list": ("maos.cli.agent.status:list_", "List the agents that run, and those that ran."),
        "show": ("maos.cli.agent.status:show", "Show everything that is known of an agent."),
        "logs": ("maos.cli.agent.live:logs", "Show what an agent said and did, in order, over all its attempts."),
        "attach": ("maos.cli.agent.lifecycle:attach", "Attach to a detached agent and follow its output."),
        "stop": ("maos.cli.agent.lifecycle:stop", "Stop an agent and wait until it has ended; it can be resumed."),
        "resume": ("maos.cli.agent.lifecycle:resume", "Resume a stopped or failed agent and follow its output."),
        "send": ("maos.cli.agent.lifecycle:send", "Send a message to an agent."),
        "answer": ("maos.cli.agent.lifecycle:answer", "Answer an agent that asks for permission to use a tool."),
        "diff": ("maos.cli.agent.status:diff", "Show which files an agent has changed, up to its last checkpoint."),
        "merge": ("maos.cli.agent.status:merge", "Merge the work of an agent into the branch checked out here."),
        "kinds": ("maos.cli.agent.status:kinds", "List the kinds of agents, and which are on this machine."),
    },
    examples=[
        "maos agent run --name tests -- make test",
        "maos agent logs -f tests",
        "maos agent list",
        "maos agent resume tests",
    ],
)
def agent() -> None:
    """Run agents that keep running after maos exits.

    AGENT is a name, or a unique prefix of one.
    """


@click.group(
    cls=LazyGroup,
    lazy={
        "generate": ("maos.cli.keys:generate", "Generate a key that databases can be encrypted with."),
        "list": ("maos.cli.keys:list_", "List the keys of an encrypted database, without their content."),
        "encrypt": ("maos.cli.keys:encrypt", "Encrypt a SQLite database that exists."),
        "rotate": ("maos.cli.keys:rotate", "Have a new key wrap all data keys."),
        "export": ("maos.cli.keys:export", "Write the wrapped keys to a new file, for safekeeping."),
    },
    examples=["maos key generate", "maos key encrypt", "maos key list", "maos key rotate"],
)
def key() -> None:
    """Encrypt the database, and manage its keys.

    SOURCE says where the key comes from: file:PATH, passphrase, age:IDENTITY_FILE, keyring:NAME, or
    command:PROGRAM ARGUMENTS for a key service. With the setting encryption.source new databases are encrypted.
    """


@click.group(
    cls=LazyGroup,
    lazy={"export": ("maos.cli.keys:export_data", "Print everything that is recorded by or about a person.")},
    examples=["maos data export alice"],
)
def data() -> None:
    """Export what is recorded of a person."""


@click.group(
    cls=LazyGroup,
    lazy={
        "start": ("maos.cli.backup:start", "Write what is recorded to a backup, and keep it up to date."),
        "status": ("maos.cli.backup:status", "Compare the backup with the database: what would be lost now."),
        "list": ("maos.cli.backup:list_", "List the backups at a location, of all databases."),
        "verify": ("maos.cli.backup:verify", "Read a whole backup, and check every event of it."),
        "test": (
            "maos.cli.backup:test",
            "Restore the backup to a temporary database, check it, and record the result.",
        ),
        "restore": ("maos.cli.backup:restore", "Restore a backup to a new database: a file, or a PostgreSQL URL."),
        "rm": ("maos.cli.backup:rm", "Remove the backup of a database that is no longer needed."),
    },
    examples=[
        "maos backup start s3://bucket/maos",
        "maos backup status",
        "maos backup restore s3://bucket/maos restored.db --at 2h",
    ],
)
def backup() -> None:
    """Back the database up continuously, and restore it.

    Events leave the machine within about a second of being recorded, in sealed segments, to a folder or a bucket.
    """


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("maos.cli.state.queries:list_", "List the agents that have a state."),
        "show": ("maos.cli.state.queries:show", "Show the newest version of a state, or a part of it."),
        "at": ("maos.cli.state.queries:at", "Show a state as it was at a version or a time."),
        "create": ("maos.cli.state.updates:create", "Create the state of an agent."),
        "update": ("maos.cli.state.updates:update", "Change some fields of a state; the others stay as they are."),
        "history": ("maos.cli.state.queries:history", "List the versions of a state, the newest last."),
        "events": ("maos.cli.state.queries:events", "Show the events of a state, with what each changed."),
        "diff": ("maos.cli.state.queries:diff", "Show what changed between two versions."),
        "stream": ("maos.cli.state.queries:stream", "Follow the events of a state as they happen."),
        "rollback": ("maos.cli.state.updates:rollback", "Roll a state back to a version."),
        "snapshot": ("maos.cli.state.updates:snapshot", "Take a snapshot of a state, or list its snapshots."),
        "restore": ("maos.cli.state.updates:restore", "Restore a state from a snapshot."),
        "verify": ("maos.cli.state.queries:verify", "Check that everything is as it was written."),
        "compact": ("maos.cli.state.updates:compact", "Compact the history of a state."),
    },
    aliases={"peek": "maos.cli.state.queries:peek"},
    examples=[
        """maos state create reviewer '{"status": "idle", "messages": []}'""",
        """maos state update reviewer '{"status": "busy"}'""",
        "maos state history reviewer",
        "maos state diff reviewer 1 newest",
    ],
)
def state() -> None:
    """Show, change and roll back the states of agents.

    An agent is a name. Its state is data under that name, of which every version is kept; `maos agent` runs programs
    under it. An agent can have a state and never run, and run without a state.

    A VERSION is a number, `newest`, or counted from there: -1 is the one before the newest.
    """


_LIST = ("maos.cli.workflow.status:list_", "List workflow runs, of functions and of files; open ones first.")
_SHOW = ("maos.cli.workflow.status:show", "Show a workflow run: its steps, their outcomes, and what it waits for.")


@click.group(
    cls=LazyGroup,
    lazy={
        "run": ("maos.cli.workflow.runs:run", "Run a workflow: a plan file, or a function as FILE.py:FUNCTION."),
        "resume": ("maos.cli.workflow.runs:resume", "Resume a paused or interrupted workflow run."),
        "validate": ("maos.cli.workflow.status:validate", "Check plan files; problems are named by line and column."),
        "graph": ("maos.cli.workflow.status:graph", "Show which tasks of a plan file can run together."),
        "schema": ("maos.cli.workflow.status:schema", "Print the JSON Schema of plan files, for editors."),
        "list": _LIST,
        "show": _SHOW,
        "signal": ("maos.cli.workflow.runs:signal", "Send a workflow run a signal that it waits for, or will."),
        "resolve": ("maos.cli.workflow.runs:resolve", "Resolve a step whose outcome is unknown."),
        "pause": ("maos.cli.workflow.runs:pause", "Pause a workflow run after its current steps finish."),
        "cancel": ("maos.cli.workflow.runs:cancel", "Cancel a workflow run after its current steps finish."),
        "schedule": ("maos.cli.program:schedule", "Schedule workflows (cron); `maos serve` starts them."),
        "state": ("maos.cli.program:workflow_state", "Show stored workflow runs, and clean up old ones."),
    },
    aliases={"settle": "maos.cli.workflow.runs:resolve", "serve": "maos.cli.serve:serve --no-http"},
    examples=[
        "maos workflow run release.yaml --var version=1.2",
        "maos workflow run nightly.py:nightly Berlin --id nightly-1",
        "maos workflow show nightly-1",
        "maos workflow resume nightly-1",
    ],
)
def workflow() -> None:
    """Run workflows that survive a crash.

    ID is the id of a workflow run, or a unique prefix of it.
    """


@click.group(
    cls=LazyGroup,
    lazy={
        "add": ("maos.cli.workflow.runs:add", "Start a workflow at times that a cron expression gives."),
        "list": ("maos.cli.workflow.runs:list_schedules", "List schedules and their next run times."),
        "remove": ("maos.cli.workflow.runs:remove", "Remove a schedule; workflow runs that it started continue."),
    },
    examples=["maos workflow schedule add nightly '0 3 * * *' nightly.py:nightly Berlin"],
)
def schedule() -> None:
    """Schedule workflows (cron); `maos serve` starts them."""


@click.group(
    cls=LazyGroup,
    lazy={
        "list": _LIST,
        "show": _SHOW,
        "cleanup": (
            "maos.cli.workflow.runs:cleanup",
            "Remove the steps of workflow runs that ended long ago; results stay.",
        ),
    },
    examples=["maos workflow state list", "maos workflow state cleanup --retention-days 30 --dry-run"],
)
def workflow_state() -> None:
    """Show stored workflow runs, and clean up old ones."""


@click.group(
    cls=LazyGroup,
    lazy={},
    aliases={
        **{name: COMMANDS[name][0] for name in COMMANDS_BEFORE},
        "list": "maos.cli.status:ps --all",
        "checkpoints": "maos.cli.runs.travel:checkpoint --list",
        "cleanup": "maos.cli.runs.control:cleanup",
        "keep": "maos.cli.runs.control:pin",
        "save-interval": "maos.cli.runs.control:save_interval",
    },
    examples=["maos ps"],
)
def orchestration() -> None:
    """Older names of `maos ps`, `status`, `resume`, `pause`, `merge`, `diff`, `checkpoint`, `rollback` and `fork`."""


@json_command("maos mcp --list", "maos mcp --json")
@click.option("--list", "only_list", is_flag=True, help="List the tools instead.")
def mcp(database: DatabaseTarget, only_list: bool, as_json: bool) -> int:
    """Run the MCP server of one agent on standard input and output.

    Agents' programs start it; maos configures them to. Its tools let an agent report findings and progress, send
    messages to other agents, ask a person, and store what it must remember. It writes to the journal itself, so it
    works while no engine runs.

    It acts for the attempt that the variable MAOS_ATTEMPT names. maos sets it when it starts an agent, with
    MAOS_ATTEMPT_SECRET, which proves it; a call without proof is refused.
    """
    from maos.mcp import server, tools

    if as_json:
        documents.show({"tools": tools.TOOLS})
    elif only_list:
        for tool in tools.TOOLS:
            render.line(tools.usage(tool))
            render.line(f"    {tool['description']}")
    else:
        return server.main({**os.environ, "MAOS_DB": database.name.reveal()})
    return 0
