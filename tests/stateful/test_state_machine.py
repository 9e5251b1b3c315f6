"""Whatever is done to an agent, in whatever order: its states are those of a plain list of dictionaries.

Hypothesis invents lives of agents: updates, rollbacks, snapshots, restores, compactions, restarts, two processes on one
file. After each step some question is asked - the state now, at a version, at a time, in part, a difference - and the
answer compared with that of the plainest thing that could give it. Folds are small, so that they matter all the time.
"""

from __future__ import annotations

import asyncio
import bisect
import copy
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import maos
from maos.app import Maos
from maos.errors import Conflict, KeyReused, NotFound
from maos.model import checksum
from maos.model.changes import MISSING, apply, difference, lookup, parse_pointer
from maos.state import folds
from maos_testing.manual_clock import ManualClock
from tests.journal.places import NOTE
from tests.model.data import same
from tests.state.edits import LISTS, edit, pointer_to, start

NODES = st.sampled_from([0, 1])
CHANCES = st.randoms(use_true_random=False)
PICKS = st.floats(0, 1, exclude_max=True)
STRATEGIES = st.sampled_from(["snapshot", "merge", "delete"])
SHRINKING_S_MAX = 600

Data = dict[str, Any]


class AgentMachine(RuleBasedStateMachine):
    """Two processes and one agent, and what they should say of it."""

    parent: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.parent))
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.nodes = [self.open(), self.open()]
        self.versions: list[Data] = []
        """What every version held, those that are gone included."""
        self.times: list[int] = []
        self.critical: set[int] = set()
        self.left: set[int] = set()
        """Versions that compaction has left."""
        self.snapshots: dict[str, Data] = {}
        self.keys: dict[str, tuple[Data, int]] = {}

    # --- the means -------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def open(self) -> Maos:
        async def work() -> Maos:
            return await maos.open(self.folder / "maos.db", types=[NOTE], clock=self.clock)

        return self.run(work())

    @property
    def now(self) -> Data:
        return self.versions[-1]

    def became(self, version: int, data: Data, *, critical: bool = False) -> None:
        """A new version, the next one."""
        assert version == len(self.versions) + 1, "I4"
        self.versions.append(copy.deepcopy(data))
        self.times.append(self.clock.now_us())
        self.left.add(version)
        if critical:
            self.critical.add(version)

    def picked(self, pick: float) -> int:
        """Some version there ever was."""
        return 1 + int(pick * len(self.versions))

    # --- what is done ----------------------------------------------------------------------------------------

    @initialize(node=NODES)
    def create(self, node: int) -> None:
        state = self.run(self.nodes[node].state.create("a", start()))
        self.became(state.version, start(), critical=True)

    @rule(node=NODES, chance=CHANCES, critical=st.booleans(), insist=st.booleans())
    def update(self, node: int, chance: Random, critical: bool, insist: bool) -> None:
        data = copy.deepcopy(self.now)
        wish = edit(chance, data, len(self.versions))
        before = len(self.versions)
        expected = before if insist else None
        update = self.run(self.nodes[node].state.update("a", wish, critical=critical, expected=expected))
        if same(data, self.now):
            assert (update.version, update.changes) == (before, ())
            return
        assert update.previous == before
        assert same(update.state.raw(), data)
        self.became(update.version, data, critical=critical)

    @rule(node=NODES, chance=CHANCES, pick=PICKS)
    def update_with_a_key(self, node: int, chance: Random, pick: float) -> None:
        """New ones, repeated ones and reused ones."""
        agents = self.nodes[node].state
        if self.keys and pick > 0.5:
            key = sorted(self.keys)[int((pick - 0.5) * 2 * len(self.keys))]
            wish, version = self.keys[key]
            assert self.run(agents.update("a", wish, key=key)).version == version
            with pytest.raises(KeyReused):
                self.run(agents.update("a", {"other": "wish"}, key=key))
            return
        data = copy.deepcopy(self.now)
        wish = edit(chance, data, len(self.versions))
        key = f"key {len(self.keys)}"
        update = self.run(agents.update("a", wish, key=key))
        self.became(update.version, data)
        self.keys[key] = (wish, update.version)

    @rule(node=NODES, chance=CHANCES, behind=st.sampled_from([-3, -1, 1]))
    def insist_on_another_version(self, node: int, chance: Random, behind: int) -> None:
        wish = edit(chance, copy.deepcopy(self.now), -1)
        with pytest.raises(Conflict):
            self.run(self.nodes[node].state.update("a", wish, expected=len(self.versions) + behind))

    @rule(node=NODES, pick=PICKS)
    def roll_back(self, node: int, pick: float) -> None:
        version = self.picked(pick)
        if version in self.left:
            update = self.run(self.nodes[node].state.rollback("a", version))
            self.became(update.version, self.versions[version - 1], critical=True)
        else:
            with pytest.raises(NotFound):
                self.run(self.nodes[node].state.rollback("a", version))

    @rule(
        node=NODES,
        kind=st.sampled_from(["full", "incremental", "incremental", "checkpoint"]),
        compression=st.sampled_from(["zstd", "gzip", "lz4", "snappy", "none"]),
    )
    def take_snapshot(self, node: int, kind: str, compression: str) -> None:
        info = self.run(self.nodes[node].state.snapshot("a", kind=kind, compression=compression))
        assert info.version == len(self.versions)
        self.snapshots[info.id] = self.now
        self.became(len(self.versions) + 1, self.now)

    @precondition(lambda self: self.snapshots)
    @rule(node=NODES, pick=PICKS)
    def restore(self, node: int, pick: float) -> None:
        id_ = sorted(self.snapshots)[int(pick * len(self.snapshots))]
        restored = self.run(self.nodes[node].state.restore("a", id_))
        assert restored.warnings == ()
        self.became(restored.version, self.snapshots[id_], critical=True)

    @rule(node=NODES, strategy=STRATEGIES, keep=st.sampled_from([None, 0, 1, 3, 7, "critical", "since"]), pick=PICKS)
    def compact(self, node: int, strategy: str, keep: int | str | None, pick: float) -> None:
        agents = self.nodes[node].state
        options: dict[str, Any] = {"strategy": strategy}
        newest = len(self.versions)
        if keep == "critical":
            options["critical_only"] = True
        elif keep == "since":
            options["keep_since"] = since = self.times[self.picked(pick) - 1]
            newest = max((version for version in self.left if self.times[version - 1] < since), default=0)
        elif keep is not None:
            options["keep_last"] = keep
            newest = max(0, newest - int(keep))
        planned = self.run(agents.compact("a", dry_run=True, **options))
        done = self.run(agents.compact("a", **options))
        assert planned[:5] == done[:5]
        assert done.through == newest
        history = self.run(agents.history("a"))
        left = {each.version for each in history}
        alone = {each.version for each in history if each.spans == 1}
        assert sum(each.spans for each in history) == max(left), "I4"
        assert self.left - left <= set(range(1, done.through + 1)), "what was to be kept is there"
        if done.version is not None:
            if done.snapshot is not None:
                last = max(version for version in self.left if version <= done.through)
                self.snapshots[done.snapshot] = self.versions[last - 1]
            self.became(done.version, self.now, critical=True)
        if strategy == "merge" or keep == "critical":
            assert self.critical <= alone, "critical events are kept one by one"
        assert left <= self.left
        self.left = left
        self.critical &= alone

    @rule(node=NODES)
    def reopen(self, node: int) -> None:
        self.run(self.nodes[node].close())
        self.nodes[node] = self.open()

    @rule(node=NODES)
    def forget(self, node: int) -> None:
        self.nodes[node].state.cache.clear()

    @rule(seconds=st.sampled_from([0.000001, 1.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # --- what is asked ---------------------------------------------------------------------------------------

    @rule(node=NODES)
    def look(self, node: int) -> None:
        state = self.run(self.nodes[node].state.get("a"))
        assert state.version == len(self.versions)
        assert same(state.raw(), self.now)
        assert state.total == checksum.checksum(self.now), "I13"

    @rule(node=NODES, pick=PICKS)
    def look_back(self, node: int, pick: float) -> None:
        version = self.picked(pick)
        agents = self.nodes[node].state
        if version in self.left:
            state = self.run(agents.at("a", version=version))
            assert (state.version, state.time_us) == (version, self.times[version - 1])
            assert same(state.raw(), self.versions[version - 1]), "I12"
            assert state.total == checksum.checksum(self.versions[version - 1]), "I13"
        else:
            with pytest.raises(NotFound, match="no longer has version"):
                self.run(agents.at("a", version=version))

    @rule(node=NODES, pick=PICKS, off=st.sampled_from([-1, 0, 1]))
    def look_at_a_time(self, node: int, pick: float, off: int) -> None:
        time = self.times[self.picked(pick) - 1] + off
        version = bisect.bisect_right(self.times, time)
        agents = self.nodes[node].state
        if version in self.left:
            assert self.run(agents.at("a", time=time)).version == version
        else:
            with pytest.raises(NotFound):
                self.run(agents.at("a", time=time))

    @rule(node=NODES, one=PICKS, other=PICKS)
    def compare(self, node: int, one: float, other: float) -> None:
        first, second = self.picked(one), self.picked(other)
        if {first, second} <= self.left:
            changes = self.run(self.nodes[node].state.diff("a", first, second))
            old, new = self.versions[first - 1], self.versions[second - 1]
            assert same(apply(old, difference(old, new)), new)
            assert bool(changes) == (not same(old, new))

    @rule(node=NODES, name=st.sampled_from(LISTS), last=st.sampled_from([0, 1, 3, 10, 100]), forget=st.booleans())
    def peek(self, node: int, name: str, last: int, forget: bool) -> None:
        path = pointer_to(name)
        items = lookup(self.now, parse_pointer(path, self.now))
        if items is MISSING:
            return
        agents = self.nodes[node].state
        if forget:
            agents.cache.clear()
        seen = self.run(agents.peek("a", path, last=last))
        assert same(seen.entries, items[max(0, len(items) - last) :])
        assert (seen.version, seen.length) == (len(self.versions), len(items))
        assert seen.checksum == checksum.text(checksum.checksum(self.now))
        _skeleton, long = folds.split(self.now)
        assert seen.elided == {path: len(value) for path, value in long.items()}

    @rule(node=NODES)
    def tell(self, node: int) -> None:
        """The events lead from nothing to the newest state, each from where the one before it ended."""
        events = self.run(self.nodes[node].state.events("a"))
        assert {event.version for event in events} == self.left
        assert {event.version for event in events if event.critical} >= self.critical
        version = 0
        for event in events:
            assert event.version - event.spans == version
            version = event.version
            assert event.checksum == checksum.text(checksum.checksum(self.versions[version - 1]))

    @invariant()
    def the_journal_ends_where_it_should(self) -> None:
        if self.versions:
            assert self.run(self.nodes[0].journal.version("agent/a")) == len(self.versions)

    def teardown(self) -> None:
        try:
            if self.versions:
                for node in (0, 1):
                    self.look(node)
                    report = self.run(self.nodes[node].verify())
                    assert report.ok, report.damage
                for version in self.left:
                    self.nodes[0].state.cache.clear()
                    state = self.run(self.nodes[0].state.at("a", version=version))
                    assert same(state.raw(), self.versions[version - 1])
        finally:
            for node in self.nodes:
                self.run(node.close())
            self.runner.close()
            shutil.rmtree(self.folder)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folds after a few events, lists that are long with a few items, segments of a few items."""
    monkeypatch.setattr(folds, "FOLD_EVERY", 5)
    monkeypatch.setattr(folds, "FOLD_COSTLY_EVERY", 5)
    monkeypatch.setattr(folds, "LONG_LIST", 4)
    monkeypatch.setattr(folds, "SEGMENT_ITEMS_MAX", 3)
    AgentMachine.parent = tmp_path


def budget(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(SHRINKING_S_MAX)
def test_an_agent_is_what_a_list_of_dictionaries_would_be() -> None:
    """I4, I12, I13, I14, I17, R-403, R-404, R-405, in the order Hypothesis likes best."""
    run_state_machine_as_test(AgentMachine, settings=budget(examples=90, steps=40))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_for_a_long_time() -> None:
    """The same, for as long as it takes to find what is rare."""
    run_state_machine_as_test(AgentMachine, settings=budget(examples=3_000, steps=80))
