"""What a plan file holds, in YAML, TOML or JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

VERSION = 1
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=40)]
Scalar = str | int | float | bool
Priority = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Concurrency = Annotated[int, Meta(ge=1, le=1000)]
Command = str | list[str]


class FileGate(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A check that a task must pass before it is done: exactly one of these."""

    command: Annotated[Command, Meta(description="A command that must succeed.")] = ""
    person: Annotated[str, Meta(description="A question that a person answers with yes or no.")] = ""
    review: Annotated[str, Meta(description="Instructions for an agent that reviews the work.")] = ""


class FileTask(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One piece of work: a `task` for an agent, a `command` (a `task` beside it says what it is for), or `python`."""

    name: Annotated[Word, Meta(description="The name of the task, which no other task of the plan has.")]
    task: Annotated[str, Meta(description="The task of an agent, in words.")] = ""
    command: Annotated[
        Command,
        Meta(description="A command. A string is split into words as a shell does; no shell runs it, so there are "
             "no pipes and no `$VARIABLES`. A list is used as it is."),
    ] = ""  # fmt: skip
    python: Annotated[str, Meta(description="A function, as `module:name`, in a process of its own.")] = ""
    arguments: Annotated[dict[str, Any], Meta(description="Arguments of the function, as JSON, in `context.task`.")] = (
        msgspec.field(default_factory=dict, name="with")
    )
    needs: Annotated[
        str | list[str],
        Meta(description="Tasks that must be done before this one starts. The name of a task with a matrix means all "
             "its combinations."),
    ] = []  # fmt: skip
    matrix: Annotated[
        dict[Word, list[Scalar]],
        Meta(description="The task once for each combination of these values, used as `{{ matrix.NAME }}`."),
    ] = {}
    gates: Annotated[list[FileGate], Meta(description="Checks that the work must pass, in this order.")] = []
    agent: Annotated[
        str, Meta(description="The type of agent, such as `developer`; its settings apply where the task has none.")
    ] = ""
    kind: Annotated[str, Meta(description="The kind of agent, such as `claude`, `codex` or `acp:gemini`.")] = ""
    model: Annotated[str, Meta(description="The model that the agent uses.")] = ""
    tools: Annotated[list[str], Meta(description="The tools that the agent may use without asking.")] = []
    mcp: Annotated[
        bool,
        Meta(description="Whether a command gets the variables that `maos mcp` needs; an agent with a model always has "
             "its tools."),
    ] = False  # fmt: skip
    priority: Annotated[Priority, Meta(description="Of the tasks that can start, the highest starts first.")] = 0
    time_limit_s: Annotated[
        float, Meta(ge=0, le=1e9, description="The task fails after so many seconds; 0: the limit of the run.")
    ] = 0.0
    budget_usd: Annotated[
        float, Meta(ge=0, le=1e9, description="The task is stopped when it has cost so much; 0: no limit.")
    ] = 0.0
    tokens_max: Annotated[
        int, Meta(ge=0, le=1 << 53, description="The task is stopped after so many tokens; 0: no limit.")
    ] = 0


class FilePlan(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A plan: tasks, and for each task the tasks that it needs."""

    version: Annotated[int, Meta(ge=1, description="The version of this format.")] = VERSION
    name: Annotated[str, Meta(description="The name of the plan; by default that of the file.")] = ""
    request: Annotated[str, Meta(description="The request; by default the name of the plan.")] = ""
    summary: Annotated[str, Meta(description="The plan in a sentence, shown with it.")] = ""
    variables: Annotated[
        dict[Word, Scalar],
        Meta(description="Used as `{{ NAME }}` in texts and commands; `--var NAME=VALUE` overrides one."),
    ] = {}
    tasks: Annotated[list[FileTask], Meta(min_length=1, description="The work.")]
    concurrency: Annotated[
        Concurrency | None, Meta(description="How many agents work at once; `--concurrency` overrides it.")
    ] = None
    conflicts: Annotated[
        Literal["ask", "agent"],
        Meta(description="Who resolves conflicts between the files of tasks: `ask`, a person; `agent`, the task's "
             "agent, then a person."),
    ] = "ask"  # fmt: skip


def schema() -> dict[str, Any]:
    """The JSON Schema of plan files, for editors."""
    made = msgspec.json.schema(FilePlan)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "maos plan", **made}
