"""Types of agents: files that say how an agent works and what it may do."""

import os
from pathlib import Path

import pytest

import maos
from maos.model.plan import BadPlan, Plan, Task
from maos.runs import agent_types
from maos.runs.agent_types import BadAgentType, kinds, parse
from maos.runs.plan_input import validate

MINE = """---
name: scribe
description: "Writes things down"
kind: shell
model: small
tools:
  - Read
  - "Bash(git log:*)"
# what it may cost
permission: edits
time_limit: 20m
budget_usd: 0.50
turns_max: 7
---

Write it down.

---
Then stop.
"""


def test_a_file_says_everything_about_a_type() -> None:
    made = parse(MINE, name="file", source="scribe.md")
    assert made == agent_types.AgentType(
        name="scribe",
        description="Writes things down",
        kind="shell",
        model="small",
        tools=["Read", "Bash(git log:*)"],
        permission="edits",
        time_limit_s=1200.0,
        budget_usd=0.5,
        turns_max=7,
        instructions="Write it down.\n\n---\nThen stop.",
        source="scribe.md",
    )


def test_a_file_without_settings_is_all_instructions() -> None:
    made = parse("Be brief.\n", name="brief", source="brief.md")
    assert (made.name, made.instructions, made.tools) == ("brief", "Be brief.", [])


@pytest.mark.parametrize(
    ("said", "tools"),
    [
        ("Read, Grep", ["Read", "Grep"]),
        ("[Read, 'Grep']", ["Read", "Grep"]),
        ("Bash(ls, cat), Read", ["Bash(ls, cat)", "Read"]),
        ("", []),
    ],
)
def test_lists_can_be_written_in_several_ways(said: str, tools: list[str]) -> None:
    assert parse(f"---\ntools: {said}\n---\n", name="x", source="x.md").tools == tools


