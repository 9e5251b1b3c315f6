"""What may be removed to make room, by age, number and size; and what was removed so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from maos.model.events.records import CleanupEnded, RemovalStarted
from maos.tuples import NamedTuple

STREAM = "cleanup"
PERMANENT = "permanent"
"""The stream of runs that are never cleaned up. Of this journal, and none of the run: a bundle does not bring it."""
AGE, NUMBER, SIZE = "age", "number", "size"


class Rule(NamedTuple):
    """What is removed of the runs of one kind; 0 where there is no limit."""

    before_us: int = 0
    """Those that were completed before this."""
    keep_runs: int = 0
    """All but so many, the newest."""
    bytes_max: int = 0
    """The oldest, until the rest takes no more than this."""


class Old(NamedTuple):
    """A completed run that takes room."""

    id: str
    kind: str
    ended_us: int
    bytes: int


def choose(completed: Sequence[Old], rule_of: Callable[[str], Rule]) -> dict[str, str]:
    """Which runs are to give their room back, the oldest first, and why."""
    chosen: dict[str, str] = {}
    for kind in sorted({each.kind for each in completed}):
        rule = rule_of(kind)
        of_kind = [each for each in completed if each.kind == kind]
        newest_first = sorted(of_kind, key=lambda each: (each.ended_us, each.id), reverse=True)
        room = sum(each.bytes for each in newest_first)
        for number, each in reversed(list(enumerate(newest_first, 1))):
            if each.ended_us < rule.before_us:
                chosen[each.id] = AGE
            elif rule.keep_runs and number > rule.keep_runs:
                chosen[each.id] = NUMBER
            elif rule.bytes_max and room > rule.bytes_max:
                chosen[each.id] = SIZE
            else:
                break  # those that are left are newer, and fewer, and smaller together
            room -= each.bytes
    return chosen


class Statistics:
    """What was removed so far: a fold of the stream."""

    def __init__(self) -> None:
        self.ended_us = 0
        """When a cleanup last came to its end."""
        self._removed: dict[tuple[str, str], int] = {}

    @property
    def worktrees(self) -> int:
        """How many; one that was begun twice, because of a crash, counts once."""
        return len(self._removed)

    @property
    def bytes(self) -> int:
        """How much room they took."""
        return sum(self._removed.values())

    def apply(self, event: RemovalStarted | CleanupEnded) -> None:
        """Fold one more event in."""
        match event:
            case RemovalStarted():
                key = (event.run, event.agent)
                self._removed[key] = max(event.bytes, self._removed.get(key, 0))
            case CleanupEnded():
                for each in event.refused:
                    self._removed.pop(each, None)
                self.ended_us = event.at_us
