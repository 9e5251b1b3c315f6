"""The folder of a demonstration: everything of it is in there."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path
from typing import Any

import msgspec

from maos import app, settings
from maos.demo.sample import ROLES
from maos.errors import MaosError

COMMAND_S_MAX = 60.0
_NOT_PASSED_ON = ("MAOS_", "GIT_")
_GIT = ("git", "-c", "user.name=maos demo", "-c", "user.email=demo@localhost")


class DemoFailed(MaosError):
    """The demonstration could not be completed."""

    hint = "its folder has plan.toml, and a log of each engine; `maos agent logs AGENT` shows what an agent printed"


class DemoEngine(msgspec.Struct, forbid_unknown_fields=True):
    """A process that executed the run, and its exit status: below zero, the signal."""

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


class DemoFolder:
    """Where the parts of a demonstration are: sample repository, journal, MAOS_HOME, and the notes of the agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "till"
        self.database = folder / "maos.db"
        self.home = folder / "home"
        self.notes = folder / "notes"

    def open(self, *, create: bool = False) -> app.open:
        """Open the journal, with the files of agents in this folder."""
        home = settings.folder_of(str(self.database), {"MAOS_HOME": str(self.home)})
        return app.open(self.database, create=create, home=home)

    def notes_of(self, agent: str) -> list[dict[str, Any]]:
        """The notes that an agent has written so far."""
        try:
            text = (self.notes / f"{agent}.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split(b"\n")[:-1]]

    def noted(self, agent: str, key: str) -> list[Any]:
        """What an agent's notes have under a key."""
        return [note[key] for note in self.notes_of(agent) if key in note]

    def printed(self) -> int:
        """How many lines all agents have printed, by their own count."""
        return sum(len(self.noted(agent, "line")) for agent in ROLES)

    def environment(self) -> dict[str, str]:
        """Our environment, without variables that would lead a command to another database or repository."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED_ON)}
        return {**kept, "MAOS_HOME": str(self.home)}

    async def run(self, *command: str, cwd: Path | None = None) -> tuple[int, bytes]:
        """Run a command in the folder; return its exit status and its output."""
        process = await asyncio.create_subprocess_exec(
            *command, cwd=cwd or self.folder, env=self.environment(), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _none = await asyncio.wait_for(process.communicate(), COMMAND_S_MAX)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, output

    async def git(self, *arguments: str) -> bytes:
        """Run git in the sample repository; return its output."""
        status, output = await self.run(*_GIT, *arguments, cwd=self.repository)
        if status:
            raise DemoFailed(f"`git {arguments[0]}` exited with {status}: {output.decode(errors='replace').strip()}")
        return output

    def record(self) -> DemoRecord:
        """Read what the demonstration recorded about itself."""
        return msgspec.json.decode((self.folder / "demo.json").read_bytes(), type=DemoRecord)

    def keep(self, record: DemoRecord) -> None:
        """Write what the demonstration records about itself."""
        (self.folder / "demo.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))


def maos(*arguments: str) -> list[str]:
    """The command `maos` with arguments, run by this Python."""
    return [sys.executable, "-P", "-m", "maos", *arguments]
