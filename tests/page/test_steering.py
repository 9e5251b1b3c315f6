"""A person does everything from the page: start, watch, answer, review, send back, merge, roll back, fork
(R-207, R-902)."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.conftest import PEER, PHONE, Opened, Stage, peer_task, task, wait_until


def test_a_whole_run_without_a_terminal(stage: Stage, opened: Opened) -> None:
    stage.plan(
        "greeting",
        task("ask", {"ask": {"question": "In which language shall it greet?", "choices": ["English", "German"]}}),
        task("write", {"write": ["greeting.txt", "Hello\nworld\n"]}, {"say": "greeting.txt is there"}, needs=["ask"],
             gates=[{"person": "Is the greeting good?"}]),
        request="Write a greeting",
    )  # fmt: skip
    page = opened(f"{stage.url}/#/start")
    page.get_by_role("combobox", name="Plan").select_option("greeting.json")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="Write a greeting")).to_be_visible()
    run = re.search(r"#/run/(r-\w+)", page.url)[1]  # type: ignore[index]

    page.get_by_role("link", name="In which language shall it greet?").click()
    page.get_by_role("button", name="German").click()
    expect(page.get_by_role("status").get_by_text("Answered: German")).to_be_visible()

    page.goto(f"{stage.url}/#/run/{run}/review")
    expect(page.locator("b", has_text="Is the greeting good?")).to_be_visible()
    page.get_by_role("button", name="Comment on line 2").click()
    page.get_by_label("Comment", exact=True).fill("Greet the moon too")
    page.get_by_role("button", name="Keep the comment").click()
    page.get_by_role("button", name="Send back with 1 comment").click()
    wait_until(stage, lambda: _task(stage, run, "write")["attempts"] == 2 and _gate(stage, run))
    answers = {each["answer"] for each in stage.api("GET", f"/runs/{run}/decisions")["decisions"]}
    assert answers == {"German", "no: greeting.txt:2: Greet the moon too\n> world"}

    expect(page.locator("a[href*='gate/write/0/2']").first).to_be_visible()  # the page knows of the second try
    page.locator("body").press("a")  # accept
    expect(page.locator("main .facts").first).to_contain_text("finished")
    page.get_by_role("link", name="Plan").click()
    expect(page.get_by_text("1 changed file is not merged yet.")).to_be_visible()
    page.get_by_role("link", name="Review and merge").click()
    page.get_by_role("button", name="Merge into your branch").click()
    expect(page.get_by_text("Merged as 1 commit on").first).to_be_visible()
    expect(page.get_by_role("button", name="Merge into your branch")).to_have_count(0)
    assert stage.git("show", "HEAD:greeting.txt") == "Hello\nworld\n"
    page.reload()  # what was merged is what git has, and is not forgotten
    expect(page.get_by_text("has all of it.")).to_be_visible()
    expect(page.get_by_role("button", name="Merge into your branch")).to_have_count(0)
    expect(page.get_by_text("+2", exact=True).first).to_be_visible()


def _task(stage: Stage, run: str, name: str) -> Any:
    return stage.api("GET", f"/runs/{run}/tasks/{name}")


def _gate(stage: Stage, run: str) -> bool:
    return any(each["kind"] == "gate" for each in stage.api("GET", f"/runs/{run}")["pending"])


def test_a_request_is_planned_approved_and_merged_in_the_browser(stage: Stage, opened: Opened) -> None:
    """R-207, R-902: from words to a commit, without a plan file and without a terminal."""
    poem = {"write": ["poem.txt", "Roses are red\n"]}, {"say": "the poem is there"}, {"cost": 0.25}
    work = {"name": "poem", "agent": "developer", "task": f"Write the poem into poem.txt\n{json.dumps(poem)}"}
    plan = {"summary": "One agent writes it", "tasks": [work]}
    page = opened(f"{stage.url}/#/start")
    page.get_by_label("What should be done?").fill(f"Write a poem\n{json.dumps([{'say': json.dumps(plan)}])}")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("link", name="Run this plan?").click()
    expect(page.locator(".plan-lines")).to_contain_text("Write the poem into poem.txt")
    run = re.search(r"#/inbox/(r-\w+)/", page.url)[1]  # type: ignore[index]
    page.get_by_role("button", name="Approve").click()
    wait_until(stage, lambda: _is_over(stage, run))
    page.goto(f"{stage.url}/#/run/{run}")
    expect(page.locator(".curve")).to_contain_text("$0.25")
    page.get_by_role("link", name="Review and merge").click()
    page.get_by_role("button", name="Merge into your branch").click()
    expect(page.get_by_text("Merged as 1 commit on").first).to_be_visible()
    assert stage.git("show", "HEAD:poem.txt") == "Roses are red\n"


def test_a_merge_conflict_is_decided_in_the_inbox(stage: Stage, opened: Opened) -> None:
    """R-207, R-902."""
    go = stage.signal("colours")
    run = stage.run(
        "colours",
        task("red", {"write": ["colour.txt", "red\n"]}),
        task("blue", {"write": ["colour.txt", "blue\n"]}, {"until": go}),
        request="Choose a colour",
    )
    wait_until(stage, lambda: _task(stage, run, "red")["status"] == "done")
    stage.give("colours")
    page = opened(f"{stage.url}/#/inbox")
    row = page.get_by_role("listitem").filter(has_text="blue · Choose a colour")
    expect(row).to_contain_text("Conflict")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name="The work of blue cannot be merged")).to_be_visible()
    expect(page.locator(".ask-view pre.code")).to_contain_text("colour.txt")
    page.get_by_role("button", name=re.compile("^others")).click()
    wait_until(stage, lambda: _is_over(stage, run))
    patch = stage.api("GET", f"/runs/{run}/diff?patch=true")["patch"]
    assert "+red" in patch
    assert "blue" not in patch


def test_an_agent_is_told_something_and_another_one_is_stopped(stage: Stage, opened: Opened) -> None:
    """R-902."""
    go = stage.signal("told")
    run = stage.run(
        "told",
        peer_task("listens", "Wait", {"say": "ready\n"}, {"until": go}, kind=PEER),
        task("stubborn", {"say": "at work"}, {"until": stage.signal("never")}),
        request="Listen",
    )
    page = opened(f"{stage.url}/#/agent/{run}.listens")
    expect(page.locator(".line", has_text="ready")).to_be_visible()
    page.get_by_label("Message to the agent").fill("Greet the moon")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("status").get_by_text("Sent")).to_be_visible()
    stage.give("told")
    expect(page.locator(".line", has_text="I remember")).to_be_visible()  # its answer to what it was told
    expect(page.locator(".line.input", has_text="Greet the moon")).to_be_visible()

    page.goto(f"{stage.url}/#/agent/{run}.stubborn")
    expect(page.locator(".line", has_text="at work")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("status").get_by_text("Stopped; it can be resumed")).to_be_visible()
    wait_until(stage, lambda: stage.api("GET", f"/agents/{run}.stubborn")["status"] == "stopped")
    expect(page.locator(".head .state")).to_contain_text("stopped")


def test_a_workflow_is_told_a_signal_and_says_once_why_it_failed(stage: Stage, opened: Opened) -> None:
    """R-902."""
    for name, argument in (("order", "milk"), ("refused", "honey")):
        stage.maos("workflow", "run", f"flows.py:{name}", argument, "--id", f"w-{argument}", "--detach")
    page = opened(f"{stage.url}/#/workflows")
    page.get_by_role("row").filter(has_text="w-milk").get_by_role("link").click()
    expect(page.get_by_role("row").filter(has_text="reserve")).to_contain_text("milk is reserved")
    page.get_by_text("Send a signal").click()
    page.get_by_label("Name of the signal").fill("approved")
    page.get_by_label("Value").fill("and paid")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".head .state")).to_contain_text("finished")
    expect(page.locator("pre.code")).to_have_text('"milk is reserved, and paid"')

    page.goto(f"{stage.url}/#/workflows/w-honey")
    expect(page.locator(".head .state")).to_contain_text("failed")
    expect(page.locator(".head .note")).to_have_count(1)
    expect(page.locator(".head .note")).to_contain_text("the card for honey is refused")


def test_an_agent_without_a_run_is_found_and_resumed(stage: Stage, opened: Opened) -> None:
    again = "test -e .again || { touch .again; echo not yet; exit 1; }; echo second time"
    stage.maos("agent", "run", "--in-place", "--name", "lone", "--", "sh", "-c", again)
    page = opened(f"{stage.url}/#/fleet")
    page.get_by_role("row").filter(has_text="lone").get_by_role("link", name="lone").click()
    expect(page.locator(".line", has_text="not yet")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".line", has_text="second time")).to_be_visible()
    assert stage.api("GET", "/agents/lone")["status"] == "done"


def test_questions_are_answered_together_and_the_history_says_who_decided(stage: Stage, opened: Opened) -> None:
    gate = [{"person": "Good?"}]
    run = stage.run("batch", *(task(f"part-{n}", {"say": "done"}, gates=gate) for n in (1, 2)), request="In two parts")
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{run}")["pending"]) == 2)
    page = opened(f"{stage.url}/#/inbox")
    for n in (1, 2):
        row = page.get_by_role("listitem").filter(has_text=f"part-{n} · In two parts")
        row.get_by_label("Select for a batch answer").check()
    page.locator(".batch").get_by_role("button", name="Accept").click()
    wait_until(stage, lambda: stage.api("GET", f"/runs/{run}")["status"] == "completed")
    page.get_by_role("button", name="Decided").click()
    expect(page.get_by_role("row").filter(has_text=run)).to_have_count(2)
    assert all("token:" in each["by"] for each in stage.api("GET", f"/runs/{run}/decisions")["decisions"])


def test_a_link_opens_the_question_on_a_phone_and_tells_when_it_was_answered(stage: Stage, opened: Opened) -> None:
    run = stage.run("phone", task("ask", {"ask": {"question": "Deploy now?", "context": "The tests passed."}}))
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{run}")["pending"]) == 1)
    ref = stage.api("GET", f"/runs/{run}")["pending"][0]["ref"]
    link = f"{stage.url}/#/inbox/{ref}"
    page = opened(link, size=PHONE)
    expect(page.get_by_text("The tests passed.")).to_be_visible()
    page.get_by_label("Your answer").fill("After lunch")
    page.get_by_role("button", name="Answer", exact=True).tap()
    wait_until(stage, lambda: stage.api("GET", f"/runs/{run}")["status"] == "completed")
    late = opened(link, size=PHONE)
    expect(late.get_by_text("answered already")).to_be_visible()


def test_the_next_question_is_shown_after_an_answer_whenever_it_comes(stage: Stage, opened: Opened) -> None:
    stage.cancel_runs()  # questions of other tests would be the next ones
    wait_until(stage, lambda: not stage.api("GET", "/questions")["questions"])
    run = stage.run("twice", task("work", {"say": "done"}, gates=[{"person": "First?"}, {"person": "Second?"}]))
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{run}")["pending"]) == 1)
    ref = stage.api("GET", f"/runs/{run}")["pending"][0]["ref"]
    page = opened(f"{stage.url}/#/inbox/{ref}")
    expect(page.get_by_role("heading", name="First?")).to_be_visible()
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_role("heading", name="Second?")).to_be_visible()
    expect(page.get_by_text("answered already")).to_have_count(0)
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("Inbox empty")).to_be_visible()
    expect(page.get_by_text("answered already")).to_have_count(0)


def test_a_person_sees_only_what_the_role_may_do(stage: Stage, opened: Opened) -> None:
    """Of a viewer, an answerer, an auditor, and an operator of one run."""
    run = stage.run("roles", task("part", {"say": "the secret of the part"}, gates=[{"person": "Is it good?"}]),
                    request="For all roles")  # fmt: skip
    other = stage.run("others", task("wait", {"until": stage.signal("others")}), request="Of other people")
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{run}")["pending"]) == 1)
    ref = stage.api("GET", f"/runs/{run}")["pending"][0]["ref"]
    for role, on in (("viewer", ""), ("answerer", ""), ("auditor", ""), ("operator", f"run/{run}")):
        page = opened.as_role(stage, role, *filter(None, [on]))
        reads, answers, steers = role != "auditor", role in ("answerer", "operator"), role == "operator"
        expect(page.get_by_role("article", name="For all roles")).to_be_visible()
        expect(page.get_by_role("article", name="Of other people")).to_have_count(0 if on else 1)
        expect(page.get_by_role("link", name="New run")).to_have_count(0)
        expect(page.get_by_role("link", name="Messages")).to_have_count(int(reads))
        expect(page.locator(".live")).to_contain_text("Live" if reads else "Up to date")

        page.goto(f"{stage.url}/#/inbox/{ref}")
        expect(page.get_by_role("heading", name="Is it good?" if reads else "Check")).to_be_visible()
        expect(page.get_by_role("button", name="Accept")).to_have_count(int(answers))
        said = page.get_by_text(f"Your role is {role}: you can look at this decision, and not make it")
        expect(said).to_have_count(int(not answers))

        page.goto(f"{stage.url}/#/run/{run}")
        expect(page.get_by_text("What happened")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel")).to_have_count(int(steers))
        tabs = page.get_by_role("navigation", name="Parts of the run").get_by_role("link")
        expect(tabs).to_have_count(5 if reads else 2)
        page.goto(f"{stage.url}/#/agent/{run}.part")
        expect(page.get_by_role("heading", name="part")).to_be_visible()
        if reads:
            expect(page.locator(".line", has_text="the secret of the part")).to_be_visible()
        else:
            expect(page.get_by_text("it does not read what agents print")).to_be_visible()
            assert "the secret of the part" not in page.content()
        expect(page.get_by_label("Message to the agent")).to_have_count(int(steers))

        page.goto(f"{stage.url}/#/system")
        expect(page.get_by_text("in the journal")).to_be_visible()
        expect(page.get_by_role("link", name="Access")).to_have_count(0)
        if on:  # what is beside its run does not exist for it
            page.goto(f"{stage.url}/#/run/{other}")
            expect(page.get_by_role("alert")).to_contain_text("may not read")
        page.context.close()
    stage.give("others")
    stage.api("POST", f"/questions/{ref}/answer", json={"answer": "yes"})


def at_version(page: Page, version: int) -> None:
    """Have the view of the time show a version of the run."""
    page.get_by_label("Version", exact=True).fill(str(version))
    page.get_by_label("Version", exact=True).press("Tab")
    expect(page.get_by_label("Version", exact=True)).to_have_value(str(version))


@pytest.fixture
def ended(stage: Stage) -> str:
    """A run of two tasks that has ended."""
    run = stage.run(
        "two",
        task("first", {"write": ["a.txt", "1\n"]}),
        task("second", {"write": ["b.txt", "2\n"]}, needs=["first"]),
        request="Two steps",
    )
    wait_until(stage, lambda: stage.api("GET", f"/runs/{run}")["status"] == "completed")
    return run


def test_time_shows_what_was_and_forks_and_rolls_back(stage: Stage, opened: Opened, ended: str) -> None:
    events = stage.api("GET", f"/runs/{ended}/events?limit=500")["events"]
    then = next(
        each["version"] for each in events if each["type"] == "task_started" and each["data"]["task"] == "second"
    )
    page = opened(f"{stage.url}/#/run/{ended}/time")
    expect(page.locator(".then-tasks li").nth(1)).to_contain_text("finished")
    at_version(page, then)
    expect(page.locator(".then-tasks li").nth(1)).not_to_contain_text("finished")
    expect(page.get_by_text("a.txt", exact=True)).to_be_visible()
    expect(page.get_by_text("b.txt", exact=True)).to_have_count(0)
    page.locator(".then-tasks li", has_text="first").get_by_role("button", name="Output then").click()
    expect(page.get_by_role("dialog").locator(".line", has_text="wrote a.txt")).to_be_visible()
    page.keyboard.press("Escape")

    page.get_by_role("button", name="To the change before").click()
    expect(page.get_by_label("Version", exact=True)).not_to_have_value(str(then))
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_label("Moment").press("End")
    expect(page.locator(".then-tasks li").nth(1)).to_contain_text("finished")
    at_version(page, then)

    page.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("This run is not touched")).to_be_visible()
    expect(dialog.get_by_role("row").filter(has_text="second")).to_be_visible()
    before = {each["id"] for each in stage.api("GET", "/runs?limit=500")["runs"]}
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page).not_to_have_url(re.compile(ended))
    (fork,) = {each["id"] for each in stage.api("GET", "/runs?limit=500")["runs"]} - before
    page.get_by_role("button", name="Resume").click()
    wait_until(stage, lambda: stage.api("GET", f"/runs/{fork}")["status"] == "completed")

    held: list[Route] = []
    asks = re.compile(r"/moment\?")

    def hold(route: Route) -> None:
        held.append(route)

    page.route(asks, hold)
    with page.expect_request(asks):
        page.goto(f"{stage.url}/#/run/{ended}/time")
    page.get_by_label("Version", exact=True).fill(str(then))
    for each in held:
        each.continue_()
    page.unroute_all()
    expect(page.locator(".then-tasks li").nth(1)).to_contain_text("finished")
    expect(page.get_by_label("Version", exact=True)).to_have_value(str(then))  # what is typed stays
    at_version(page, then)
    page.get_by_role("button", name="Roll back to here").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("row").filter(has_text="second")).to_be_visible()
    assert stage.api("GET", f"/runs/{ended}")["status"] == "completed"  # it was a dry run so far
    dialog.get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert stage.api("GET", f"/runs/{ended}")["status"] == "paused"
    page.get_by_role("button", name="Resume").click()
    wait_until(stage, lambda: stage.api("GET", f"/runs/{ended}")["status"] == "completed")


def test_a_run_is_paused_resumed_retried_and_cancelled(stage: Stage, opened: Opened) -> None:
    go = stage.signal("steer")
    run = stage.run(
        "steer", task("works", {"say": "at work"}, {"until": go}), task("breaks", {"fail": "no module forms"})
    )
    page = opened(f"{stage.url}/#/run/{run}")
    expect(page.get_by_role("button", name="Retry failed")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("main .facts").first).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("main .facts").first).to_contain_text("working")
    _open_task(page, "works")
    page.get_by_role("dialog").get_by_role("button", name="Skip").click()
    expect(page.get_by_role("dialog").get_by_text("skipped")).to_be_visible()
    page.keyboard.press("Escape")
    stage.give("steer")
    wait_until(stage, lambda: stage.api("GET", f"/runs/{run}")["status"] == "failed")


def _open_task(page: Page, name: str) -> None:
    page.get_by_role("link", name="Tasks").click()
    page.get_by_role("link", name=name, exact=True).click()


def test_a_permission_is_given_once_or_always_with_the_rule_that_is_suggested(stage: Stage, opened: Opened) -> None:
    asks = [{"ask": {"id": f"t{n}", "title": "git push origin main", "kind": "execute"}} for n in (1, 2)]
    run = stage.run("pushing", peer_task("push", "Push it", *asks, {"say": "pushed"}), request="Push the branch")
    page = opened(f"{stage.url}/#/inbox")
    page.get_by_role("listitem").filter(has_text="push · Push the branch").get_by_role("link").click()
    expect(page.get_by_role("heading", name="May push use")).to_be_visible()
    page.get_by_role("button", name="Allow once").click()
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{run}")["pending"]) == 1 or _is_over(stage, run))
    page.goto(f"{stage.url}/#/agent/{run}.push")
    page.get_by_role("button", name="Always allow").click()
    wait_until(stage, lambda: _is_over(stage, run))
    decided = [each["answer"] for each in stage.api("GET", "/decisions")["decisions"] if each["run"] == run]
    assert len(decided) == 2


def _is_over(stage: Stage, run: str) -> bool:
    return stage.api("GET", f"/runs/{run}")["status"] in ("completed", "failed")
