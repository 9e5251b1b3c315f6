"""`maos export` and `maos import` as a person meets them."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal, terminal  # noqa: F401
from tests.runs.commands import Commands
from tests.transfer.test_resuming import OUTSIDE
from tests.workspaces.repositories import git

TASKS = [
    {"name": "one", "command": ["sh", "-c", "echo one > one.txt; echo found: a leak"]},
    {"name": "two", "command": ["sh", "-c", f"echo two > two.txt; test -e {OUTSIDE}/go"], "needs": ["one"]},
]


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[list[Commands]]:
    made = [Commands(tmp_path / name) for name in ("here", "there")]
    for each in made:
        await each.prepare()
        (each.root / "user").mkdir()
    yield made
    for each in made:
        await each.close()


async def failed_run(commands: Commands) -> str:
    """A run of which one task is done."""
    code, _out, err = await commands.call("run", "-f", commands.plan(TASKS), "--auto", "--json")
    assert code == 1, err
    return (await commands.runs())[0].id


async def test_a_run_moves_from_one_machine_to_another(machines: list[Commands], tmp_path: Path) -> None:
    """R-702, R-901: shown, imported, agreed to, carried out, merged; and everything says what comes next."""
    here, there = machines
    id = await failed_run(here)
    code, out, _err = await here.call("export", id[:4])
    path = here.folder / f"{id}.maos"
    assert (code, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)
    assert f"{id}: " in out
    assert f"→ {id}.maos" in out
    code, out, _err = await there.call("import", str(path), "--dry-run")
    assert code == 0
    assert f"{id}  run, failed, 1 of 2 tasks done: do it  would be imported" in out
    assert f"    attempt/{id}.two.1 (" in out
    assert f"two  sh -c 'echo two > two.txt; test -e {OUTSIDE}/go'  (shell)" in out
    assert not (there.folder / "maos.db").exists()
    code, out, _err = await there.call("import", str(path))
    assert code == 0
    assert f"`maos resume {id}` resumes it, after asking you to agree" in out
    code, out, _err = await there.call("import", str(path))
    assert "already here" in out
    code, out, _err = await there.call("status", id)
    assert "1 of 2 tasks done" in out
    [ahead] = await there.run("resume", id, "--dry-run")
    assert (ahead["agreed"], ahead["starts"][0]["command"][0]) == (False, "sh")
    for words in (["resume", id], ["resume", id, "--json"], ["agent", "resume", f"{id}.two"]):
        code, _out, err = await there.call(*words)
        assert code == 2
        assert "no person has agreed to what it would do here" in err
    (there.root / "go").touch()
    documents = await there.run("resume", id, "--trust")
    assert (documents[-1]["status"], documents[-1]["done"]) == ("completed", 2)
    code, _out, err = await there.call("merge", id)
    assert code == 0, err
    assert (there.folder / "two.txt").read_text() == "two\n"
    assert (there.folder / "one.txt").exists()
    code, out, _err = await there.call("state", "verify")
    assert code == 0


async def test_documents_for_programs(machines: list[Commands]) -> None:
    here, there = machines
    id = await failed_run(here)
    [made] = [json.loads((await here.call("export", id, "-o", "run.maos", "--json"))[1])]
    assert (made["file"], made["id"], made["kind"], made["status"]) == ("run.maos", id, "run", "failed")
    assert made["bytes"] == (here.folder / "run.maos").stat().st_size
    code, out, err = await there.call("import", str(here.folder / "run.maos"), "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert (shown["what"], shown["sha256"], shown["refs"] != {}) == ("new", made["sha256"], True)
    assert (shown["streams"][f"run/{id}"], shown["events"]) == (8, made["events"])
    assert [each["task"] for each in shown["starts"]] == ["two"]


def bare(commands: Commands) -> dict[str, str]:
    """An environment in which nothing is of this machine."""
    return {"PATH": os.environ["PATH"], "HOME": str(commands.root / "user"), "MAOS_HOME": str(commands.home),
            "GIT_CONFIG_GLOBAL": os.devnull, "LANG": "C.UTF-8"}  # fmt: skip


async def test_from_a_pipe_into_a_pipe(machines: list[Commands]) -> None:
    here, there = machines
    id = await failed_run(here)
    for words in (["export", id, "-o", "-"], ["export", id, "--to-stdout"]):
        sent = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "maos", *words], cwd=here.folder, env=bare(here), capture_output=True
        )
        assert sent.returncode == 0, sent.stderr
        taken = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "maos", "import", "-"], cwd=there.folder, env=bare(there),
            input=sent.stdout, capture_output=True,
        )  # fmt: skip
        assert taken.returncode == 0, taken.stderr
        assert id.encode() in taken.stdout
    cut = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "maos", "import", "-"], cwd=there.folder, env=bare(there),
        input=sent.stdout[:-1], capture_output=True,
    )  # fmt: skip
    assert cut.returncode == 1
    assert b"cannot be imported: it ends too early" in cut.stderr


async def test_what_cannot_be_done_says_what_to_do(machines: list[Commands]) -> None:
    here, there = machines
    id = await failed_run(here)
    (here.folder / "taken.maos").write_text("mine")
    for words, code, said in (
        (["export", "r-nothing"], 3, "there is no run or workflow run 'r-nothing'"),
        (["export", id, "-o", "taken.maos"], 2, "exists already"),
        (["export", id, "-o", "nowhere/run.maos"], 2, "no folder"),
        (["export", id, "-o", "."], 2, "is a folder"),
        (["export", id, "-o", "-", "--json"], 2, "standard output is for the bundle"),
        (["import", "nothing.maos"], 3, "there is no file"),
    ):
        got, _out, err = await here.call(*words)
        assert (got, said in err, "hint: " in err) == (code, True, True), err
    assert (here.folder / "taken.maos").read_text() == "mine"
    await here.call("export", id, "-o", "run.maos")
    got, _out, err = await there.call("import", str(here.folder / "run.maos"), "--cwd", str(there.root))
    assert (got, "--cwd REPOSITORY" in err) == (2, True)
    got, _out, err = await there.call("import", str(here.folder / "run.maos"), "--orchestration", "x")
    assert (got, "a bundle has one run" in err) == (2, True)
    assert not (there.folder / "maos.db").exists() or await there.runs() == []


async def test_a_person_is_shown_what_would_be_done_and_asked_once(
    machines: list[Commands],
    monkeypatch: pytest.MonkeyPatch,
    terminal: Callable[..., Terminal],  # noqa: F811
) -> None:
    here, there = machines
    id = await failed_run(here)
    await here.call("export", id, "-o", "run.maos")
    await there.call("import", str(here.folder / "run.maos"))
    monkeypatch.chdir(there.folder)
    for name, value in bare(there).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MAOS_DB", raising=False)

    def refuse() -> None:
        shown = terminal("resume", id)
        shown.wait_for("Do all of this, in")
        assert "echo two > two.txt; test -e" in shown.text
        shown.type("n\n")
        assert shown.end() == 1

    def agree() -> int:
        shown = terminal("resume", id)
        shown.wait_for("Do all of this, in")
        shown.type("y\n")
        return shown.end()

    await asyncio.to_thread(refuse)
    assert not (there.home / "workspaces").exists()
    assert await asyncio.to_thread(agree) == 1, "it fails once more: nobody has made the file"
    (there.root / "go").touch()
    documents = await there.run("resume", id)
    assert documents[-1]["status"] == "completed", "nobody is asked a second time"
    assert git(there.folder, "status", "--porcelain") == ""
