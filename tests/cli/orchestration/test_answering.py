"""What runs and agents ask a person, and the answers: while engines live, and while none does."""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.clock import SystemClock
from maos.engine import questions
from maos.engine.principals import person
from tests.cli.agent.conftest import Call, Start, wait_until
from tests.cli.conftest import Terminal
from tests.cli.orchestration.conftest import Ask, Begin, Until

ASKING = Path(__file__).parents[1] / "agent" / "asking_agent.py"
GATED: list[dict[str, Any]] = [{"name": "api", "task": "x", "gates": [{"person": "Is the api good?"}]}]


def ask_person(folder: Path, run: str, id: str = "q-3fa2b1c4d5e6", **more: Any) -> None:
    """Put a question into a run's inbox, as an agent's door does, with or without an engine."""

    async def put() -> None:
        async with maos.open(folder / "maos.db") as m:
            await m.runs.ask(run, "Which database?", key=id, asked_by=f"{run}.api", **more)

    asyncio.run(put())


def messages_of(folder: Path, agent: str) -> list[str]:
    async def read() -> list[str]:
        async with maos.open(folder / "maos.db") as m:
            return [record.data["text"] async for record in m.journal.read(f"inbox/{agent}")]

    return asyncio.run(read())


def test_a_question_is_shown_answered_and_told_to_its_agent(
    begin: Begin, ask: Ask, call: Call, until: Until, here: Path
) -> None:
    """R-207."""
    engine = begin()
    until(engine.run, "working")
    assert call("questions").stdout == "no open questions\n"
    ask_person(here, engine.run, choices=["SQLite", "PostgreSQL"], context="it must scale")
    wait_until(lambda: [each for each in ask("questions")["questions"] if each["recorded"]])
    (found,) = ask("questions")["questions"]
    assert found["id"] == f"{engine.run}/q-3fa2b1c4d5e6"
    assert (found["question"], found["choices"]) == ("Which database?", ["SQLite", "PostgreSQL"])
    assert found["context"] == "it must scale"
    assert found["asked_by"] == [f"{engine.run}.api"]
    assert found["asked"]
    shown = call("questions").stdout
    assert f"? {engine.run}.api asks: Which database?" in shown
    assert "answer with: maos answer q-3fa2 <SQLite|PostgreSQL>" in shown
    assert "  it must scale\n  1 SQLite   2 PostgreSQL\n" in shown
    assert f"maos answer {engine.run}/q-3fa2 <SQLite|PostgreSQL>" in call("status", engine.run).stdout
    wrong = call("answer", "q-3fa2", "Oracle")
    assert wrong.returncode == 2
    assert "SQLite, PostgreSQL" in wrong.stderr
    done = call("answer", "q-3fa2", "postgresql")
    assert done.stdout == f"{engine.run}/q-3fa2b1c4d5e6 is answered: PostgreSQL\n"
    (told,) = wait_until(lambda: messages_of(here, f"{engine.run}.api"))
    assert told == "Answer to your question 'Which database?': PostgreSQL"
    late = call("answer", "q-3fa2b1c4d5e6", "SQLite")
    assert late.returncode == 4
    assert f"was answered already, by {person()}: PostgreSQL" in late.stderr
    assert call("answer", "q-nothing", "SQLite").returncode == 3


def test_questions_and_answers_work_while_no_engine_runs(
    begin: Begin, ask: Ask, call: Call, until: Until, here: Path
) -> None:
    """R-207: the question came after the crash, the answer before the next engine, and neither is lost or doubled."""
    engine = begin()
    until(engine.run, "working")
    engine.kill()
    ask_person(here, engine.run)
    (found,) = ask("questions")["questions"]
    assert found["recorded"] is False
    assert "? " in call("status").stdout
    done = call("answer", engine.run, "PostgreSQL 16")
    assert f"no engine runs it; to resume: maos resume {engine.run}" in done.stdout
    assert ask("questions")["questions"] == []
    assert call("answer", "q-3fa2b1c4d5e6", "SQLite").returncode == 4
    begin(run=engine.run)
    told = wait_until(lambda: messages_of(here, f"{engine.run}.api"))
    assert told == ["Answer to your question 'Which database?': PostgreSQL 16"]


