"""`maos chat` (R-109): a run is begun and steered in conversation, by a person or by a script."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Agents, Call, Start, lives, wait_until
from tests.cli.chat.conftest import Talk, heard
from tests.cli.orchestrate.conftest import Plan, begun, go, waits


def test_a_request_is_planned_approved_and_carried_out(repository: Path, talk: Talk, kind: str) -> None:
    """R-101, R-109: what agents find is seen as they find it, and the summary says what became of it."""
    chat = talk("--kind", kind)
    chat.say("Build a door")
    plan = chat.wait_for("plan_proposed")
    assert [each["name"] for each in plan["tasks"]] == ["api", "docs"]
    chat.wait_for("question_asked")
    assert chat.kinds().count("task_started") == 1  # the planner: nobody has said yes
    chat.say("yes")
    chat.wait_for("discovery", text="a door")
    go(repository, "api")
    assert chat.end() == 0
    done = chat.wait_for("summary")
    assert (done["status"], done["done"], done["run"]) == ("completed", 3, plan["run"])
    assert chat.kinds().index("task_started") < chat.kinds().index("discovery") < chat.kinds().index("summary")
    assert chat.kinds().count("summary") == 1


def test_a_plan_is_changed_in_words_and_then_refused(repository: Path, talk: Talk, kind: str, agents: Agents) -> None:
    chat = talk("--kind", kind)
    chat.say("Build a door", "smaller, please", "no")
    chat.wait_for("reply", text="nothing was started; say what is to be done")
    plans = [each for each in chat.seen if each["kind"] == "plan_proposed"]
    assert [[task["name"] for task in each["tasks"]] for each in plans] == [["api", "docs"], ["only"]]
    told = agents.shown(f"{plans[0]['run']}.plan")["order"]["task"]
    assert "wants this change of the plan:\n\nsmaller, please" in told
    assert chat.end() == 0
    assert {each["task"] for each in chat.seen if each["kind"] == "task_started"} == {"plan"}


def test_nobody_who_says_yes_is_not_a_yes(repository: Path, talk: Talk, kind: str) -> None:
    chat = talk("--kind", kind)
    chat.say("Build a door")
    assert chat.end() == 6
    assert chat.wait_for("error")["what"] == "the plan was not approved"
    assert {each["task"] for each in chat.seen if each["kind"] == "task_started"} == {"plan"}
    go(repository, "api")
    again = talk(chat.wait_for("run")["run"])
    again.say("yes", "yes")  # resume, and run the plan that was made before
    assert again.end() == 0
    assert [each["task"] for each in again.seen if each["kind"] == "task_started"] == ["api", "docs"]


def test_auto_is_a_yes_in_advance(repository: Path, talk: Talk, kind: str) -> None:
    go(repository, "api")
    chat = talk("--kind", kind, "--auto")
    chat.say("Build a door")
    assert chat.end() == 0
    assert chat.wait_for("summary")["status"] == "completed"


def test_agents_are_told_something_while_they_work(repository: Path, talk: Talk, kind: str) -> None:
    chat = talk("--kind", kind)
    chat.say("Build a door", "yes")
    chat.wait_for("discovery")
    chat.say("@api use oak", "@all no hurry", "paint it", "@nobody x")
    assert chat.wait_for("error")["what"] == "there is no agent 'nobody'"
    assert [each["text"] for each in chat.seen if each["kind"] == "reply"][-3:] == [
        "sent to api",
        "sent to api, docs",
        "sent to api, docs",
    ]
    go(repository, "api")
    assert chat.end() == 0
    assert all(text in heard(repository) for text in ("use oak", "no hurry", "paint it"))


def test_a_permission_is_asked_and_answered_with_a_reason(
    repository: Path, talk: Talk, kind: str, agents: Agents
) -> None:
    chat = talk("--kind", kind)
    chat.say("Build a door", "smaller", "yes", "/wait", "no, it is needed", "/wait")
    done = chat.wait_for("summary")
    assert [each["result"] for each in done["tasks"]] == ["Smaller: only", "answered reject"]
    assert chat.wait_for("permission_requested")["task"] == "only"
    assert chat.end() == 0


def test_a_question_of_a_task_is_answered(repository: Path, plan: Plan, talk: Talk) -> None:
    path = plan(a={"command": ["true"], "gates": [{"person": "Is it good?"}]})
    chat = talk("--kind", "shell")
    chat.say(f"/plan {path}", "yes", "/wait", "/questions", "perhaps")
    assert chat.wait_for("error")["what"] == "'perhaps' is neither yes nor no"
    asked = next(each for each in chat.seen if each["kind"] == "reply" and "Is it good?" in each["text"])
    chat.say(f"/answer {asked['id']} yes")
    assert chat.end() == 0
    assert chat.wait_for("question_answered")["answer"] == "yes"


def test_more_work_is_added_while_agents_work_and_afterwards(repository: Path, plan: Plan, talk: Talk) -> None:
    """R-203: a task that is added sees what the others have made."""
    path = plan(a=waits(repository, "a"))
    chat = talk("--kind", "shell")
    chat.say(f"/plan {path}", "yes")
    chat.wait_for("task_started")
    chat.say("/add b after a: cat a.txt", "/add x after nobody: true")
    assert "needs 'nobody'" in chat.wait_for("error")["hint"]
    chat.wait_for("run_planned")
    go(repository, "a")
    first = chat.wait_for("summary", done=2)
    assert {each["task"]: each["result"] for each in first["tasks"]} == {"a": "", "b": "a"}
    chat.say("c: echo 3", "yes", "/wait", "/add d: echo 4")
    assert chat.end() == 0
    done = chat.wait_for("summary", done=4)
    assert {each["task"]: each["attempts"] for each in done["tasks"]} == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_pause_and_resume_with_fewer_agents(repository: Path, plan: Plan, talk: Talk) -> None:
    path = plan(a=waits(repository, "a"), b=waits(repository, "b"))
    chat = talk("--kind", "shell")
    chat.say(f"/plan {path}", "yes")
    wait_until(lambda: begun(repository, "a") and begun(repository, "b"))
    chat.say("/pause", "/wait", "/status")
    assert chat.wait_for("summary")["status"] == "paused"
    assert chat.wait_for("status")["state"] == "idle"
    chat.say("/resume 1")
    wait_until(lambda: begun(repository, "a") == 2)
    assert begun(repository, "b") == 1
    chat.say("/concurrency none", "/concurrency 2")
    wait_until(lambda: begun(repository, "b") == 2)
    assert chat.wait_for("error")["what"] == "'none' is not a number of agents"
    go(repository, "a", "b")
    assert chat.end() == 0
    assert chat.wait_for("summary", status="completed")["done"] == 2


def test_one_agent_is_stopped_and_the_others_go_on(repository: Path, plan: Plan, talk: Talk, agents: Agents) -> None:
    path = plan(a=waits(repository, "a"), b=waits(repository, "b"))
    chat = talk("--kind", "shell")
    chat.say(f"/plan {path}", "yes")
    wait_until(lambda: begun(repository, "a") and begun(repository, "b"))
    chat.say("/stop a")
    assert chat.wait_for("task_failed")["failure"] == "halted"
    go(repository, "a", "b")
    assert chat.wait_for("summary")["done"] == 1
    assert begun(repository, "a") == 1  # it was not begun again
    chat.say("/resume")
    assert chat.end() == 0
    assert (begun(repository, "a"), begun(repository, "b")) == (2, 1)


def test_leaving_pauses_and_days_later_it_is_all_there(
    repository: Path, plan: Plan, talk: Talk, call: Call, agents: Agents
) -> None:
    """R-108: agents are stopped; what was said is shown again, and the run goes on."""
    path = plan(a=waits(repository, "a"))
    chat = talk("--kind", "shell")
    chat.say(f"/plan {path}", "yes")
    wait_until(lambda: begun(repository, "a"))
    run = chat.wait_for("run")["run"]
    wait_until(lambda: agents.shown(f"{run}.a")["status"] == "running")
    pid = agents.shown(f"{run}.a")["pid"]
    chat.say("@a quickly", "/quit")
    assert chat.ended() == 6
    assert chat.wait_for("reply", run=run)["text"] == f"to continue here: maos chat {run}"
    assert not lives(pid)
    go(repository, "a")
    again = talk(run[:6])
    again.say("yes")
    assert again.end() == 0
    assert again.wait_for("run")["said"] == ["yes", "@a quickly", "/quit"]
    assert again.wait_for("summary")["status"] == "completed"


def test_the_past_is_shown_in_its_order(repository: Path, plan: Plan, talk: Talk, call: Call, start: Start) -> None:
    chat = talk("--kind", "shell")
    chat.say(f"/plan {plan(a='echo hello')}", "yes", "/wait", "b: echo 2", "yes")
    assert chat.end() == 0
    run = chat.wait_for("run")["run"]
    shown = start("chat", run)
    assert shown.end() == 0
    lines = [line for line in shown.stdout.splitlines() if line.startswith(("›", "a  ✓", "b  ✓"))]
    assert [line.partition(" ·")[0] for line in lines] == [
        "› yes", "› /wait", "a  ✓ done", "› b: echo 2", "› yes", "b  ✓ done",
    ]  # fmt: skip


def test_a_killed_conversation_goes_on(repository: Path, plan: Plan, talk: Talk, call: Call) -> None:
    """R-202: kill -9 in the middle; agents that still work are taken up, and nothing is done twice."""
    path = plan(a=waits(repository, "a"), b=("cat a.txt", "a"))
    chat = talk("--kind", "shell")
    chat.say(f"/plan {path}", "yes")
    wait_until(lambda: begun(repository, "a"))
    run = chat.wait_for("run")["run"]
    chat.process.kill()
    chat.process.wait()
    go(repository, "a")
    again = talk(run)
    again.say("yes")
    assert again.end() == 0
    done = again.wait_for("summary")
    assert (done["status"], begun(repository, "a")) == ("completed", 1)


@pytest.mark.parametrize("moment", ["planning", "asking"])
def test_a_conversation_that_was_killed_before_its_plan_was_approved_goes_on(
    repository: Path, talk: Talk, kind: str, agents: Agents, moment: str
) -> None:
    """The plan that an agent made is not made again: the same attempt is taken up, and the same question is asked."""
    chat = talk("--kind", kind)
    chat.say("Build a door, slowly")
    wait_until((repository / "planning").exists)
    if moment == "asking":
        go(repository, "plan")
        chat.wait_for("question_asked")
    chat.process.kill()
    chat.process.wait()
    go(repository, "plan", "api")
    planner = next(iter(agents.listed()))
    again = talk("--kind", kind, planner.removesuffix(".plan"))
    again.say("yes", "yes")
    assert again.end() == 0
    assert again.wait_for("summary")["status"] == "completed"
    assert len(agents.shown(planner)["attempts"]) == 1


def test_ctrl_c_while_it_is_planned_pauses_and_leaves(repository: Path, talk: Talk, kind: str, agents: Agents) -> None:
    chat = talk("--kind", kind)
    chat.say("Build a door, slowly")
    wait_until((repository / "planning").exists)
    chat.process.send_signal(signal.SIGINT)
    assert chat.ended() == 130
    go(repository, "plan", "api")
    again = talk(chat.wait_for("run")["run"])
    again.say("yes", "yes")
    assert again.end() == 0
    assert again.wait_for("summary")["status"] == "completed"


def test_ctrl_c_pauses_and_a_second_one_lets_go(repository: Path, plan: Plan, talk: Talk, agents: Agents) -> None:
    stubborn = f"trap '' TERM; {waits(repository, 'a')}"
    chat = talk("--kind", "shell")
    chat.say(f"/plan {plan(a=stubborn)}", "yes")
    wait_until(lambda: begun(repository, "a"))
    run = chat.wait_for("run")["run"]
    chat.process.send_signal(signal.SIGINT)
    chat.wait_for("reply", text="pausing: the agents are being stopped; press Ctrl+C again to detach from them instead")
    chat.process.send_signal(signal.SIGINT)
    assert chat.ended() == 130
    assert any("its agents keep running" in each.get("text", "") for each in chat.seen)
    go(repository, "a")
    again = talk(run)
    again.say("yes")
    assert again.end() in (0, 6, 8)  # it had been asked to stop before we let go of it


def test_a_run_of_another_process_is_steered_from_here(repository: Path, plan: Plan, talk: Talk, start: Start) -> None:
    gated = {"command": ["true"], "gates": [{"person": "Is it good?"}]}
    engine = start("run", "-f", str(plan(a=gated, b=waits(repository, "b"))), "--auto", "--json", "--kind", "shell")
    engine.wait_for("question_asked")
    run = json.loads(engine.stdout.splitlines()[1])["run"]
    chat = talk(run)
    wait_until(lambda: any("you can steer it from here" in each.get("text", "") for each in chat.seen))
    chat.say("yes", "/add c after b: cat b.txt")
    chat.wait_for("question_answered")
    chat.wait_for("run_planned")
    go(repository, "b")
    assert engine.end() == 0
    assert chat.end() == 0
    assert {each["task"]: each["status"] for each in chat.wait_for("summary")["tasks"]}["c"] == "done"


def test_what_cannot_be_done_is_said_and_the_conversation_goes_on(repository: Path, talk: Talk, call: Call) -> None:
    chat = talk("--kind", "shell")
    chat.say("/stauts", "/status", "/plan nowhere.toml", "just do it", "/help")
    chat.wait_for("reply")
    assert chat.end() == 0
    wrong = [(each["what"], each["hint"]) for each in chat.seen if each["kind"] == "error"]
    assert wrong == [
        ("there is no command /stauts", "did you mean /status?"),
        ("there is no run yet", "say what is to be done"),
        ("nowhere.toml cannot be read: No such file or directory", "name a plan file"),
        ("an agent of kind shell cannot plan", "choose another --kind, or give a --plan FILE"),
    ]
    assert "/wait" in chat.seen[-1]["text"]
    assert call("chat", "r-nobody").returncode == 3


def test_a_pasted_key_is_not_kept(repository: Path, plan: Plan, talk: Talk) -> None:
    key = "sk-ant-api03-" + "a" * 40
    chat = talk("--kind", "shell")
    chat.say(f"/plan {plan(a='true')}", "yes", "/wait", f"/log {key}")
    assert chat.end() == 0
    chat.wait_for("error")
    assert key.encode() not in b"".join(path.read_bytes() for path in repository.glob("maos.db*") if path.is_file())
