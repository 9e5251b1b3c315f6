"""The command `maos` itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

import maos
from maos.cli import failures
from maos.cli.commands import LazyGroup
from maos.cli.database import DatabaseTarget


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

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in failures.EXIT_CODES])


@click.group(
    cls=RootGroup,
    lazy={
        "demo": ("maos.cli.demo:demo", "See a run survive kill -9, with a proof."),
        "orchestrate": (
            "maos.cli.runs.start:orchestrate",
            "Run a plan, or plan and run a request, with agents.",
        ),
        "chat": ("maos.cli.chat.command:chat", "Begin a run and steer it in conversation."),
        "resume": (
            "maos.cli.runs.resume:resume_latest",
            "Resume a paused, interrupted or failed run.",
        ),
        "orchestration": ("maos.cli.runs:orchestration", "Look at runs, pause them, and go on with them."),
        "workflow": ("maos.cli.workflow:workflow", "Run workflows that survive a crash."),
        "status": ("maos.cli.status:status", "Show everything that runs or waits now, and what needs you first."),
        "questions": ("maos.cli.questions:questions", "List open questions."),
        "answer": ("maos.cli.questions:answer", "Answer a question."),
        "recover": ("maos.cli.recover:recover", "List what was interrupted, and how to go on with each."),
        "effects": (
            "maos.cli.effects:effects",
            "List what was done outside: tools that agents ran, commands, and steps of workflows.",
        ),
        "notify": ("maos.cli.notify:notify", "Be told elsewhere when a run needs you or has ended."),
        "agent": ("maos.cli.agent:agent", "Run agents that keep running after maos exits."),
        "message": ("maos.cli.messages:messages", "Read and send messages of agents."),
        "state": ("maos.cli.state:state", "Look at the state of agents, change it, and travel in its history."),
        "copy": ("maos.cli.transfer:copy", "Copy everything to a new file, while others go on writing."),
        "export": (
            "maos.cli.transfer:export",
            "Write a run or a workflow to one file, for another machine: `maos import` reads it there.",
        ),
        "import": (
            "maos.cli.transfer:import_",
            "Import a run from another machine, or the orchestrations of the original.",
        ),
        "config": ("maos.cli.config:config", "Look at the settings, check and change them."),
        "doctor": ("maos.cli.doctor:doctor", "Check what is here, and what was left behind."),
        "mcp": ("maos.cli.mcp:mcp", "Serve one agent: an MCP server on standard input and output."),
        "completion": ("maos.cli.completion:completion", "Print what a shell needs to complete what you type."),
    },
    aliases={"messages": "maos.cli.messages:messages"},
    examples=[
        "maos agent run -- make test",
        """maos state create reviewer '{"status": "idle"}'""",
        "maos state show reviewer",
        "maos --db postgresql://maos@127.0.0.1/maos state list",
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--db",
    metavar="TEXT",
    help="The database: a path or a postgresql:// URL. Comes before the command: `maos --db x.db state list`."
    "  [default: the variable MAOS_DB, else the setting database.path, else ./maos.db]",
)
@click.version_option(maos.__version__, prog_name="maos", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context, db: str | None) -> None:
    """Agents that survive crashes, and their durable state: every version is kept, every change is an event."""
    ctx.obj = DatabaseTarget(db)