@pytest.mark.parametrize("said", ["yes", "Y"])
def test_a_gate_takes_yes(begin: Begin, call: Call, until: Until, said: str) -> None:
    engine = begin(GATED)
    engine.end("api")
    waiting = until(engine.run, "waiting_for_user")
    assert waiting["activity"] == "asks: Is the api good?"
    unclear = call("answer", "gate/api", "perhaps")
    assert unclear.returncode == 2
    assert "yes or no" in unclear.stderr
    assert call("answer", "gate/api", said).returncode == 0
    assert engine.wait() == "completed"


def test_a_gate_that_a_person_refuses_tells_why(begin: Begin, call: Call, until: Until, ask: Ask) -> None:
    engine = begin(GATED)
    engine.end("api")
    until(engine.run, "waiting_for_user")
    (first,) = ask("questions")["questions"]
    assert first["kind"] == "gate"
    assert call("answer", "gate/api", "no", "--why", "the button is blue").returncode == 0
    wait_until(lambda: [each for each in ask("questions")["questions"] if each["id"] != first["id"]])
    (task,) = until(engine.run, "waiting_for_user")["tasks"]
    assert task["attempts"] == 2
    assert task["why"] == "a person said: no: the button is blue"


def test_equal_ids_in_two_runs_are_told_apart(begin: Begin, call: Call, until: Until, here: Path) -> None:
    first, second = begin(), begin()
    for engine in (first, second):
        until(engine.run, "working")
        ask_person(here, engine.run)
    shown = call("questions").stdout
    assert f"maos answer {first.run}/q-3fa2" in shown
    assert f"maos answer {second.run}/q-3fa2" in shown
    unclear = call("answer", "q-3fa2b1c4d5e6", "this")
    assert unclear.returncode == 2
    assert first.run in unclear.stderr
    assert second.run in unclear.stderr
    assert call("answer", f"{second.run}/q-3fa2", "this").returncode == 0
    assert first.run in call("questions").stdout
    assert second.run not in call("questions").stdout


def test_a_permission_that_an_agent_asks_for_is_a_question_like_others(
    here: Path, start: Start, ask: Ask, call: Call
) -> None:
    kind = shlex.join([sys.executable, str(ASKING), "rm -rf build"])
    engine = start("agent", "run", "--name", "asker", "--kind", f"acp:{kind}", "do something")
    engine.wait_for("answer with:")
    (found,) = ask("questions")["questions"]
    assert (found["kind"], found["asked_by"], found["run"]) == ("permission", ["asker"], None)
    assert found["tool"] == {"name": "Run", "input": found["tool"]["input"]}
    assert "? asker asks to use Bash\n    rm -rf build\n" in call("status").stdout
    assert call("answer", "asker", "maybe").returncode == 2
    done = call("answer", "asker", "no", "--why", "not today")
    assert done.returncode == 0
    engine.wait_for("answered reject_it")
    assert engine.end() == 0
    assert call("questions").stdout == "no open questions\n"


def test_always_makes_a_rule_that_is_shown_and_revoked(here: Path, start: Start, ask: Ask, call: Call) -> None:
    """The question says what each answer does; the second request is not asked."""
    kind = shlex.join([sys.executable, str(ASKING), "pytest -q", "pytest -x", "pytest; ls"])
    engine = start("agent", "run", "--name", "asker", "--kind", f"acp:{kind}", "do something")
    engine.wait_for("answer with:")
    shown = call("inbox").stdout
    assert "  always  allow exactly this command from now on, for this agent\n" in shown
    assert "wider:  --pattern 'Bash(pytest *)' --for agent|project" in shown
    assert "yes|no|always|never" in shown
    refused = call("answer", "asker", "always", "--pattern", "ruff *")
    assert (refused.returncode, "does not cover" in refused.stderr) == (2, True)
    assert call("answer", "asker", "always", "--for", "run").returncode == 2
    done = call("answer", "asker", "always", "--pattern", "Bash(pytest *)", "--for", "project")
    [rule] = ask("permission", "list")["rules"]
    assert (rule["rule"], rule["allow"], rule["scope"], rule["of"]) == ("Bash(pytest *)", True, "project", str(here))
    assert (rule["by"], rule["id"] in done.stdout) == (str(person()), True)
    assert f"to revoke it: maos permission revoke {rule['id']}" in done.stdout
    (left,) = wait_until(lambda: ask("inbox")["questions"])
    assert left["command"] == "pytest; ls"
    assert "allow exactly this command" in dict(zip(left["choices"], left["meanings"], strict=True))["always"]
    revoked = call("permission", "revoke", rule["id"][:8])
    assert revoked.stdout == f"{rule['id']} is revoked: Bash(pytest *)\n"
    assert call("permission", "list").stdout.startswith("no rules")
    assert call("agent", "answer", "asker", "never").returncode == 0
    engine.wait_for("answered allow_it allow_it reject_it")
    assert engine.end() == 0
    assert [each["rule"] for each in ask("permission", "list")["rules"]] == ["Bash(=pytest; ls)"]


