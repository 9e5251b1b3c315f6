"""What a workflow file holds."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=40)]
Scalar = str | int | float | bool
Positive = Annotated[float, Meta(gt=0)]


class FileGate(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a step must pass before it counts as done: exactly one of these."""

    command: Annotated[str | list[str], Meta(description="A command that must succeed.")] = ""
    person: Annotated[str, Meta(description="A question that a person answers with yes or no.")] = ""
    review: Annotated[str, Meta(description="What an agent that reviews the work is told.")] = ""


class FileStep(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One step: an agent with a `task`, a `command`, or a `python` function."""

    name: Word
    task: Annotated[str, Meta(description="What an agent is told.")] = ""
    agent: Annotated[str, Meta(description="The type of agent, such as developer.")] = ""
    kind: Annotated[str, Meta(description="The kind of agent, such as claude, codex or acp:gemini.")] = ""
    command: Annotated[str | list[str], Meta(description="A command; never run by a shell.")] = ""
    python: Annotated[str, Meta(description="A function, as module:name, in a process of its own.")] = ""
    arguments: Annotated[
        dict[str, Any], Meta(description="What the function is given, as JSON, in `context.task`.")
    ] = msgspec.field(default_factory=dict, name="with")
    needs: Annotated[str | list[str], Meta(description="Steps that must be done before.")] = []
    matrix: Annotated[
        dict[Word, list[Scalar]], Meta(description="The step once for each combination of these values.")
    ] = {}
    gates: list[FileGate] = []
    priority: int = 0
    time_limit_s: Positive | None = None
    budget_usd: Positive | None = None
    tokens_max: Annotated[int, Meta(gt=0)] | None = None
    model: str = ""
    tools: list[str] = []


class WorkflowFile(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A workflow: steps, and which of them need which."""

    version: Annotated[int, Meta(description="Of this format.", ge=1)] = 1
    name: str = ""
    description: str = ""
    variables: Annotated[dict[Word, Scalar], Meta(description="Used as {{ name }}; --var name=value overrides.")] = {}
    steps: Annotated[list[FileStep], Meta(min_length=1)]
    concurrency: Annotated[int, Meta(ge=1, le=1000)] | None = None
    conflicts: Annotated[str, Meta(description="Who resolves conflicts of files: ask or agent.")] = "ask"


def schema() -> dict[str, Any]:
    """The JSON Schema of workflow files, for editors."""
    made = msgspec.json.schema(WorkflowFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "maos workflow", **made}
