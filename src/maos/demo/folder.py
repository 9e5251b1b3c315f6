"""The folder of a demonstration: where everything of it is, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from maos import settings
from maos.demo import notes
from maos.demo.sample import ROLES

_NOT_PASSED_ON = ("MAOS_", "GIT_")


class DemoEngine(msgspec.Struct, forbid_unknown_fields=True):
    """A process that carried out the run, and how it ended: below zero, the signal."""

    pid: int
    status: int


class DemoRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the demonstration itself did and saw, for the proof."""

    run: str
    base: str
    """The commit that the agents began with."""
    engines: list[DemoEngine]
    lines_at_kill: int
    """How many lines the agents had printed by then, by their own count."""
    lines_at_resume: int


class DemoFolder(NamedTuple):
    """Where the parts of a demonstration are."""

    folder: Path

    @property
    def repository(self) -> Path:
        """The sample repository."""
        return self.folder / "till"

    @property
    def database(self) -> Path:
        """The journal."""
        return self.folder / "maos.db"

    @property
    def home(self) -> Path:
        """What MAOS_HOME is: worktrees, and the files of running agents."""
        return self.folder / "home"

    @property
    def plan(self) -> Path:
        """The plan file."""
        return self.folder / "plan.toml"

    @property
    def notes(self) -> Path:
        """What the agents write down about themselves."""
        return self.folder / "notes"

    @property
    def holders(self) -> Path:
        """Where the processes are told that hold agents."""
        return settings.folder_of(str(self.database), {"MAOS_HOME": str(self.home)}) / "holders"

    def notes_of(self, agent: str) -> list[dict[str, object]]:
        """What an agent has written down so far."""
        return notes.read(self.notes / f"{agent}.jsonl")

    def printed(self) -> dict[str, int]:
        """How many lines each agent has printed, by its own count."""
        return {name: sum("line" in note for note in self.notes_of(name)) for name in ROLES}

    def environment(self) -> dict[str, str]:
        """Ours, without what would lead a command to another database or repository."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        return {**kept, "MAOS_HOME": str(self.home)}

    def record(self) -> DemoRecord:
        """What the demonstration wrote down about itself."""
        return msgspec.json.decode((self.folder / "demo.json").read_bytes(), type=DemoRecord)

    def keep(self, record: DemoRecord) -> None:
        """Write it down."""
        text = json.dumps(msgspec.to_builtins(record), indent=2)
        (self.folder / "demo.json").write_text(text + "\n", encoding="utf-8")


def command(*arguments: str) -> list[str]:
    """`maos` with arguments, as the same program that we are."""
    return [sys.executable, "-P", "-m", "maos", *arguments]
