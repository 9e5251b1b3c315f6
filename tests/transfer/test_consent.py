"""What a person is shown before they agree is what is started; nothing is before, and there is no way round it."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import maos
from maos.app import Maos
from maos.cli.program import program
from maos.clock import SystemClock
from maos.engine import consent
from maos.journal.codec import Event
from maos.model.events.records import BundleImported
from maos.model.plan import Plan, Task
from maos.model.run import bundle_stream
from maos.transfer import bundle as file
from maos.workflows import agent, signal
from tests.transfer.runs import AT_US, ID, Parts, assemble, bring, exported, planned
from tests.workflows.define import eventually, workflow


def event(type_: str, **data: Any) -> Event:
    return Event(type_, {**data, "at_us": AT_US})


def proves(path: Path, word: str) -> list[str]:
    """A command that leaves a word in a file."""
    return ["sh", "-c", f"echo {word} >> {path}"]


def words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def ordered(m: Maos, folder: Path, *tasks: dict[str, Any], id: str = ID) -> bytes:
    """A run that nobody has carried out, as a bundle."""
    options = {"kind": "shell", "in_place": True}
    await m.runs.create({"tasks": list(tasks)}, request="x", folder=folder, options=options, id=id)
    return await exported(m, id)


async def shown(m: Maos, id: str = ID) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.task, each.what, each.command) for each in await m.runs.acts(id)]


# --- workflows ---------------------------------------------------------------------------------------------------


@workflow("waits-for-go")
async def waits() -> Any:
    return await signal("go")


async def folded(m: Maos, where: dict[str, str], name: str = "unheard-of") -> Parts:
    """A workflow whose calls were forgotten and that is not over: what a stranger makes of one."""
    handle = await m.workflows.start(waits, id="w-1")
    await eventually(lambda: handle.run.waiting)
    kept = msgspec.to_builtins(await m.workflows.get("w-1"))
    kept |= {"name": name, "options": {**kept["options"], "where": where}}
    kept.pop("version")
    parts = Parts(await exported(m, "w-1"))
    parts.lines, parts.manifest["streams"] = [], []
    parts.add("workflow/w-1", event("workflow_compacted", workflow=kept))
    return parts


@pytest.mark.parametrize("where", ["file", "module"])
async def test_no_file_of_a_stranger_is_loaded_before_or_after_somebody_agrees(
    here: Maos, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """An event that tells all of a workflow at once names no file either, whatever it is asked to do."""
    evil, proof = folder / "evil_of_a_stranger.py", tmp_path / "proof"
    evil.write_text(f"import pathlib\npathlib.Path({str(proof)!r}).touch()\n")
    names = {"file": str(evil)} if where == "file" else {"module": evil.stem}
    parts = await folded(here, {"file": "", "module": "", **names})
    bundle = tmp_path / "w.maos"
    bundle.write_bytes(parts.bytes())
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "there"))
    monkeypatch.chdir(folder)

    def run(*args: str) -> tuple[int, str]:
        done = CliRunner().invoke(program, ["--db", str(tmp_path / "there.db"), *args])
        return done.exit_code, done.output

    def all_of_it() -> list[tuple[int, str]]:
        return [run("import", str(bundle)), run("workflow", "resume", "w-1", "--dry-run"),
                run("workflow", "resume", "w-1"), run("workflow", "resume", "w-1", "--trust")]  # fmt: skip

    imported, foreseen, refused, gone = await asyncio.to_thread(all_of_it)
    assert (imported[0], foreseen[0], refused[0]) == (0, 0, 2), (imported, foreseen, refused)
    assert "name it with --from" in foreseen[1]
    assert "no person has agreed" in refused[1]
    assert gone[0] == 3, "not even then: the person names the file"
    assert not proof.exists()


async def test_nothing_is_loaded_for_what_nobody_agreed_to_whatever_is_recorded_of_it(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by looking at what would be done, nor by trying: consent comes before the code."""
    code, proof = folder / "named_by_a_stranger.py", tmp_path / "proof"
    code.write_text(f"import pathlib\npathlib.Path({str(proof)!r}).touch()\n")
    monkeypatch.setenv("MAOS_HOME", str(tmp_path / "there"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    database = tmp_path / "there.db"
    async with maos.open(database, home=tmp_path / "there") as there:
        options = {"where": {"file": str(code)}}
        begun = event("workflow_started", name="unheard-of", code="x", arguments={}, owner={}, options=options)
        await there.journal.append("workflow/w-1", begun)
        await there.journal.append(bundle_stream("w-1"), BundleImported(at_us=1))

    def resume(*how: str) -> int:
        return CliRunner().invoke(program, ["--db", str(database), "workflow", "resume", "w-1", *how]).exit_code

    assert await asyncio.to_thread(resume, "--dry-run") == 0
    assert await asyncio.to_thread(resume) == 2
    assert not proof.exists()
    await asyncio.to_thread(resume, "--trust")
    assert proof.exists(), "what was recorded here is found again"


async def test_a_folded_workflow_is_the_same_wherever_it_was(here: Maos, there: Maos, folder: Path) -> None:
    """What is of one machine does not count when it is imported again."""
    parts = await folded(here, {"file": "/x.py", "module": "x"}, "waits-for-go")
    await bring(there, parts.bytes(), folder)
    flow = await there.workflows.get("w-1")
    assert flow.options.get("where", {}) == {}
    assert flow.owner != {}
    assert flow.owner.get("pid") != 7
    assert (await bring(there, parts.bytes(), folder)).what == "same"


async def test_the_agent_of_a_call_does_what_the_code_says_or_nothing(tmp_path: Path, folder: Path, here: Maos) -> None:
    """The code is the user's own; what a file says that its agent was begun with is a stranger's."""
    proof = tmp_path / "proof"

    @workflow("has-an-agent")
    async def has_agent() -> str:
        return await agent(argv=["sleep", "60"], cwd=str(folder), in_place=True)

    handle = await here.workflows.start(has_agent, id="w-1")
    async with asyncio.timeout(60):
        async for record in here.journal.follow_stream("attempt/w-1.1.1"):
            if record.type == "attempt_started":
                break
    parts = Parts(await exported(here, "w-1"))
    await here.workflows.cancel("w-1")
    await here.agents.stop("w-1.1", grace_s=0.1)
    await handle.wait()
    async with asyncio.timeout(60):
        while (await here.agents.get("w-1.1")).is_open:
            await asyncio.sleep(0.02)
    parts.line("attempt_planned")["order"]["argv"] = proves(proof, "EVIL")
    async with maos.open(":memory:", home=tmp_path / "b") as there:
        await bring(there, parts.bytes(), folder)
        await consent.agree(there.journal, SystemClock(), "w-1")
        flow = await (await there.workflows.resume("w-1", workflow=has_agent)).wait()
        assert flow.status == "failed"
        assert "started with another command than is requested now" in flow.why
    assert not proof.exists()


async def test_whoever_belongs_to_two_waits_for_both(here: Maos) -> None:
    """That one of them is agreed to says nothing of the other."""
    note = BundleImported(at_us=1)
    await here.journal.append(bundle_stream("w-1"), note)
    await here.journal.append(bundle_stream("w-2"), note)
    await here.journal.append(bundle_stream("w-1.child"), BundleImported(of="w-2", at_us=1))
    assert await consent.waits(here.journal, "w-1.child") == "w-2"
    await consent.agree(here.journal, SystemClock(), "w-2")
    assert await consent.waits(here.journal, "w-1.child") == "w-1"
    await consent.agree(here.journal, SystemClock(), "w-1")
    assert await consent.waits(here.journal, "w-1.child") == ""


# --- runs --------------------------------------------------------------------------------------------------------


async def test_tasks_that_are_only_wished_for_are_shown_too(
    here: Maos, there: Maos, tmp_path: Path, folder: Path
) -> None:
    """Whoever goes on grants what is in the inbox; the agent of such a task may have begun already."""
    proof = tmp_path / "proof"
    parts = Parts(await ordered(here, tmp_path, {"name": "nice", "command": ["true"]}))
    evil, worse = proves(proof, "EVIL"), proves(proof, "WORSE")
    parts.add(f"inbox/{ID}",
              event("tasks_requested", tasks=[{"name": "evil", "command": ["true"], "needs": ["x"]}],
                    asked_by="person"),
              event("tasks_requested", tasks=[{"name": "evil", "command": evil}], asked_by="person"),
              event("tasks_requested", tasks=[{"name": "worse", "command": ["true"]}], asked_by="person"))  # fmt: skip
    parts.add(f"attempt/{ID}.worse.1", planned(f"{ID}.worse", argv=tuple(worse)),
              event("attempt_ended", status="failed", failure="crashed", message="", exit={}))  # fmt: skip
    brought = await bring(there, parts.bytes(), folder)
    assert [each.type for each in brought.commands] == ["tasks_requested"] * 3
    acts = await shown(there)
    assert ("evil", "task", tuple(evil)) in acts
    assert ("worse", "task", tuple(worse)) in acts
    run = await there.runs.execute(ID, options=await there.runs.agree(ID))
    assert set(run.tasks) == {"nice", "evil", "worse"}
    assert set(words(proof)) <= {"EVIL", "WORSE"}


async def test_an_import_shows_what_is_wished_for(here: Maos, tmp_path: Path, folder: Path) -> None:
    parts = Parts(await ordered(here, tmp_path, {"name": "nice", "command": ["true"]}))
    parts.add(f"inbox/{ID}", event("tasks_requested", tasks=[{"name": "more", "command": ["rm"]}], asked_by="person"))
    with tempfile.NamedTemporaryFile() as kept:
        kept.write(parts.bytes())
        kept.flush()
        args = ["--db", str(tmp_path / "there.db"), "import", kept.name, "--cwd", str(folder), "--dry-run"]
        done = await asyncio.to_thread(lambda: CliRunner().invoke(program, args))
    assert done.exit_code == 0, done.output
    assert "rm" in next(line for line in done.output.splitlines() if line.strip().startswith("more"))


async def test_gates_that_are_said_to_be_passed_are_shown(
    here: Maos, there: Maos, tmp_path: Path, folder: Path
) -> None:
    """When the task is done once more, they look once more."""
    first, second = ["sh", "-c", "echo first"], ["true"]
    task = {"name": "nice", "command": ["true"], "gates": [{"command": first}, {"command": second}]}
    parts = Parts(await ordered(here, tmp_path, task))
    parts.add(f"run/{ID}", event("task_started", task="nice", number=1), event("task_gated", task="nice", passed=1),
              event("task_released", task="nice", why="x"), event("run_paused"))  # fmt: skip
    await bring(there, parts.bytes(), folder)
    assert await shown(there) == [
        ("nice", "task", ("true",)), ("nice", "gate", tuple(first)), ("nice", "gate", tuple(second)),
    ]  # fmt: skip


async def test_gates_of_tasks_that_are_not_planned_yet_are_shown(
    here: Maos, there: Maos, tmp_path: Path, folder: Path
) -> None:
    """They are options of the run, and would check what its planner plans."""
    options = {"kind": "claude", "in_place": True, "gates": [["sh", "-c", "id"]]}
    await here.runs.start_request("x", folder=tmp_path, options=options, id=ID)
    await here.runs.close()
    await bring(there, await exported(here), folder)
    assert await shown(there) == [("plan", "task", ()), ("plan", "gate", ("sh", "-c", "id"))]


async def test_a_run_whose_gates_are_no_commands_is_refused(
    here: Maos, there: Maos, tmp_path: Path, folder: Path
) -> None:
    await here.runs.create(
        {"tasks": [{"name": "a", "command": "true"}]}, folder=tmp_path, options={"gates": ["id"]}, id=ID
    )
    with pytest.raises(maos.Corrupt, match="its options are invalid"):
        await bring(there, await exported(here), folder)


@pytest.mark.parametrize("wrong", ["argv", "permission", "kind"])
async def test_an_agent_that_checks_does_what_the_plan_says_or_nothing(
    here: Maos, there: Maos, tmp_path: Path, folder: Path, wrong: str
) -> None:
    """The command of a gate is shown from the plan, so nothing else may be run in its place."""
    proof, gate = tmp_path / "proof", f"{ID}.nice-gate1-1"
    command = proves(proof, "GATE")
    parts = Parts(await ordered(here, tmp_path, {"name": "nice", "command": ["true"], "gates": [{"command": command}]}))
    parts.add(f"run/{ID}", event("task_started", task="nice", number=1),
              event("task_gated", task="nice", passed=0, result=""), event("task_gated", task="nice", passed=0),
              event("run_paused"))  # fmt: skip
    parts.add(f"attempt/{ID}.nice.1", planned(f"{ID}.nice", argv=("true",)),
              event("attempt_ended", status="done", failure="", message="", exit={"code": 0}))  # fmt: skip
    order: dict[str, Any] = {"argv": tuple(command), "tools_allowed": ()}
    order |= {"argv": {"argv": tuple(proves(proof, "EVIL"))}, "permission": {"permission": "edits"}}.get(wrong, {})
    begun = planned(gate, **order)
    data = {**begun.data, "task": "", **({"agent_kind": "python"} if wrong == "kind" else {})}
    parts.add(f"attempt/{gate}.1", Event(begun.type, data),
              event("attempt_ended", status="failed", failure="crashed", message="", exit={}))  # fmt: skip
    await bring(there, parts.bytes(), folder)
    assert ("nice", "gate", tuple(command)) in await shown(there)
    run = await there.runs.execute(ID, options=await there.runs.agree(ID))
    assert (run.status, run.tasks["nice"].failure) == ("failed", "start_failed")
    assert "was started with another" in run.tasks["nice"].why
    assert not proof.exists()
    run = await there.runs.execute(ID)
    assert (run.status, words(proof)) == ("completed", ["GATE"]), "tried again, it is checked as the plan says"


async def test_a_fork_of_a_run_that_nobody_agreed_to_is_refused(
    here: Maos, there: Maos, tmp_path: Path, folder: Path
) -> None:
    """A fork has another name, and would do all that its origin does."""
    await bring(there, await ordered(here, tmp_path, {"name": "a", "command": ["true"]}), folder)
    with pytest.raises(consent.NotAgreed):
        await there.travel.fork(ID, into="mine", without_files=True)
    with pytest.raises(maos.NotFound):
        await there.runs.get("mine")
    await there.runs.agree(ID)
    await there.travel.fork(ID, into="mine", without_files=True)
    assert (await there.runs.execute("mine")).status == "completed"


async def test_a_run_that_nobody_agreed_to_is_not_joined(here: Maos, there: Maos, tmp_path: Path, folder: Path) -> None:
    """Its tasks would be those of one that is trusted."""
    one = await ordered(here, tmp_path, {"name": "a", "command": ["true"]})
    await here.travel.fork(ID, into="r-2", without_files=True)
    await here.runs.add("r-2", Plan(tasks=[Task(name="evil", command=["true"])]))
    two = await exported(here, "r-2")
    for bundle in (one, two):
        await bring(there, bundle, folder)
    await there.runs.agree(ID)
    before = await there.journal.head()
    with pytest.raises(consent.NotAgreed):
        await there.travel.join(ID, "r-2")
    assert await there.journal.head() == before
    await there.runs.agree("r-2")
    assert list((await there.travel.join(ID, "r-2")).added) == ["evil"]


async def test_a_run_from_elsewhere_has_no_name_that_an_agent_could_have(
    here: Maos, there: Maos, tmp_path: Path, folder: Path
) -> None:
    parts = Parts(await ordered(here, tmp_path, {"name": "a", "command": ["true"]}))
    parts.manifest["id"], parts.manifest["streams"][0]["name"] = "r-1.a", "run/r-1.a"
    with pytest.raises(maos.Corrupt, match="cannot name a run"):
        await bring(there, parts.bytes(), folder)


# --- what a small file takes -------------------------------------------------------------------------------------


def alike(events: int) -> list[tuple[bytes, bytes]]:
    """The parts of a bundle of so many events, all the same."""
    manifest = {"kind": "run", "id": ID, "title": "t", "status": "paused", "made_by": "x", "made_us": 1, "position": 1,
                "carried_out": False, "streams": [{"name": f"run/{ID}", "events": events}]}  # fmt: skip
    line = b'[0,"run_note_added",1,1,{"at_us":1}]'
    return [(file.MANIFEST, msgspec.json.encode(manifest)), (file.JOURNAL, b"\n".join([line] * events))]


async def test_a_small_file_of_many_events_is_refused_before_they_are_read(
    there: Maos, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kilobyte is not to take a hundred megabytes of memory."""
    bundle = assemble(alike(file.EVENTS_FREE * 2))
    assert len(bundle) < 2_000

    def never(_line: Any) -> Any:
        raise AssertionError("an event was read")

    monkeypatch.setattr(file, "_line_decoder", type("Decoder", (), {"decode": staticmethod(never)}))
    with pytest.raises(maos.Corrupt, match="than fit into so small a file"):
        await bring(there, bundle, folder)


async def test_a_file_that_swells_is_refused_by_what_its_heads_say(
    there: Maos, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any part is unpacked; and nobody writes one."""
    bundle = assemble(alike(file.EVENTS_FREE - 1))
    monkeypatch.setattr(file, "JOURNAL_BYTES_FREE", 1 << 16)
    monkeypatch.setattr(file.BundleReader, "content", lambda *_: pytest.fail("a part was unpacked"))
    with pytest.raises(maos.Corrupt, match="MB of events"):
        await bring(there, bundle, folder)
    with pytest.raises(maos.InvalidInput, match="compress so well"):
        assemble(alike(file.EVENTS_FREE - 1))


async def test_a_run_of_too_many_events_that_are_alike_is_not_exported(
    here: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read is not written either."""
    monkeypatch.setattr(file, "EVENTS_MAX", 1)
    with pytest.raises(maos.InvalidInput, match="more events than a bundle can hold"):
        await ordered(here, tmp_path, {"name": "a", "command": ["true"]})
