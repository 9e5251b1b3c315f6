"""Rules of what agents may do: made by people, applied by engines, recorded with each answer, and safe in a crash."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine import live
from maos.engine.live import LiveAttempt
from maos.engine.permissions import project_of, rules_file, rules_stream
from maos.journal.journal import Append
from maos.model.events.facts import PermissionRequested
from maos.model.permission import PermissionRule, StoredRule
from maos.model.principal import Principal, PrincipalKind
from maos.runs import agent_types
from maos_testing.crash import ChildProcess, Life
from maos_testing.model_stub import ModelStub, ScriptStep, ToolCall
from tests.engine import claude_engine, permission_life
from tests.engine.conftest import processes_below
from tests.engine.permission_life import COMMANDS, kind

ROOT = Path(__file__).parents[2]
PYTEST = "Bash(pytest *)"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder, and a look at the rules as often as a test wants."""
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(live, "RULES_LOOK_S", 0.05)
    return tmp_path / "state"


async def begun(m: Maos, folder: Path, *commands: str, name: str = "a", **more: Any) -> LiveAttempt:
    """An agent that asks for some commands, one after the other."""
    agent = kind(folder / f"effects-{name}", *commands)
    return await m.agents.start("ask", kind=agent, name=name, cwd=folder, in_place=True, **more)


async def asked(m: Maos, count: int = 1) -> list[Any]:
    async def found() -> list[Any]:
        open_ = await m.questions.open()
        return open_ if sum(len(each.refs) for each in open_) == count else []

    async with asyncio.timeout(30):
        while not (result := await found()):
            await asyncio.sleep(0.02)
        return result


async def answers(m: Maos, agent: str = "a") -> list[dict[str, Any]]:
    found = [each async for each in m.agents.records(agent) if each.type == "attempt_answered"]
    return [each.data for each in found]


def said(folder: Path, name: str = "a") -> list[str]:
    """The options that the agent was answered with."""
    return [line.split()[1] for line in (folder / f"effects-{name}").read_text().splitlines()]


# --- making rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["agent", "project"])
async def test_always_is_asked_once_and_answered_by_its_rule_from_then_on(m: Maos, tmp_path: Path, scope: str) -> None:
    """The answer that the rule gives is recorded with the rule and with who made it."""
    running = await begun(m, tmp_path, "make docs", "make docs", "make docs; ls")
    [question] = await asked(m)
    assert question.choices == ("yes", "no", "always", "never")
    assert question.asked.command == "make docs"
    given = await m.questions.answer(question.ref, "always", scope=scope)
    assert given.rule is not None
    [third] = [each for each in await asked(m) if each.asked.command == "make docs; ls"]
    await m.questions.answer(third.ref, "no")
    assert (await running.wait()).status == "done"
    assert said(tmp_path) == ["yes", "yes", "no"]
    by_person, by_rule, refused = await answers(m)
    assert (by_person["by"], by_person["rule_id"]) == (m.journal.by, given.rule.id)
    assert (by_rule["by"], by_rule["rule"], by_rule["rule_id"]) == (m.journal.by, "Bash(=make docs)", given.rule.id)
    assert (refused["allow"], refused.get("rule")) == (False, None)
    [rule] = await m.permissions.list()
    assert rule == given.rule
    assert rule.of == ("a" if scope == "agent" else str(tmp_path))


async def test_a_pattern_covers_more_and_nothing_that_only_looks_like_it(m: Maos, tmp_path: Path) -> None:
    await begun(m, tmp_path, "pytest -q", "pytest -x", "pytest; rm -rf /")
    [question] = await asked(m)
    assert question.suggestions == ("Bash(pytest *)",)
    with pytest.raises(maos.InvalidInput, match="does not cover"):
        await m.questions.answer(question.ref, "always", pattern="ruff *")
    with pytest.raises(maos.InvalidInput, match="make a rule"):
        await m.questions.answer(question.ref, "yes", pattern="pytest *")
    assert not await m.permissions.list()
    await m.questions.give_line(question, "always pytest *")
    [left] = await asked(m)
    assert left.asked.command == "pytest; rm -rf /"


