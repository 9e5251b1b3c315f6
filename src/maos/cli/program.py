"""The command `maos` itself: the table of its commands, `maos admin`, and `maos mcp`."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

import maos
from maos.cli import documents, failures, render
from maos.cli.commands import Entry, LazyGroup, json_command
from maos.cli.database import DatabaseTarget

SECTIONS: dict[str, dict[str, Entry]] = {
    "Start": {
        "run": ("maos.cli.runs.start:run", "Run a request, a plan file, or one command."),
        "chat": ("maos.cli.chat:chat", "Begin a run and steer it in conversation."),
        "demo": ("maos.demo.command:demo", "See a run survive kill -9, with a proof."),
    },
    "Look": {
        "ps": ("maos.cli.status:ps", "List runs, open ones first."),
        "status": ("maos.cli.status:status", "Show what runs and what needs you, or one run, task or agent."),
        "logs": ("maos.cli.runs.results:logs", "Print what a run or an agent did, in order."),
        "attach": ("maos.cli.runs.results:attach", "Follow a run or an agent until it ends."),
        "diff": ("maos.cli.runs.results:diff", "Show what a run or an agent changed, or compare two runs."),
    },
    "Answer": {
        "inbox": ("maos.cli.questions:inbox", "List open questions."),
        "answer": ("maos.cli.questions:answer", "Answer a question."),
    },
    "Control": {
        "resume": ("maos.cli.runs.start:resume", "Resume a paused, interrupted or failed run."),
        "pause": ("maos.cli.runs.control:pause", "Pause a run; `maos resume` continues it."),
        "cancel": ("maos.cli.runs.control:cancel", "Cancel a run, or one task of it."),
        "retry": ("maos.cli.runs.control:retry", "Retry the failed tasks of a run, or one of them."),
        "skip": ("maos.cli.runs.control:skip", "Skip a task, so that tasks that need it can start."),
        "rm": ("maos.cli.runs.control:rm", "Remove a run from lists, and its worktrees from the disk."),
        "merge": ("maos.cli.runs.results:merge", "Merge the work of a run or an agent into your branch."),
    },
    "Points in time": {
        "checkpoint": ("maos.cli.runs.travel:checkpoint", "Name the state of a run, or list its checkpoints."),
        "rollback": ("maos.cli.runs.travel:rollback", "Roll a run back to an earlier point in time."),
        "fork": ("maos.cli.runs.travel:fork", "Start a second run from any point in time of a run."),
        "join": ("maos.cli.runs.travel:join", "Merge what a fork has done into a run, or vice versa."),
    },
    "Groups": {
        "agent": ("maos.cli.agent:agent", "Run agents that keep running after maos exits."),
        "workflow": ("maos.cli.workflow:workflow", "Run workflows that survive a crash."),
        "state": ("maos.cli.state:state", "Show, change and roll back the state of agents."),
        "message": ("maos.cli.messages:messages", "Read and send messages of agents."),
        "admin": ("maos.cli.program:admin", "Check, back up, move, clean up and configure."),
    },
    "Other programs": {
        "mcp": ("maos.cli.program:mcp", "Run the MCP server of one agent on standard input and output."),
        "completion": ("maos.cli.completion:completion", "Print the completion script of a shell."),
    },
}  # fmt: skip


class RootGroup(LazyGroup):
    """The outermost group: what its commands raise becomes a message and an exit code, for tests too."""

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


@click.group(
    cls=RootGroup,
    lazy={name: entry for entries in SECTIONS.values() for name, entry in entries.items()},
    aliases={
        "orchestrate": "maos.cli.runs.start:run",
        "orchestration": "maos.cli.runs:orchestration",
        "questions": "maos.cli.questions:inbox",
        "messages": "maos.cli.messages:messages",
        "recover": "maos.cli.status:recover",
        "doctor": "maos.cli.admin:doctor",
        "verify": "maos.cli.state.queries:verify",
        "copy": "maos.cli.transfer:copy",
        "export": "maos.cli.transfer:export",
        "import": "maos.cli.transfer:import_",
        "config": "maos.cli.config:config",
        "notify": "maos.cli.admin:notify",
        "effects": "maos.cli.admin:effects",
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
    "  [default: the variable MAOS_DB, else the setting database.path, else ./maos.db]",
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
    lazy={
        "doctor": ("maos.cli.admin:doctor", "Check the installation, the database, and leftovers."),
        "verify": ("maos.cli.state.queries:verify", "Check that everything is as it was written."),
        "copy": ("maos.cli.transfer:copy", "Copy the database to a new file while it is in use."),
        "export": ("maos.cli.transfer:export", "Export a run or a workflow run to one file."),
        "import": ("maos.cli.transfer:import_", "Import a run from another machine, or the runs of maos-cli."),
        "cleanup": ("maos.cli.runs.control:cleanup", "Remove the worktrees of runs that were completed long ago."),
        "pin": ("maos.cli.runs.control:pin", "Exempt a run from cleanup."),
        "save-interval": ("maos.cli.runs.control:save_interval", "Set or show how often files are saved."),
        "config": ("maos.cli.config:config", "Show, check and change settings."),
        "notify": ("maos.cli.admin:notify", "Test notifications, and list those that were sent."),
        "effects": ("maos.cli.admin:effects", "List side effects: tool calls, commands and workflow steps."),
    },
    aliases={"keep": "maos.cli.runs.control:pin"},
    examples=["maos admin doctor", "maos admin copy backup.db", "maos admin cleanup --dry-run"],
)  # fmt: skip
def admin() -> None:
    """Check, back up, move, clean up and configure."""


@json_command("maos mcp --list", "maos mcp --json")
@click.option("--list", "only_list", is_flag=True, help="List the tools instead.")
def mcp(database: DatabaseTarget, only_list: bool, as_json: bool) -> int:
    """Run the MCP server of one agent on standard input and output.

    Agents' programs start it; maos configures them to. Its tools let an agent report findings and progress, send
    messages to other agents, ask a person, and store what it must remember. It writes to the journal itself, so it
    works while no engine runs.

    Its agent is named by the variables MAOS_AGENT, MAOS_ATTEMPT and, in a run, MAOS_RUN.
    """
    from maos.mcp import server, tools

    if as_json:
        documents.show({"tools": [tool.describe() for tool in tools.TOOLS]})
    elif only_list:
        for tool in tools.TOOLS:
            render.line(tool.usage)
            render.line(f"    {tool.description}")
    else:
        return server.main({**os.environ, "MAOS_DB": database.name})
    return 0
