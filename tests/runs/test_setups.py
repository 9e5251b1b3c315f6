"""Workspaces that are prepared before an agent starts: setup commands, copied files, variables."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.live import LiveAttempt
from maos.engine.setups import SetupFailed, Setups
from maos.errors import InvalidInput
from maos.model.run import Run
from maos.workspaces import products
from maos_testing.crash import Life, crash_loop
from tests.engine.conftest import processes_below
from tests.runs import setup_life
from tests.workspaces.repositories import commit, git, repository, write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with ignored files, and a file that counts how often the setup ran."""
    place = repository(tmp_path / "project", {"a.py": "1\n", ".gitignore": "made\nlocal.cfg\n.env\n", "deps.lock": "1"})
    write(place / "local.cfg", "1\n")
    write(place / ".env", "NAME=1\n")
    return place


def counting(project: Path, more: str = "mkdir -p made; echo made > made/it") -> list[str]:
    """A setup command that counts its runs."""
    return ["sh", "-c", f"echo x >> {project.parent}/setups; {more}"]


def setups(project: Path) -> int:
    """How often the setup ran."""
    found = project.parent / "setups"
    return len(found.read_text().split()) if found.exists() else 0


def plan(*commands: str, **more: object) -> dict[str, object]:
    """A plan of tasks that need nothing of each other."""
    tasks = [{"name": f"t{number}", "command": ["sh", "-c", each]} for number, each in enumerate(commands, 1)]
    return {"tasks": tasks, **more}


async def execute(m: Maos, given: dict[str, object], project: Path, **options: object) -> Run:
    run = await m.runs.start(given, folder=project, options=options)
    return await m.runs.execute(run.id)


async def test_a_setup_runs_once_for_all_tasks_attempts_and_runs(m: Maos, project: Path) -> None:
    given = plan(*["cat made/it && echo $PWD > made/mine && date > out.$PPID.txt"] * 5, setup=[counting(project)])
    one = await execute(m, given, project)
    assert one.status == "completed", one.tasks
    two = await execute(m, given, project, concurrency=1)
    assert two.status == "completed"
    assert setups(project) == 1
    assert [each async for each in m.agents.names(f"{one.id}.setup-")] != []
    assert [each async for each in m.agents.names(f"{two.id}.setup-")] == []
    trees = [Path((await m.agents.get(one.agent(name))).workspace["tree"]) for name in one.tasks]
    assert len({(each / "made" / "mine").read_text() for each in trees}) == 5, "the workspaces share files"


async def test_a_setup_runs_again_when_something_that_it_depends_on_has_changed(m: Maos, project: Path) -> None:
    given = plan("cat made/it", setup=[counting(project)], copy_ignored=["local.cfg"])
    for path, content, times in (
        ("a.py", "2", 1), ("deps.lock", "2", 2), ("made/other", "3", 2), ("local.cfg", "2222", 3), ("sub/x.c", "1", 4),
    ):  # fmt: skip
        assert (await execute(m, given, project)).status == "completed"
        write(project / path, content)
        commit(project, path)
        assert (await execute(m, given, project)).status == "completed"
        assert setups(project) == times, path
    narrow = {**given, "setup_inputs": ["docs/*"]}
    assert (await execute(m, narrow, project)).status == "completed"
    write(project / "deps.lock", "3")
    commit(project, "deps.lock")
    assert (await execute(m, narrow, project)).status == "completed"
    assert setups(project) == 5


async def test_a_failed_setup_fails_the_task_with_the_command_the_code_and_the_output(m: Maos, project: Path) -> None:
    broken = ["sh", "-c", "echo no such package; exit 3"]
    run = await execute(m, plan("true", "true", setup=[counting(project), broken, ["echo", "never"]]), project)
    assert run.status == "failed"
    for task in run.tasks.values():
        assert task.failure == "setup_failed"
        assert "`sh -c 'echo no such package; exit 3'` exited with code 3\nno such package" in task.why
        assert f"maos agent logs {run.id}.setup-" in task.why
    assert setups(project) == 1, "tasks that wait for a setup fail with it"
    again = await m.runs.resume(run.id)
    assert again is not None
    assert (await m.runs.execute(run.id)).status == "failed"
    assert setups(project) == 2, "nothing of a failed setup is used"


async def test_paths_are_those_of_the_workspace_and_tracked_files_stay_as_they_are(m: Maos, project: Path) -> None:
    makes = (
        "mkdir made; printf '#!/bin/sh\\n# %s\\n' $PWD/made/env > made/tool; chmod 755 made/tool;"
        "ln -s $PWD/made/tool made/link; ln -s tool made/near; mkdir made/empty; echo 2 > a.py; echo x > untracked.txt"
    )
    checks = (
        "grep -q $PWD/made/env made/tool && ./made/tool && test $(readlink made/link) = $PWD/made/tool"
        " && test $(readlink made/near) = tool && test -d made/empty && test -e untracked.txt && cat a.py"
    )
    run = await execute(m, plan(checks, "echo 3 > b.py", setup=[counting(project, makes)]), project)
    assert run.status == "completed", run.tasks
    assert run.tasks["t1"].result.strip() == "1"
    assert git(project, "diff", "--name-only", "HEAD", run.commit) == "b.py", "products are no work of an agent"
    notes = (await m.agents.get(run.agent("t1"))).workspace["notes"]
    assert any("a.py" in each for each in notes)


