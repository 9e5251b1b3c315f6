"""Going back, forking, comparing and joining at the command line, in processes of its own."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.runs.commands import Commands, until
from tests.travel.conftest import files_of, git, on_disk


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[Commands]:
    made = Commands(tmp_path / "there")
    await made.prepare()
    yield made
    await made.close()


def tasks(folder: Path) -> list[dict[str, Any]]:
    """One that is quick, and one that goes on as long as nobody says so."""
    waits = (
        f"echo one > w.txt; touch {folder}/one; until test -e {folder}/on; do sleep 0.02; done; cat {folder}/on > w.txt"
    )
    return [
        {"name": "a", "command": ["sh", "-c", "echo a > a.txt; echo done"]},
        {"name": "w", "command": ["sh", "-c", f"{waits}; cat w.txt"], "needs": ["a"]},
    ]


async def begin(commands: Commands, folder: Path) -> tuple[asyncio.subprocess.Process, str]:
    """A run, until its second agent is at work; with a checkpoint of then."""
    engine = await commands.start("run", "-f", commands.plan(tasks(folder)), "--auto", "--kind", "shell")

    async def reached() -> bool:
        return (folder / "one").exists()

    await until(reached)
    [run] = await commands.runs()
    await told(commands, "checkpoint", run.id, "--name", "mark")

    async def saved() -> bool:
        attempt = await commands.attempt("w")
        return attempt is not None and "mark" in {each.name for each in attempt.checkpoints}

    await until(saved)
    return engine, run.id


async def end(commands: Commands, folder: Path, id: str, word: str) -> None:
    """Go on with a run until it has ended."""
    (folder / "on").write_text(f"{word}\n")
    code, out, err = await commands.call("resume", id)
    assert code == 0, err + out


async def told(commands: Commands, *args: str) -> dict[str, Any]:
    """The document of a command that goes well."""
    code, out, err = await commands.call(*args, "--json")
    assert code == 0, err + out
    found: dict[str, Any] = json.loads(out)
    return found


async def refused(commands: Commands, *args: str) -> tuple[int, str]:
    code, _out, err = await commands.call(*args)
    return code, err


@pytest.mark.timeout(120)
async def test_a_person_goes_back_forks_compares_and_joins(tmp_path: Path, commands: Commands) -> None:
    """R-702, R-703: the engine is killed, its agent lives on; it is ended, and the run goes back with its files."""
    engine, id = await begin(commands, tmp_path)
    engine.send_signal(signal.SIGKILL)
    await engine.wait()
    assert not commands.nobody_is_left()
    code, err = await refused(commands, "rollback", id, "--to", "mark")
    assert (code, "can be asked" in err) == (2, True)
    plan = await told(commands, "rollback", id, "--to", "mark", "--dry-run")
    [a, w] = plan["steps"]
    assert (a["what"], w["what"], w["checkpoint"], w["agent"]) == ("kept", "continues", "mark", f"{id}.w.b1")
    assert not commands.nobody_is_left(), "a dry run stops nobody"
    done = await told(commands, "rollback", id, "--to", "mark", "--yes")
    assert (done["dry_run"], done["status"], done["stopped"]) == (False, "paused", [f"{id}.w"])
    assert commands.nobody_is_left()
    async with commands.look() as m:
        assert on_disk(Path((await m.agents.get(f"{id}.w.b1")).order["cwd"]))["w.txt"] == "one\n"

    fork = await told(commands, "fork", id, "--id", "r-other")
    assert (fork["run"], fork["point"]["run"]) == ("r-other", id)
    await end(commands, tmp_path, id, "ours")
    await end(commands, tmp_path, "r-other", "theirs")
    different = await told(commands, "diff", id, "r-other", "--patch")
    assert [(each["name"], each["said_before"], each["said_after"]) for each in different["tasks"]] == [
        ("w", "ours", "theirs")
    ]
    assert [each["path"] for each in different["files"]] == ["w.txt"]
    assert "-ours\n+theirs\n" in different["patch"]

    code, out, _err = await commands.call("join", id, "r-other", "--json")
    joined = json.loads(out)
    assert (code, joined["joined"], [each["id"] for each in joined["conflicts"]]) == (4, False, ["task/w", "files"])
    code, out, _err = await commands.call("questions")
    assert "both have done w, with different results" in out
    for question in joined["questions"]:
        await told(commands, "answer", question, "theirs")
    joined = await told(commands, "join", id, "r-other")
    assert joined["joined"]
    [run] = [each for each in await commands.runs() if each.id == id]
    assert files_of(commands.folder, run.commit)["w.txt"] == "theirs\n"
    undone = await told(commands, "rollback", id, "--to", joined["undo"], "--yes")
    [run] = [each for each in await commands.runs() if each.id == id]
    assert (run.status, run.tasks["w"].result) == ("completed", "ours")
    assert files_of(commands.folder, run.commit)["w.txt"] == "ours\n"
    assert git(commands.folder, "status", "--porcelain") == "", "nothing of the person's own is touched"

    then = await told(commands, "status", id, "--at", "mark", "--tasks", "--messages")
    assert (then["status"], [each["status"] for each in then["tasks"]]) == ("running", ["done", "running"])
    versions = await told(commands, "orchestration", "checkpoints", id, "--all")
    what = [each["what"] for each in versions["versions"]]
    assert [each for each in what if each.startswith(("rolled back", "joined"))] == [
        f"rolled back to version {plan['point']['version']}", "joined with r-other",
        f"rolled back to version {undone['point']['version']}",
    ]  # fmt: skip
    code, err = await refused(commands, "rollback", id, "--to", "nowhere", "--yes")
    assert (code, "has no point in time 'nowhere'" in err) == (2, True)
    code, err = await refused(commands, "rollback", id, "--to", "999", "--yes")
    assert (code, "has no version 999" in err) == (3, True)


@pytest.mark.timeout(120)
async def test_a_run_that_is_carried_out_is_paused_before_it_goes_back(tmp_path: Path, commands: Commands) -> None:
    """I14: by whichever process carries it out, which then ends."""
    engine, id = await begin(commands, tmp_path)
    code, out, err = await commands.call("rollback", id, "--yes")
    assert code == 0, err
    assert "with the state of checkpoint mark" in out
    assert f"resume with: maos resume {id}" in out
    async with asyncio.timeout(60):
        assert await engine.wait() != -signal.SIGKILL
    assert commands.nobody_is_left()
    await end(commands, tmp_path, id, "two")
    [run] = await commands.runs()
    assert (run.status, run.tasks["w"].result) == ("completed", "two")
    in_place = commands.plan([{"name": "x", "command": ["true"]}])
    await commands.call("run", "-f", in_place, "--auto", "--kind", "shell", "--in-place")
    [other] = [each.id for each in await commands.runs() if each.id != id]
    code, err = await refused(commands, "rollback", other, "--to", "3", "--yes")
    assert (code, "its files cannot be rolled back" in err, "--without-files" in err) == (2, True, True)
    done = await told(commands, "rollback", other, "--to", "3", "--yes", "--without-files")
    assert "files stay as they are" in done["notes"][0]


@pytest.mark.timeout(120)
async def test_a_person_moves_everything_and_says_where_it_is(tmp_path: Path, commands: Commands) -> None:
    """R-203: `maos resume` names what is gone and how to go on; --cwd says where it is, and the run is finished."""
    engine, id = await begin(commands, tmp_path)
    engine.send_signal(signal.SIGKILL)
    await engine.wait()
    commands.kill_everybody()
    old = commands.folder
    commands.move(tmp_path / "elsewhere" / "again")
    code, err = await refused(commands, "resume", id)
    assert (code, f"{old}" in err, f"maos resume {id} --cwd NEW" in err) == (3, True, True)
    code, err = await refused(commands, "resume", id, "--cwd", str(tmp_path))
    assert (code, "is not in a git repository" in err) == (2, True)
    code, out, err = await commands.call("resume", id, "--cwd", ".", "--dry-run")
    assert (code, f"would work in {commands.folder}, instead of {old}" in out) == (0, True), err
    (tmp_path / "on").write_text("two\n")
    lines = await commands.run("resume", id, "--cwd", ".")
    [moved] = [each for each in lines if each["kind"] == "moved"]
    assert (moved["changed"], moved["found"], moved["anew"]) == (True, [id, f"{id}.w"], [])
    [run] = await commands.runs()
    assert (run.status, run.folder, run.tasks["w"].result) == ("completed", str(commands.folder), "two")
    assert files_of(commands.folder, run.commit)["w.txt"] == "two\n"
    versions = await told(commands, "orchestration", "checkpoints", id, "--all")
    assert f"moved to {commands.folder}" in [each["what"] for each in versions["versions"]]
    assert (await told(commands, "doctor"))["ok"]


@pytest.mark.timeout(120)
async def test_a_permanent_run_is_never_cleaned_up(commands: Commands) -> None:
    """R-704: by no age and by no policy, until a person takes that back; lists and pages show it."""
    plan = commands.plan([{"name": "a", "command": ["sh", "-c", "echo a > a.txt"]}])
    ids = []
    for _ in range(2):
        await commands.call("run", "-f", plan, "--auto", "--kind", "shell")
        [new] = [each.id for each in await commands.runs() if each.id not in ids]
        ids.append(new)
    kept, other = ids
    done = await told(commands, "admin", "pin", kept, "--why", "shipped in March")
    assert done == {"id": kept, "permanent": True, "why": "shipped in March", "changed": True}
    assert not (await told(commands, "admin", "pin", kept, "--why", "shipped in March"))["changed"]
    listed = {each["id"]: each["permanent"] for each in (await told(commands, "ps"))["runs"]}
    assert listed == {kept: True, other: False}
    _code, out, _err = await commands.call("status", kept)
    assert "shipped in March" in out
    _code, out, _err = await commands.call("ps")
    assert out.count("pinned") == 1
    cleaned = await told(commands, "admin", "cleanup", "--older-than", "0")
    assert {each["run"] for each in cleaned["removed"]} == {other}
    tree = commands.home
    assert [path.name for path in tree.glob("*/workspaces/*.a")] == [f"{kept}.a"]
    undone = await told(commands, "admin", "pin", kept, "--undo")
    assert (undone["permanent"], undone["changed"]) == (False, True)
    code, out, _err = await commands.call("admin", "pin", kept, "--undo")
    assert (code, "as before" in out) == (0, True)
    cleaned = await told(commands, "admin", "cleanup", "--older-than", "0")
    assert {each["run"] for each in cleaned["removed"]} == {kept}