async def test_a_rule_that_is_revoked_counts_no_more(m: Maos, tmp_path: Path) -> None:
    rule = await m.permissions.add("Bash(make *)", scope="project", of=str(tmp_path))
    assert await m.permissions.add("Bash(make *)", scope="project", of=str(tmp_path)) == rule, "it is there already"
    assert (await m.permissions.revoke(rule.id[:7])) == rule
    await begun(m, tmp_path, "make docs")
    await asked(m)
    with pytest.raises(maos.NotFound, match="there are no rules"):
        await m.permissions.revoke(rule.id)


async def test_a_rule_refuses_and_the_agent_is_told(m: Maos, tmp_path: Path) -> None:
    await m.permissions.add("Bash(git push *)", scope="project", of=str(tmp_path), allow=False)
    await m.permissions.add("Bash", scope="project", of=str(tmp_path))
    running = await begun(m, tmp_path, "git push", "ls; rm x", "true; git push")
    [doubtful] = await asked(m)
    assert doubtful.asked.command == "true; git push"
    await m.questions.give_line(doubtful, "never")
    assert (await running.wait()).status == "done"
    assert said(tmp_path) == ["no", "yes", "no"]
    assert [each["allow"] for each in await answers(m)] == [False, True, False]


async def test_what_an_agents_type_allows_is_no_question_and_needs_no_person(m: Maos, tmp_path: Path) -> None:
    """Also where its program would ask: the dialect answers, as for every tool that its order names."""
    running = await begun(m, tmp_path, "pytest -q", tools_allowed=["Bash(pytest *)"])
    assert (await running.wait()).status == "done"
    assert said(tmp_path) == ["yes"]


async def test_a_program_that_does_not_say_which_command_it_is_can_be_told_not_to_ask_again(
    m: Maos, tmp_path: Path
) -> None:
    """No rule is made, for nobody knows what it would cover."""
    running = await begun(m, tmp_path, "-")
    [question] = await asked(m)
    assert question.choices == ("yes", "no", "always")
    with pytest.raises(maos.InvalidInput, match="does not say which command"):
        await m.questions.answer(question.ref, "always", scope="project")
    given = await m.questions.answer(question.ref, "always")
    assert given.rule is None
    await running.wait()
    assert said(tmp_path) == ["ever"]
    assert [each["always"] for each in await answers(m)] == [True]


async def test_an_agent_makes_no_rule_and_revokes_none(m: Maos, tmp_path: Path) -> None:
    rule = await m.permissions.add("Bash(make *)", scope="project", of=str(tmp_path))
    await begun(m, tmp_path, "ls")
    [question] = await asked(m)
    m.journal.principal = Principal(PrincipalKind.AGENT, "a", attempt="a.1")
    before = rules_file().read_bytes(), await m.journal.head()
    for act in (
        m.permissions.add("Bash", scope="project", of=str(tmp_path)),
        m.permissions.add("Bash", scope="agent", of="a"),
        m.permissions.revoke(rule.id),
        m.questions.answer(question.ref, "always"),
        m.questions.answer(question.ref, "always", scope="project"),
    ):
        with pytest.raises(maos.NotPermitted):
            await act
    assert (rules_file().read_bytes(), await m.journal.head()) == before


# --- equal requests ----------------------------------------------------------------------------------------------


