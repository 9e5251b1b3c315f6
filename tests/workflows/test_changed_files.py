"""A plan file that has changed since its run began: what fits, what does not, and what the run is then."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import maos
from maos.clock import SystemClock
from maos.engine.ownership import Held
from maos.model.plan import BadPlan
from maos.model.run import Run
from maos.plans.parser import ParsedPlan, parse
from maos.plans.source import YAML, Source
from maos.runs import file_changes as changing
from maos.workflows import WorkflowChanged

FILE = """\
name: release
variables: {version: "1"}
tasks:
- {name: test, command: pytest}
- {name: build, command: "make {{ version }}", needs: test}
- {name: ship, command: ship it, needs: build, gates: [{command: look}]}
"""


class Begun:
    """A run that was made from a file, and has come to what a test says."""

    def __init__(self, m: maos.Maos, folder: Path) -> None:
        self.m = m
        self.path = folder / "release.yaml"
        self.path.write_text(FILE)
        self.run = Run(id="")

    async def begin(self, *, variables: dict[str, Any] | None = None, **states: str) -> None:
        """Begin it; `states` says how it stands with its tasks."""
        read = parse(Source(FILE, YAML, str(self.path), variables or {}))
        made_from = changing.origin_of(read)
        self.run = await self.m.runs.create(read.plan, options={**made_from.option(), "kind": "shell"}, id="r-1")
        for name, state in states.items():
            await self._lead(name, state)
        self.run = await self.m.runs.get("r-1")

    async def _lead(self, task: str, state: str) -> None:
        await self.record("task_started", task=task, number=1)
        if state == "done":
            await self.record("task_finished", task=task, result="yes", commit="c0ffee")
        elif state == "failed":
            await self.record("task_failed", task=task, failure="failed", why="no")
        elif state == "gated":
            await self.record("task_gated", task=task, passed=0, result="yes")

    async def record(self, type_: str, **data: Any) -> None:
        await self.m.journal.append("run/r-1", maos.Event(type_, {**data, "at_us": 1}))

    def now(self, old: str = "", new: str = "") -> ParsedPlan:
        """The file after somebody has put one text in the place of another."""
        assert old in FILE
        self.path.write_text(FILE.replace(old, new) if old else new)
        made_from = changing.origin(self.run)
        assert made_from is not None
        return changing.reread(made_from)

    def look(self) -> changing.Look:
        found = changing.look(self.run)
        assert found is not None
        return found

    async def adopt(self, read: ParsedPlan) -> Run:
        await changing.adopt(self.m.journal, SystemClock(), self.run, read, agents={})
        return await self.m.runs.get("r-1")


@pytest.fixture
async def begun(tmp_path: Path) -> AsyncIterator[Begun]:
    async with maos.open(tmp_path / "maos.db") as m:
        yield Begun(m, tmp_path)


async def test_a_file_that_says_the_same_has_not_changed(begun: Begun) -> None:
    await begun.begin(test="done")
    assert begun.look().state == "same"
    begun.now(new="# a comment\n" + FILE)
    assert begun.look().state == "same"


async def test_a_run_that_was_made_from_no_file_has_none(begun: Begun) -> None:
    assert changing.look(Run(id="r-2", options={"kind": "shell"})) is None
    assert changing.look(Run(id="r-2", options={"workflow": "made elsewhere"})) is None


@pytest.mark.parametrize(
    ("text", "state", "what"),
    [(None, "gone", "No such file"), ("tasks: [", "wrong", "not YAML"), ("a" * (1 << 20) + "b", "gone", "larger")],
)
async def test_a_file_that_is_gone_or_wrong_is_told(begun: Begun, text: str | None, state: str, what: str) -> None:
    await begun.begin()
    if text is None:
        begun.path.unlink()
    else:
        begun.path.write_text(text)
    found = begun.look()
    assert found.state == state
    assert what in found.what


async def test_what_has_not_begun_can_change_and_go_and_come(begun: Begun) -> None:
    """R-1003: and what was done stays done."""
    await begun.begin(test="done")
    read = begun.now("make {{ version }}", "make all {{ version }}")
    assert begun.look() == changing.Look(begun.look().origin, "changed", changing.Changes(changed=("build",)))
    run = await begun.adopt(read)
    assert (run.status, run.why, run.done) == ("paused", "release.yaml has changed", 1)
    assert run.tasks["build"].plan["command"] == ["make", "all", "1"]
    assert run.tasks["test"].result == "yes"
    assert (run.tasks["build"].missing, run.tasks["ship"].missing) == (0, 1)
    begun.run = run
    assert begun.look().state == "same"
    read = begun.now(
        '- {name: build, command: "make {{ version }}", needs: test}\n- {name: ship, command: ship it, needs: build,',
        "- {name: lint, command: lint, needs: test}\n- {name: ship, command: ship it, needs: [lint],",
    )
    assert begun.look().changes == changing.Changes(("lint",), ("ship",), ("build",))
    run = await begun.adopt(read)
    assert list(run.tasks) == ["test", "lint", "ship"]
    assert (run.tasks["lint"].missing, run.tasks["ship"].missing) == (0, 1)
    assert run.needed_by == {"test": ["lint"], "lint": ["ship"]}
    assert run.agent("test") == "r-1.test"
    assert run.agent("lint") == "r-1.lint.b2"


@pytest.mark.parametrize(
    ("states", "old", "new", "told"),
    [
        ({"test": "done"}, "command: pytest", "command: tox", "test is done as 'pytest', and is 'tox' now"),
        ({"test": "done"}, "{name: test, command: pytest}", "{name: check, command: pytest}", "has it no more"),
        ({"test": "done"}, "command: pytest", "command: pytest, gates: [{command: x}]", "has other gates now"),
        ({"test": "done"}, "command: pytest", "command: pytest, needs: a}\n- {name: a, command: a", "needs a now"),
        ({"test": "done", "build": "running"}, "make {{", "make all {{", "build has begun as 'make 1'"),
        ({"test": "done", "build": "running"}, "needs: test}", "needs: test, model: x}", "build has begun as"),
        ({"test": "running"}, "{name: test, command: pytest}", "{name: other, command: x}", "has it no more"),
        ({"test": "done", "build": "done", "ship": "gated"}, "ship it", "ship", "ship has begun as 'ship it'"),
    ],
)
async def test_what_was_done_or_begun_must_be_the_same(
    begun: Begun, states: dict[str, str], old: str, new: str, told: str
) -> None:
    """R-1003: the new one is refused, by the step that does not fit, and nothing is written."""
    await begun.begin(**states)
    text = FILE.replace(old, new)
    if "has it no more" in told:
        text = text.replace("needs: test", "needs: [check]" if "check" in new else "needs: [other]")
    begun.path.write_text(text)
    made_from = changing.origin(begun.run)
    assert made_from is not None
    with pytest.raises(WorkflowChanged) as raised:
        await begun.adopt(changing.reread(made_from))
    assert told in raised.value.what
    assert "finishes with the file as it was" in raised.value.hint
    assert (await begun.m.runs.get("r-1")).version == begun.run.version


async def test_limits_and_gates_that_are_left_out_fit_what_is_done(begun: Begun) -> None:
    await begun.begin(test="done", build="running")
    run = await begun.adopt(begun.now("command: pytest", "command: pytest, time_limit_s: 9, priority: 3"))
    assert run.tasks["test"].plan["time_limit_s"] == 9
    assert (run.tasks["build"].status, run.agent("build")) == ("running", "r-1.build")


async def test_what_failed_can_be_mended_and_begins_anew(begun: Begun) -> None:
    """Under another name, so that nobody goes on with what the old one was told."""
    await begun.begin(test="done", build="failed")
    run = await begun.adopt(begun.now("make {{", "make -k {{"))
    task = run.tasks["build"]
    assert (task.status, task.attempts, run.agent("build")) == ("waiting", 0, "r-1.build.b1")


async def test_what_failed_and_has_not_changed_goes_on_as_it_was(begun: Begun) -> None:
    await begun.begin(test="done", build="failed")
    run = await begun.adopt(begun.now("command: ship it", "command: ship it now"))
    task = run.tasks["build"]
    assert (task.status, task.attempts, run.agent("build")) == ("failed", 1, "r-1.build")


async def test_tasks_that_came_later_stay_and_must_fit(begun: Begun) -> None:
    await begun.begin(test="done")
    await begun.record("run_planned", tasks=[{"name": "notes", "command": ["note"], "needs": ["build"]}])
    begun.run = await begun.m.runs.get("r-1")
    run = await begun.adopt(begun.now("make {{", "make all {{"))
    assert list(run.tasks) == ["test", "build", "ship", "notes"]
    begun.run = run
    without = 'build, command: "make {{ version }}", needs: test}\n- {name: ship, command: ship it, needs: build'
    read = begun.now(without, "other, command: x, needs: test}\n- {name: ship, command: ship it, needs: other")
    with pytest.raises(BadPlan, match="needs 'build'"):
        await begun.adopt(read)
    with pytest.raises(WorkflowChanged, match="notes the run was given another task of that name"):
        await begun.adopt(begun.now("name: ship", "name: notes"))


async def test_variables_are_those_that_were_given(begun: Begun) -> None:
    await begun.begin(variables={"version": "7"}, test="done")
    run = await begun.adopt(begun.now("make {{", "make all {{"))
    assert run.tasks["build"].plan["command"] == ["make", "all", "7"]


async def test_a_completed_run_goes_on_when_there_is_more_to_do(begun: Begun) -> None:
    await begun.begin(test="done", build="done", ship="done")
    await begun.record("run_ended", status="completed")
    begun.run = await begun.m.runs.get("r-1")
    more = FILE + "- {name: tell, command: tell, needs: ship}\n"
    run = await begun.adopt(begun.now(new=more))
    assert (run.status, run.tasks["tell"].status, run.ended_us) == ("paused", "waiting", 0)


async def test_it_can_be_taken_back(begun: Begun) -> None:
    """I14: what the new file brought is given up, and the old one is what counts."""
    await begun.begin(test="done")
    before = begun.run
    await begun.adopt(begun.now("make {{", "make all {{"))
    at = await begun.m.runs.get("r-1")
    data = {"to": before.version, "position": 0, "branch": at.branch + 1, "state": changing.content(before).data}
    await begun.record("run_rolled_back", **data)
    run = await begun.m.runs.get("r-1")
    assert run.tasks["build"].plan == before.tasks["build"].plan
    assert changing.origin(run) == changing.origin(before)


async def test_it_is_refused_while_somebody_carries_it_out(begun: Begun) -> None:
    await begun.begin()
    lease = await begun.m.journal.acquire("run/r-1", ttl_s=30)
    assert lease is not None
    from maos.engine import ownership

    await begun.record("run_claimed", owner=ownership.identity(lease), source="test")
    begun.run = await begun.m.runs.get("r-1")
    with pytest.raises(Held):
        await begun.adopt(begun.now("make {{", "make all {{"))


async def test_the_settings_of_the_file_count_from_then_on(begun: Begun) -> None:
    await begun.begin()
    run = await begun.adopt(begun.now("name: release", "name: release\nconcurrency: 2\nconflicts: agent"))
    assert begun.look().changes == changing.Changes(settings=("conflicts", "concurrency"))
    assert (run.options["concurrency"], run.options["conflicts"]) == (2, "agent")


def test_what_a_run_keeps_of_its_file_is_plain_data() -> None:
    read = parse(Source(FILE, YAML, "release.yaml", {"version": 2}))
    kept = changing.origin_of(read).option()
    assert msgspec.json.decode(msgspec.json.encode(kept)) == kept
    assert changing.origin(Run(id="r-1", options=kept)) == changing.origin_of(read)