async def test_a_program_that_names_its_folder_is_made_in_each_workspace(m: Maos, project: Path) -> None:
    makes = "mkdir made; printf 'x\\0%s\\0' $PWD > made/program; echo 2 > a.py"
    checks = "tr '\\0' '\\n' < made/program | grep -qx $PWD && cat a.py"
    run = await execute(m, plan(checks, checks, setup=[counting(project, makes)]), project)
    assert run.status == "completed", run.tasks
    assert setups(project) == 3
    assert run.tasks["t1"].result.strip() == "1"
    notes = (await m.agents.get(run.agent("t1"))).workspace["notes"]
    assert any("made/program contains the path" in each for each in notes)
    for last in "ab":  # names of agents that differ at their end alone
        setup = [counting(project, makes)]
        running = await m.agents.start(
            kind="shell", argv=["sh", "-c", checks], cwd=project, name=f"{'x' * 60}-{last}", setup=setup
        )
        assert (await running.wait()).status == "done"


async def test_ignored_files_are_copied_when_they_are_named(m: Maos, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside", "secret")
    (project / "made").mkdir()
    (project / "made" / "leads-out").symlink_to(tmp_path / "outside")
    run = await execute(m, plan("ls -A; cat local.cfg"), project)
    assert any("agents do not see ignored files: .env, local.cfg, made/" in each for each in run.options["notes"])
    assert run.tasks["t1"].failure == "failed"
    run = await execute(m, plan("cat local.cfg; echo 2 > local.cfg; ls -A", copy_ignored=["*.cfg", "made"]), project)
    assert run.status == "completed"
    tree = Path((await m.agents.get(run.agent("t1"))).workspace["tree"])
    assert sorted(each.name for each in tree.iterdir()) == [
        ".git", ".gitignore", "a.py", "deps.lock", "local.cfg", "made",
    ]  # fmt: skip
    assert (tree / "made" / "leads-out").is_symlink()
    assert (project / "local.cfg").read_text() == "1\n", "the person's own file is never the same file"


async def test_uncommitted_changes_are_included_when_they_are_wanted(m: Maos, project: Path) -> None:
    write(project / "a.py", "2\n")
    write(project / "new.py", "new\n")
    write(project / "staged.txt", "x\n")
    git(project, "add", "staged.txt")
    for wanted, shown in ((False, "1"), (True, "2 new x"), (["*.py"], "2 new"), (["new.py"], "1 new")):
        run = await execute(
            m, plan("cat a.py $(ls new.py staged.txt 2>/dev/null) | xargs"), project, include_uncommitted=wanted
        )
        assert run.tasks["t1"].result.strip() == shown, wanted


async def test_variables_come_from_all_places_and_secrets_by_name_only(
    tmp_path: Path, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_LOGIN", "x9-Quite-Secret")
    monkeypatch.setenv("NOT_NAMED", "1")
    given = plan(
        "env", env={"ONE": "plan", "TWO": "plan", "DEPLOY_LOGIN": None}, setup=[["sh", "-c", "echo $ONE $TWO"]]
    )
    given["tasks"][0] |= {"env": {"TWO": "task 2"}, "gates": [{"command": ["sh", "-c", "test $ONE = option"]}]}  # type: ignore[index]
    async with maos.open(tmp_path / "maos.db", home=home) as m:
        run = await execute(m, given, project, env=["ONE=option"])
        assert run.status == "completed", run.tasks
        recorded = (await m.agents.get(run.agent("t1"))).order
        assert recorded["env"] == ["DEPLOY_LOGIN"]
        assert recorded["values"] == {"ONE": "option", "TWO": "task 2"}
    content = b"".join(path.read_bytes() for path in tmp_path.glob("maos.db*") if path.is_file())
    assert b"x9-Quite-Secret" not in content
    assert b"NOT_NAMED" not in content


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"env": {"API_KEY": "abcDEF123456"}}, "API_KEY"),
        ({"env": ["DATABASE_URL=postgres://me:s3cret-Pass@host/db"]}, "DATABASE_URL"),
        ({"env": {"A-B": "1"}}, "A-B"),
        ({"env": {"MAOS_HOME": "/x"}}, "MAOS_HOME"),
        ({"env": ["NOT_SET_ANYWHERE"]}, "NOT_SET_ANYWHERE"),
        ({"copy_ignored": ["../x"]}, "../x"),
        ({"copy_ignored": ["/etc/passwd"]}, "/etc/passwd"),
        ({"setup": [[]]}, "empty"),
        ({"project_settings": ["everything"]}, "everything"),
    ],
)
async def test_what_cannot_be_is_refused(m: Maos, project: Path, given: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        await m.agents.start(argv=["true"], cwd=project, **given)  # type: ignore[arg-type]


async def test_a_lone_agent_is_prepared_too_and_again_when_its_files_were_lost(m: Maos, project: Path) -> None:
    terms = {"setup": [counting(project)], "copy_ignored": [".env"], "env": {"A": "b"}}
    running = await m.agents.start(
        argv=["sh", "-c", "cat made/it .env; test $A = b"], name="lone", cwd=project, **terms
    )
    assert (await running.wait()).status == "done"
    shutil.rmtree((await m.agents.get("lone")).workspace["tree"])
    running = await m.agents.resume("lone")
    assert (await running.wait()).status == "done"
    assert setups(project) == 1
    with pytest.raises(SetupFailed, match="exited with code 1"):
        await m.agents.start(argv=["true"], cwd=project, setup=[["false"]])


@pytest.mark.parametrize("late_s", [0, 0.5])
async def test_a_paused_run_stops_its_setup_and_starts_it_anew(
    m: Maos, project: Path, late_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose commands have begun a moment before the engine knows it."""
    start = Setups._start

    async def start_late(*given: Any) -> LiveAttempt:
        running = await start(*given)
        await asyncio.sleep(late_s)
        return running

    monkeypatch.setattr(Setups, "_start", start_late)
    go = project.parent / "go"
    makes = f"mkdir made; while ! test -e {go}; do sleep 0.02; done; echo made > made/it"
    run = await m.runs.start(plan("cat made/it", "cat made/it", setup=[counting(project, makes)]), folder=project)
    executing = asyncio.create_task(m.runs.execute(run.id))
    while not setups(project):
        await asyncio.sleep(0.01)
    m.runs.pause_here(run.id, "for lunch")
    assert (await executing).status == "paused"
    assert not [each async for each in m.agents.all() if each.is_open]
    go.touch()
    await m.runs.resume(run.id)
    assert (await m.runs.execute(run.id)).status == "completed"
    assert setups(project) == 2


async def test_templates_that_are_not_used_any_more_are_removed(m: Maos, project: Path) -> None:
    assert (await execute(m, plan("cat made/it", setup=[counting(project)]), project)).status == "completed"
    [template] = [each for each in (m.agents.folder / "templates").iterdir() if each.is_dir() and each.name[0] != "."]
    setups_of = m.agents.setups
    assert await setups_of.remove_unused(0) == []
    [(found, size)] = await setups_of.remove_unused(1 << 60, dry_run=True)
    assert found == template
    assert size > 0
    assert template.is_dir()
    await setups_of.remove_unused(1 << 60)
    assert not template.exists()
    assert template.name not in git(project, "worktree", "list") + git(project, "for-each-ref")
    assert (await execute(m, plan("cat made/it", setup=[counting(project)]), project)).status == "completed"
    assert setups(project) == 2


@pytest.mark.timeout(600)
async def test_an_engine_killed_at_any_point_of_a_setup_never_uses_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAOS_CRASH_ONLY", "setup:")

    def place(number: int) -> Path:
        folder = tmp_path / str(number)
        if not (folder / "project").exists():
            repository(folder / "project", {".gitignore": "made\nlocal.cfg\n"})
            write(folder / "project" / "local.cfg", "1\n")
        return folder

    def argv_for(number: int) -> list[str | Path]:
        folder = place(number)
        return [sys.executable, setup_life.__file__, folder / "maos.db", folder / "home", folder / "project"]

    async def check(life: Life) -> None:
        folder = place(life.number)
        run = await setup_life.live(str(folder / "maos.db"), folder / "home", folder / "project")
        assert run.status == "completed", run.tasks
        listed = subprocess.run(
            ["git", "ls-tree", "--name-only", run.commit],
            cwd=folder / "project",
            capture_output=True,
            text=True,
            check=True,
        )
        assert listed.stdout.split() == [".gitignore", "a.txt", "b.txt"]
        assert 1 <= len((folder / "ended").read_text().split()) <= 2, "it ran once too often"
        assert processes_below(folder / "home") == []

    lives = await crash_loop(argv_for, check)
    assert {"setup: begun", "setup: products", "setup: copied"} <= {each.died_at for each in lives}


def test_byte_code_of_tracked_files_is_no_product(tmp_path: Path) -> None:
    for name in ("src/a.py", "src/__pycache__/a.pyc", "env/lib/__pycache__/b.pyc", "__pycache__/c.pyc"):
        write(tmp_path / name, "x")
    found = list(products._walk(tmp_path, {"src", "src/a.py"}))
    assert found == ["env", "env/lib", "env/lib/__pycache__", "env/lib/__pycache__/b.pyc"]