async def test_equal_requests_of_the_agents_of_a_run_are_one_question(m: Maos, tmp_path: Path) -> None:
    wanted = {"a": "make docs", "b": "make docs", "c": "make docs", "d": "make all"}
    tasks = [
        {"name": name, "task": "ask", "kind": kind(tmp_path / f"effects-{name}", command)}
        for name, command in wanted.items()
    ]
    options = {"in_place": True, "permission": "ask"}
    run = await m.runs.create({"tasks": tasks}, folder=tmp_path, options=options)
    executing = asyncio.create_task(m.runs.execute(run.id, concurrency=4))
    found = await asked(m, 4)
    assert sorted(len(each.refs) for each in found) == [1, 3]
    [three] = [each for each in found if len(each.refs) == 3]
    assert sorted(three.asked_by) == [f"{run.id}.{name}" for name in "abc"]
    assert "for all 3 requests" in three.meanings[0]
    assert [len(each.refs) for each in (await m.runs.status(run.id)).questions] in ([3, 1], [1, 3])
    given = await m.questions.answer(three.refs[-1], "yes")
    assert given.requests == 3
    [other] = await asked(m, 1)
    await m.questions.answer(other.ref, "always", pattern="make *")
    async with asyncio.timeout(30):
        assert (await executing).status == "completed"
    for name in "abc":
        assert [each["by"] for each in await answers(m, f"{run.id}.{name}")] == [m.journal.by]
    [rule] = await m.permissions.list()
    assert (rule.scope, rule.of) == ("run", run.id)


async def test_a_rule_answers_whatever_waits_already(m: Maos, tmp_path: Path) -> None:
    """As soon as it is made, with a command or by a person who edits the file."""
    one = await begun(m, tmp_path, "make docs", name="a")
    other = await begun(m, tmp_path, "make all", name="b")
    await asked(m, 2)
    await m.permissions.add("Bash(make *)", scope="project", of=str(tmp_path))
    async with asyncio.timeout(30):
        assert [(await each.wait()).status for each in (one, other)] == ["done", "done"]
    assert [each["rule"] for each in await answers(m, "b")] == ["Bash(make *)"]


async def test_the_first_answer_counts(m: Maos, tmp_path: Path) -> None:
    running = await begun(m, tmp_path, "make docs")
    [question] = await asked(m)
    await m.agents.answer("a", question.id, allow=False)
    await m.agents.answer("a", question.id, allow=True)
    await running.wait()
    assert said(tmp_path) == ["no"]
    with pytest.raises(maos.NotFound):
        await m.questions.give(question, "yes")


async def test_an_answer_that_comes_while_another_is_recorded_is_refused_and_makes_no_rule(
    m: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await begun(m, tmp_path, "make docs")
    [question] = await asked(m)
    permissions = m.questions._permissions
    prepare = permissions.prepare

    async def prepare_late(rule: PermissionRule, **options: str) -> tuple[StoredRule, Sequence[Append]]:
        await m.agents.answer("a", question.id, allow=False)  # another person is faster
        return await prepare(rule, **options)

    monkeypatch.setattr(permissions, "prepare", prepare_late)
    with pytest.raises(maos.NotFound):
        await m.questions.give(question, "always")
    await running.wait()
    assert said(tmp_path) == ["no"]
    assert not await m.permissions.list()


# --- where rules are kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("[[rules]\n", "not TOML"),
        ('[[rules]]\nid = "x"\n', "'rule'"),
        ('[[rules]]\nid = "x"\nproject = "/"\nrule = "Bash(*)"\n', "not a rule"),
        ("rules = 7\n", "not iterable"),
        ('[[rules]]\nid = "x"\nproject = "/"\nrule = "Bash(ls)"\nat_us = "x"\n', "not a time"),
        ('[[rules]]\nid = "x"\nproject = "/"\nrule = "Bash(ls)"\nat_us = inf\n', "not a time"),
        ("rules = " + "[" * 10_000 + "]" * 10_000, "nested too deeply"),
        ("x" * (2 << 20), "larger than"),
    ],
)
async def test_with_a_file_that_cannot_be_read_no_rule_counts_and_agents_ask(
    m: Maos, tmp_path: Path, content: str, what: str
) -> None:
    """It may have rules that refuse something. The log of the agent says why it asks."""
    await m.permissions.add("Bash(pytest *)", scope="project", of=str(tmp_path))
    rules_file().write_text(content)
    with pytest.raises(maos.InvalidInput, match=what):
        await m.permissions.list()
    running = await begun(m, tmp_path, "pytest -q")
    [question] = await asked(m)
    with pytest.raises(maos.InvalidInput, match=what):
        await m.questions.answer(question.ref, "always", scope="project")
    assert rules_file().read_text() == content, "what a person wrote is not lost"
    await m.questions.answer(question.ref, "yes")
    await running.wait()
    outputs = [each.data async for each in m.agents.records("a") if each.type == "attempt_output"]
    told = [fact["text"] for each in outputs for fact in each["facts"] if fact["kind"] == "diagnostic"]
    assert any("permissions.toml" in each for each in told)


