"""A machine is lost in the middle of a run; another one restores the backup and finishes the run with all files."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from maos.model.status import TaskStatus
from maos_testing.object_storage import ObjectStorage
from tests.runs.commands import WAIT_S_MAX, Commands, until

GUIDE = Path(__file__).parents[2] / "docs/howto/back-up-and-restore.md"


def tasks(go: Path) -> list[Mapping[str, Any]]:
    """Three tasks that build on one another; the second does not end before there is a file."""
    return [
        {"name": "one", "command": ["sh", "-c", "echo one > one.txt"]},
        {
            "name": "two",
            "command": ["sh", "-c", f"cat one.txt; echo two > two.txt; test -e {go} || sleep 600"],
            "needs": ["one"],
        },
        {"name": "three", "command": ["sh", "-c", "cat one.txt two.txt > three.txt"], "needs": ["two"]},
    ]


def told(heading: str) -> list[str]:
    """The commands that the guide tells its reader to type below a heading."""
    text = GUIDE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


async def typed(commands: Commands, folder: Path, line: str) -> tuple[int, str, str]:
    """What a person types into a shell there: its exit code, and what it printed."""
    environment = commands._environment(0)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    process = await asyncio.create_subprocess_shell(
        line, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S_MAX):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.timeout(300)
async def test_a_run_continues_on_another_machine_after_the_first_was_lost(
    bucket: str, storage: ObjectStorage, tmp_path: Path
) -> None:
    """R-701, I34: database, worktrees and home are gone; the events and commits of the backup are enough.

    On the other machine a person types what the guide says, word for word.
    """
    first = Commands(tmp_path / "first", **storage.variables)
    await first.prepare()
    second = Commands(tmp_path / "second", **storage.variables)
    second.root.mkdir()
    origin = tmp_path / "origin" / second.folder.name  # what the team has pushed
    subprocess.run(["git", "clone", "--quiet", "--bare", str(first.folder), str(origin)], check=True)
    try:
        await first.start("run", "-f", first.plan(tasks(tmp_path / "go")), "--auto", "--json")

        async def is_in_the_middle() -> bool:
            runs = await first.runs()
            return bool(runs) and runs[0].tasks["one"].status == TaskStatus.DONE and await has_saved(first)

        await until(lambda: has_database(first))
        await first.start("backup", "start", bucket, "--json")
        await until(is_in_the_middle)

        async def is_shipped() -> bool:
            code, out, _err = await first.call("backup", "status", bucket, "--json")
            return code == 0 and json.loads(out)["missing"] == 0

        await until(is_shipped)
        run = (await first.runs())[0]
    finally:
        await first.close()
    shutil.rmtree(first.root)

    def filled(command: str) -> str:
        for example, here in (
            ("git@example.org:team/project && cd project", f"{origin} && cd {second.folder.name}"),
            ("s3://team-backups/maos", bucket), ("r-1a2b3c", run.id), ("admin trust", "admin trust --yes"),
        ):  # fmt: skip
            command = command.replace(example, here)
        return command

    clone, restore, trust, resume, merge = map(filled, told("Finish a run on another machine"))
    try:
        (tmp_path / "go").touch()
        code, out, err = await typed(second, second.root, f"{clone} && {restore}")
        assert code == 0, err
        assert "has the commits of" in out
        code, _out, err = await typed(second, second.folder, resume)
        assert code != 0, "nothing is executed before a person has agreed"
        assert "admin trust" in err
        for line in (trust, resume, merge):
            code, out, err = await typed(second, second.folder, line)
            assert code == 0, f"{line}: {err}{out}"
        [ended] = await second.runs()
        assert {task.status for task in ended.tasks.values()} == {TaskStatus.DONE}
        assert (second.folder / "three.txt").read_text() == "one\ntwo\n"
    finally:
        await second.close()


async def has_database(commands: Commands) -> bool:
    await asyncio.sleep(0)
    return bool(await commands.runs())


async def has_saved(commands: Commands) -> bool:
    """Whether the second task's agent is at work on the files of the first one."""
    attempt = await commands.attempt("two")
    return attempt is not None and attempt.is_open and bool(attempt.pid)