def test_rules_are_added_by_hand(here: Path, ask: Ask, call: Call) -> None:
    added = ask("permission", "add", "Bash(git push *)", "--deny")
    assert (added["allow"], added["scope"], added["of"]) == (False, "project", str(here))
    for wrong in (["Bash(*)"], ["Bash(a; b)"], ["Bash", "--run", "r-nothing"], ["x", "--run", "a", "--agent", "b"]):
        assert call("permission", "add", *wrong).returncode in (2, 3)
    assert call("permission", "revoke", "rule-nothing").returncode == 3
    assert "refuse" in call("permission", "list").stdout


async def test_of_two_answers_at_once_one_counts_and_the_other_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with maos.open(":memory:") as m:
        run = await m.runs.create({"tasks": [{"name": "api", "task": "x"}]})
        await m.runs.ask(run.id, "Which database?", key="q-1", asked_by=f"{run.id}.api")
        append = m.journal.append

        async def append_after_somebody(stream: str, event: Any, **more: Any) -> Any:
            monkeypatch.undo()
            await m.runs.answer(run.id, "q-1", "SQLite")
            return await append(stream, event, **more)

        monkeypatch.setattr(m.journal, "append", append_after_somebody)
        with pytest.raises(questions.Answered, match=f"by {person()}: SQLite"):
            await questions.answer(m.journal, SystemClock(), run, "q-1", "PostgreSQL")
        recorded = [record.type async for record in m.journal.read(f"inbox/{run.id}")]
        assert recorded == ["question_asked", "question_answered"]
        with pytest.raises(maos.NotFound):
            await questions.answer(m.journal, SystemClock(), run, "q-2", "what?")


def test_an_empty_answer_and_a_reason_without_yes_or_no_are_refused(
    begin: Begin, call: Call, until: Until, here: Path
) -> None:
    engine = begin()
    until(engine.run, "working")
    ask_person(here, engine.run)
    assert call("answer", "q-3fa2", "  ").returncode == 2
    assert call("answer", "q-3fa2", "SQLite", "--why", "x").returncode == 2
    assert json.loads(call("answer", "q-3fa2", "SQLite", "--json").stdout)["answer"] == "SQLite"


def test_ctrl_c_ends_only_the_watching(begin: Begin, until: Until, terminal: Callable[..., Terminal]) -> None:
    engine = begin()
    until(engine.run, "working")
    screen = terminal("orchestration", "status", engine.run, "--watch")
    screen.wait_for("api at work")
    screen.type("\x03")
    assert screen.end() == 130
    assert "api at work" in screen.shown
    assert screen.echoes
    engine.end("api")
    engine.end("page")


def test_a_person_at_a_terminal_sees_the_run_change(
    begin: Begin, until: Until, here: Path, terminal: Callable[..., Terminal]
) -> None:
    """R-901: --watch draws again, in place."""
    engine = begin()
    until(engine.run, "working")
    screen = terminal("status", engine.run, "--watch", "--tasks")
    screen.wait_for("api at work")
    ask_person(here, engine.run)
    screen.wait_for(f"maos answer {engine.run}/q-3fa2")
    engine.end("api", "the api is there")
    screen.wait_for("50 %")
    screen.wait_for("the api is there")
    assert "50 %" in screen.shown
    assert screen.shown.count("Build the shop") == 1, "in place"
    engine.end("page")
    assert screen.end() == 0
    assert "100 %" in screen.shown
    assert screen.shown.count("Build the shop") == 1, "in place"
