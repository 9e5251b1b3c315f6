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
        "demo": "maos.cli.demo:demo",
        "orchestrate": "maos.cli.orchestrate.starting:orchestrate",
        "chat": "maos.cli.chat.command:chat",
        "resume": "maos.cli.orchestrate.resuming:resume_latest",
        "orchestration": "maos.cli.orchestration:orchestration",
        "workflow": "maos.cli.workflow:workflow",
        "status": "maos.cli.status:status",
        "questions": "maos.cli.questions:questions",
        "answer": "maos.cli.questions:answer",
        "recover": "maos.cli.recover:recover",
        "effects": "maos.cli.effects:effects",
        "notify": "maos.cli.notify:notify",
        "agent": "maos.cli.agent:agent",
        "messages": "maos.cli.messages:messages",
        "state": "maos.cli.state:state",
        "copy": "maos.cli.copy:copy",
        "export": "maos.cli.export:export",
        "import": "maos.cli.import_:import_",
        "config": "maos.cli.config:config",
        "doctor": "maos.cli.doctor:doctor",
        "mcp": "maos.cli.mcp:mcp",
        "completion": "maos.cli.completion:completion",
    },
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