@pytest.mark.parametrize(
    ("settings", "line", "what", "hint"),
    [
        ("kind: shell\ntool: Read", 3, "there is no setting 'tool'", "did you mean 'tools'?"),
        (
            "include_uncommitted: true",
            2,
            "there is no setting 'include_uncommitted'",
            "all tasks of a run start from one commit: give it in the plan or the settings",
        ),
        ("kind shell", 2, "'kind shell' is no setting", "a setting is `key: value`"),
        ("kind: a\nkind: b", 3, "kind is set twice", ""),
        ("- Read", 2, "an entry of a list, and no key before it", ""),
        ("time_limit: soon", 2, "time_limit: 'soon' is not a duration", ""),
        ("budget_usd: -1", 2, "budget_usd: '-1' is not an amount", ""),
        ("permission: all", 2, "permission: 'all' is none of ask, edits, deny", ""),
        ("name: a/b", 1, "'a/b' cannot name a type of agent", ""),
        ("model: &x {}\n  nested: 1", 3, "'nested: 1' is no setting", ""),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(settings: str, line: int, what: str, hint: str) -> None:
    with pytest.raises(BadAgentType) as caught:
        parse(f"---\n{settings}\n---\n", name="x", source="x.md")
    assert caught.value.what.startswith(f"x.md, line {line}: {what}")
    assert hint in caught.value.hint


def test_settings_without_an_end_are_refused() -> None:
    with pytest.raises(BadAgentType, match="line 1: the settings have no end"):
        parse("---\nkind: shell\n", name="x", source="x.md")


def test_the_project_comes_before_the_user_and_the_user_before_us(tmp_path: Path) -> None:
    project, config = tmp_path / "project", tmp_path / "config"
    for folder, model in ((config / "agents", "users"), (project / ".maos" / "agents", "projects")):
        folder.mkdir(parents=True)
        for name in ("tester", "reviewer") if model == "users" else ("tester",):
            (folder / f"{name}.md").write_text(f"---\nmodel: {model}\n---\nDo it.\n")
    known = agent_types.known(project, config)
    assert {"analyst", "developer", "reviewer", "tester"} <= set(known)
    assert (known["tester"].model, known["reviewer"].model, known["developer"].model) == ("projects", "users", "")


def test_the_types_that_come_with_maos_are_whole(tmp_path: Path) -> None:
    for name, each in agent_types.known(tmp_path, tmp_path).items():
        assert name == each.name
        assert each.description
        assert each.instructions
        assert each.permission in agent_types.PERMISSIONS
    assert agent_types.known(tmp_path, tmp_path)["analyst"].permission == "deny"


async def test_a_run_keeps_what_its_types_said_and_uses_it(tmp_path: Path) -> None:
    """The type gives the kind and the limits; changing the file later changes nothing about the run."""
    types = {"scribe": parse(MINE, name="scribe", source="scribe.md"), "other": parse("x", name="other", source="")}
    plan = Plan(tasks=[Task(name="a", task="echo hello", agent="scribe", command=["echo", "hello"])])
    options = {"kind": "claude", "in_place": True}
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        run = await m.runs.start(validate(plan, types), folder=tmp_path, options=options)
        run = await m.runs.execute((await m.runs.get(run.id)).id)
        assert run.status == "completed"
        assert set(run.options["agents"]) == {"scribe"}
        attempt = await m.agents.get(f"{run.id}.a")
    made = attempt.order
    assert (made["instructions"], made["model"], made["turns_max"]) == ("Write it down.\n\n---\nThen stop.", "small", 7)
    assert (made["tools_allowed"], made["permission"], made["budget_usd"]) == (
        ["Read", "Bash(git log:*)"],
        "edits",
        0.5,
    )


async def test_a_type_that_does_not_exist_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    plan = Plan(tasks=[Task(name="a", task="x", agent="scribbler")])
    types = {"scribe": parse(MINE, name="scribe", source="scribe.md")}
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        with pytest.raises(BadPlan, match="did you mean 'scribe'"):
            validate(plan, types)
        with pytest.raises(BadPlan, match="there is no type of agent called 'scribbler'"):
            await m.runs.start(plan, folder=tmp_path, options={"kind": "shell"})
        assert [run async for run in m.runs.all()] == []


def test_the_kind_of_a_task_is_its_own_then_its_types_then_the_runs() -> None:
    tasks = [
        Task(name="own", task="x", agent="scribe", kind="codex"),
        Task(name="type", task="x", agent="scribe"),
        Task(name="run", task="x"),
        Task(name="command", command=["x"], agent="other"),
    ]
    options = {"kind": "claude", "agents": {"scribe": {"name": "scribe", "kind": "python"}}}
    assert kinds(Plan(tasks=tasks), options) == {"own": "codex", "type": "python", "run": "claude", "command": "shell"}


def test_a_type_of_a_project_cannot_name_a_program(tmp_path: Path) -> None:
    project, config = tmp_path / "project", tmp_path / "config"
    text = "---\nkind: acp:./tools/lint.sh\n---\nDevelop.\n"
    for folder in (project / ".maos" / "agents", config / "agents"):
        folder.mkdir(parents=True)
    (config / "agents" / "developer.md").write_text(text)
    assert agent_types.known(project, config)["developer"].kind == "acp:./tools/lint.sh", "the person's own may"
    (project / ".maos" / "agents" / "developer.md").write_text(text)
    with pytest.raises(agent_types.BadAgentType, match="a project's type cannot name a program"):
        agent_types.known(project, config)


@pytest.mark.parametrize("kind", ["a device", "a pipe", "too long"])
def test_a_file_without_end_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.md"
    match kind:
        case "a device":
            path.symlink_to("/dev/zero")
        case "a pipe":
            os.mkfifo(path)
        case _:
            path.write_bytes(b"x" * (agent_types.BYTES_MAX + 1))
    with pytest.raises(agent_types.BadAgentType, match=r"regular file|larger than"):
        agent_types.read(path)