async def test_a_file_that_others_can_write_is_not_used(m: Maos, tmp_path: Path) -> None:
    await m.permissions.add("Bash(pytest *)", scope="project", of=str(tmp_path))
    assert rules_file().stat().st_mode & 0o777 == 0o600
    rules_file().chmod(0o666)
    with pytest.raises(maos.InvalidInput, match="can be written by others"):
        await m.permissions.list()


async def test_rules_are_of_this_project_and_of_this_run_alone(m: Maos, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
    inner = tmp_path / "one" / "src"
    inner.mkdir()
    rule = await m.permissions.add("Bash(make *)", scope="project", of=str(inner))
    assert rule.of == str(tmp_path / "one")
    running = await begun(m, inner, "make docs", name="a")
    assert (await running.wait()).status == "done"
    await begun(m, tmp_path / "two", "make docs", name="b")
    await asked(m)


def test_the_project_of_a_worktree_is_that_of_its_repository(tmp_path: Path) -> None:
    (tmp_path / "main" / ".git" / "worktrees" / "w").mkdir(parents=True)
    (tmp_path / "main" / ".git" / "worktrees" / "w" / "commondir").write_text("../..\n")
    (tmp_path / "main" / ".git" / "worktrees" / "w" / "gitdir").write_text(f"{tmp_path}/w/.git\n")
    (tmp_path / "w" / "src").mkdir(parents=True)
    (tmp_path / "w" / ".git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    assert project_of(tmp_path / "w" / "src") == tmp_path / "main"
    assert project_of(tmp_path / "main") == tmp_path / "main"
    assert project_of(tmp_path) == tmp_path
    (tmp_path / "other").mkdir()  # an agent writes a file there that names the repository of another project
    (tmp_path / "other" / ".git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    assert project_of(tmp_path / "other") == tmp_path / "other"


async def test_two_that_add_rules_at_once_lose_none(m: Maos, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys, maos\n"
        "async def main():\n"
        "    async with maos.open(':memory:') as m:\n"
        "        for n in range(10):\n"
        "            await m.permissions.add(f'Bash(make {sys.argv[1]}{n} *)', scope='project', of=sys.argv[2])\n"
        "asyncio.run(main())\n"
    )
    both = [await asyncio.create_subprocess_exec(sys.executable, "-c", program, name, str(tmp_path)) for name in "ab"]
    assert [await each.wait() for each in both] == [0, 0]
    assert len({str(each.rule) for each in await m.permissions.list()}) == 20


async def test_an_exact_command_survives_the_file_whatever_is_in_it(m: Maos, tmp_path: Path) -> None:
    for command in ('a "b" \\ \' \x7f', "a\nb\tc", "echo 😀 é", "a # b = [c]"):
        rule = await m.permissions.add(f"Bash(={command})", scope="project", of=str(tmp_path))
        assert rule in await m.permissions.list()


async def test_nothing_of_a_run_brings_rules_with_it(m: Maos, tmp_path: Path) -> None:
    """An exported run has none: a file from elsewhere cannot allow anything here."""
    run = await m.runs.create(
        {"tasks": [{"name": "a", "command": ["true"]}]}, folder=tmp_path, options={"in_place": True}
    )
    await m.permissions.add("Bash", scope="run", of=run.id)
    assert await m.journal.version(rules_stream(run.id)) == 1
    await m.runs.execute(run.id)
    await m.transfer.export(run.id, tmp_path / "run.maos")
    async with maos.open(tmp_path / "other.db", home=tmp_path / "elsewhere") as other:
        await other.transfer.import_(tmp_path / "run.maos", folder=tmp_path)
        assert [each async for each in other.runs.all()]
        assert not await other.permissions.list()


async def test_who_is_to_agree_to_a_database_sees_its_rules(m: Maos, tmp_path: Path) -> None:
    await begun(m, tmp_path, "ls")
    await asked(m)
    await m.permissions.add("Bash(make *)", scope="agent", of="a")
    await m.permissions.add("Bash(rm *)", scope="agent", of="a", allow=False)
    assert [each.tools for each in (await m.would_start())["a"]] == [("Bash(make *)",)]


# --- crashes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "time"),
    [
        ("attempt:answered by a rule", 1),
        ("attempt:before input", 2),
        ("attempt:answer recorded", 1),
        ("permissions:before write", 2),
        ("permissions:after write", 2),
        ("commit: committed, not marked", 8),
    ],
)
async def test_killed_at_its_worst_moment_each_request_is_answered_once_and_the_rule_survives(
    tmp_path: Path, point: str, time: int
) -> None:
    """Between the rule and its application, the answer and its delivery, the file and the answer."""
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.engine.permission_life",
        tmp_path / "maos.db",
        tmp_path / "home",
        tmp_path,
    ]
    life: Life = await asyncio.to_thread(ChildProcess(argv, crash_at=time, crash_name=point, cwd=ROOT).wait, 1)
    assert life.died_at == point
    attempt = await permission_life.run(str(tmp_path / "maos.db"), tmp_path / "home", tmp_path)
    assert attempt.status == "done"
    assert (tmp_path / "effects").read_text() == "1 yes\n2 yes\n3 yes\n4 yes\n"
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        assert sorted(str(each.rule) for each in await m.permissions.list()) == ["Bash(=make docs && ls)", PYTEST]
        outputs = [each.event async for each in m.agents.records("a") if each.type == "attempt_output"]
        requests = [fact for each in outputs for fact in each.facts if isinstance(fact, PermissionRequested)]
        assert tuple(each.command for each in requests) == COMMANDS, "asked twice"
        assert [each.rule for each in requests] == [PYTEST, PYTEST, "", "Bash(=make docs && ls)"]
        assert len(await answers(m)) == 4
    async with asyncio.timeout(30):
        while processes_below(tmp_path / "home"):
            await asyncio.sleep(0.02)


# --- Claude Code -------------------------------------------------------------------------------------------------


async def test_claude_code_of_the_type_developer_runs_tests_and_nothing_behind_them(m: Maos, tmp_path: Path) -> None:
    """It asks for the second command, offers its own rule only if that covers it, and gets the answer."""
    calls = [
        ToolCall(name="Bash", input={"command": command, "description": "x"})
        for command in ("pytest --version", f"pytest --version; touch {tmp_path}/evil", "touch made", "touch made")
    ]
    role = agent_types.known(tmp_path)["developer"]
    steps = [*(ScriptStep(calls=[call]) for call in calls), ScriptStep(text="Done.")]
    async with ModelStub(steps) as stub:
        attempts = claude_engine.engine(m, tmp_path / "home", stub.url)
        try:
            running = await attempts.start(
                "test it",
                kind="claude",
                name="a",
                cwd=tmp_path,
                in_place=True,
                permission="ask",
                tools_allowed=role.tools,
            )
            [question] = await asked(m)
            assert (question.asked.command, question.suggestions) == (calls[1].input["command"], ())
            await m.questions.answer(question.ref, "no")
            [made] = await asked(m)
            assert "Bash(touch made *)" in made.suggestions, "Claude Code suggests it"
            await m.questions.answer(made.ref, "always")
            async with asyncio.timeout(60):
                assert (await running.wait()).status == "done"
        finally:
            await attempts.close()
    assert not (tmp_path / "evil").exists()
    found = [(each["allow"], each.get("rule", "")) for each in await answers(m)]
    assert found == [(True, "Bash(pytest *)"), (False, ""), (True, "Bash(=touch made)"), (True, "Bash(=touch made)")]
