"""A run that goes to another journal is the same run there, and can come back."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import maos
from maos.app import Maos
from maos.journal.codec import Event
from maos.model.events.run import RunPlanned
from maos.model.run import Run
from maos.transfer.bundle import UPGRADES
from maos.transfer.bundle_import import MORE, MOVED_ON, NEW, SAME
from tests.transfer import runs
from tests.transfer.runs import ID, bring, everything, exported

HERE_ONLY = ("owner", "folder", "workspace", "order", "pid", "holder_pid")


def same(data: dict[str, Any]) -> dict[str, Any]:
    """Data without what is of one machine."""
    return {key: value for key, value in data.items() if key not in HERE_ONLY}


async def contents_of(m: Maos) -> dict[str, list[tuple[str, Any]]]:
    """Everything but what is of one machine."""
    found = await everything(m)
    return {
        name: [(type_, same(data)) for type_, data in events]
        for name, events in found.items()
        if not name.startswith("bundle/")
    }


async def test_everything_that_belongs_to_a_run_goes_along(
    here: Maos, there: Maos, bundle: bytes, folder: Path
) -> None:
    """R-702: journal, conversations, messages, questions, talk and notes; in one append."""
    before = await there.journal.head()
    brought = await bring(there, bundle, folder)
    assert (brought.what, brought.events) == (NEW, await here.journal.head())
    assert await contents_of(there) == await contents_of(here)
    assert await there.journal.head() == before + brought.events + 1
    run = await there.runs.get(ID)
    assert (run.status, run.done, run.cost_usd, run.open_questions[0].question) == ("paused", 1, 0.5, "Which?")
    assert run.folder == str(folder)
    assert (await there.agents.get("r-1.two")).tools_open["t"].name == "Bash"
    assert (await there.state.get("r-1.two")).data["saved"]["line"] == 7
    assert [each.message.text async for each in there.bus.waiting("r-1.two")] == ["found: it leaks"]
    assert (await there.verify()).ok


async def test_nothing_that_is_of_another_machine_is_used(there: Maos, bundle: bytes, folder: Path) -> None:
    """Folders, processes, tool servers and variables: those of this machine, or none."""
    await bring(there, bundle, folder)
    text = str(await everything(there))
    assert runs.ELSEWHERE not in text.replace(f"'from': '{runs.ELSEWHERE}'", ""), (
        "but to tell an agent what it remembers"
    )
    assert "evil" not in text
    assert "AWS_SECRET" not in text
    attempt = await there.agents.get("r-1.one")
    home = there.agents.folder.resolve()
    assert attempt.folder == str(home / "holders" / "r-1.one.1")
    assert (attempt.order["cwd"], attempt.order["home"]) == (str(folder), str(home / "homes" / "r-1.one"))
    assert attempt.order["mcp"] == [{"name": "maos", "argv": [], "env": []}]
    assert (attempt.pid, attempt.owner["pid"]) == (0, os.getpid())


async def test_importing_again_changes_nothing(there: Maos, bundle: bytes, folder: Path) -> None:
    await bring(there, bundle, folder)
    before = await everything(there)
    assert (await bring(there, bundle, folder)).what == SAME
    assert await everything(there) == before


async def test_a_dry_run_writes_nothing(there: Maos, bundle: bytes, folder: Path) -> None:
    brought = await bring(there, bundle, folder, dry_run=True)
    assert (brought.what, brought.manifest.made_by) == (NEW, "maos test")
    assert await there.journal.head() == 0


async def test_only_what_is_new_is_brought(here: Maos, there: Maos, bundle: bytes, folder: Path) -> None:
    await bring(there, bundle, folder)
    await here.runs.pause(ID)
    await here.journal.append("run/r-1", Event("run_resumed", {"at_us": runs.AT_US}))
    await here.journal.append("messages/r-1", Event("message_sent", {"text": "more", "at_us": runs.AT_US}))
    newer = await exported(here)
    assert (await bring(there, newer, folder, dry_run=True)).events == 3
    brought = await bring(there, newer, folder)
    assert (brought.what, brought.events) == (MORE, 3)
    assert await contents_of(there) == await contents_of(here)
    assert (await bring(there, bundle, folder)).what == MOVED_ON, "what is older brings nothing"
    assert (await bring(there, newer, folder)).what == SAME


async def test_a_run_that_comes_back_brings_what_was_done_elsewhere(
    here: Maos, there: Maos, bundle: bytes, folder: Path
) -> None:
    """Paths and processes differ on the two machines; what happened does not."""
    await bring(there, bundle, folder)
    await there.journal.append("run/r-1", Event("run_resumed", {"at_us": runs.AT_US}))
    back = await exported(there)
    before = await here.runs.get(ID)
    assert (await bring(here, back, folder)).what == MORE
    after = await here.runs.get(ID)
    assert (after.status, after.folder, after.version) == ("running", before.folder, before.version + 1)
    assert (await bring(here, back, folder)).what == SAME


async def test_what_both_sides_have_gone_on_with_is_not_mixed(
    here: Maos, there: Maos, bundle: bytes, folder: Path
) -> None:
    await bring(there, bundle, folder)
    await there.runs.pause(ID)
    await here.journal.append("run/r-1", Event("run_resumed", {"at_us": runs.AT_US}))
    before = await everything(there)
    with pytest.raises(maos.InvalidInput, match="continued here and there: inbox/r-1 has more here, run/r-1 in"):
        await bring(there, await exported(here), folder)
    assert await everything(there) == before


async def test_a_run_that_is_carried_out_here_is_left_alone(
    here: Maos, there: Maos, bundle: bytes, folder: Path
) -> None:
    await bring(there, bundle, folder)
    await here.journal.append("run/r-1", Event("run_resumed", {"at_us": runs.AT_US}))
    newer = await exported(here)
    lease = await there.journal.acquire("run/r-1", owner="another engine")
    assert lease is not None
    with pytest.raises(maos.InvalidInput, match="is being executed here"):
        await bring(there, newer, folder)
    await there.journal.release(lease)
    assert (await bring(there, newer, folder)).what == MORE


async def test_another_run_of_the_same_name_is_refused(here: Maos, there: Maos, bundle: bytes, folder: Path) -> None:
    """It says which event differs, and what to do."""
    other = runs.told()
    other["run/r-1"][0].data["request"] = "something else"  # type: ignore[index]
    await runs.write(there, other)
    with pytest.raises(maos.InvalidInput, match=r"is another one: run/r-1@1 differs \(import it into another database"):
        await bring(there, bundle, folder)


async def test_all_of_it_is_of_one_moment(here: Maos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written while a run is exported is in none of its streams."""
    await runs.write(here)
    position = await here.journal.head()
    read = here.journal.read

    async def meanwhile(stream: str, **how: Any) -> Any:
        if stream == "run/r-1":
            for name in ("run/r-1", "inbox/r-1", "inbox/r-1.three"):
                await here.journal.append(
                    name, Event("pause_requested" if "inbox" in name else "run_resumed", {"at_us": 1})
                )
        async for record in read(stream, **how):
            yield record

    monkeypatch.setattr(here.journal, "read", meanwhile)
    _bundle, made = await runs.export(here)
    assert (made.manifest.position, made.events) == (position, position)
    assert made.manifest.status == "paused"


async def test_a_run_that_is_carried_out_says_so(here: Maos) -> None:
    streams = runs.told()
    del streams["run/r-1"][-1]
    await runs.write(here, streams)
    _bundle, made = await runs.export(here)
    assert made.manifest.carried_out


@pytest.mark.parametrize("name", ["r-", "r-1.two"])
async def test_runs_are_found_by_their_whole_ids(here: Maos, name: str) -> None:
    await runs.write(here)
    with pytest.raises(maos.NotFound, match="no run and no workflow run"):
        await exported(here, name)


async def test_what_belongs_to_others_stays(here: Maos, there: Maos, folder: Path) -> None:
    """Runs, workflows and agents whose names only begin alike."""
    await runs.write(here)
    for name in ("inbox/r-10", "inbox/r-10.x", "run/r-1x", "inbox/r-1x.y", "attempt/r-11.a.1", "messages/r-10"):
        event = (
            Event("pause_requested", {"at_us": 1})
            if name.startswith("inbox")
            else Event("run_note_added", {"at_us": 1})
        )
        await here.journal.append(name, event)
    await here.journal.append("settings/save-interval", Event("setting_changed", {"value": 9, "at_us": 1}))
    await bring(there, await exported(here), folder)
    names = [name async for name in there.journal.streams() if not name.startswith("bundle/")]
    assert all(name.rpartition("/")[2].split(".")[0] == ID for name in names)


async def test_a_state_that_was_compacted_is_left_out_and_named(here: Maos) -> None:
    await runs.write(here)
    for number in range(5):
        await here.state.update("r-1.two", {"saved": {"line": number}})
    await here.state.compact("r-1.two", strategy="delete", keep_last=1)
    _bundle, made = await runs.export(here)
    assert made.manifest.left_out == ["agent/r-1.two: its history was compacted"]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20) | st.floats(-1e6, 1e6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(max_size=200), max_size=8),
    metadata=st.dictionaries(st.text(max_size=8).filter(lambda key: not key.endswith("_us")), PLAIN, max_size=3),
    lines=st.lists(st.lists(st.text(max_size=50), max_size=4), max_size=6),
)
async def test_whatever_was_said_arrives_as_it_was(
    folder: Path, texts: list[str], metadata: dict[str, Any], lines: list[list[str]]
) -> None:
    """Any text, any metadata, any output, through any number of parts (A7)."""
    streams = runs.told()
    streams["messages/r-1"] += [
        Event("message_sent", {"text": text, "metadata": metadata, "at_us": 1}) for text in texts
    ]
    streams["attempt/r-1.two.1"] += [
        Event("attempt_output", {"offset": 9, "at_us": 1, "facts": [{"kind": "line", "text": each} for each in heard]})
        for heard in lines
    ]
    async with maos.open(":memory:", home=folder / "a") as here, maos.open(":memory:", home=folder / "b") as there:
        await runs.write(here, streams)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("maos.transfer.bundle.PART_BYTES", 300)
            sent = await exported(here)
        await bring(there, sent, folder)
        assert await contents_of(there) == await contents_of(here)
        assert (await bring(here, await exported(there), folder)).what == SAME


async def test_a_bundle_of_an_older_format_is_upgraded(
    there: Maos, bundle: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-1004: each format knows how it becomes the next."""

    def renamed(raw: Any) -> Any:
        manifest, lines = raw
        return {**manifest, "title": manifest["title"].upper()}, lines

    monkeypatch.setattr("maos.transfer.bundle.FORMAT", 2)
    monkeypatch.setitem(UPGRADES, 1, renamed)
    assert (await bring(there, bundle, folder)).manifest.title == "MEND IT"


async def test_an_event_of_an_older_format_is_upgraded_and_a_newer_refused(
    there: Maos, bundle: bytes, folder: Path
) -> None:
    """R-1004: by its name."""
    parts = runs.Parts(bundle)
    next(line for line in parts.lines if line[1] == "run_planned")[2] = 99
    with pytest.raises(
        maos.UnknownFormat, match="run/r-1@2 is run_planned in format 99, this maos knows formats up to 1"
    ):
        await bring(there, parts.bytes(), folder)
    kind = maos.EventType.of(RunPlanned)
    kind.format, kind.upcasts = 2, {1: lambda data: {**data, "upgraded": True}}
    there.journal.codec._types["run_planned"] = kind
    await bring(there, bundle, folder)
    record = await there.journal.event("run/r-1", 2)
    assert record is not None
    assert record.data["upgraded"]


async def test_the_same_on_postgresql(postgres_url: str, tmp_path: Path, bundle: bytes, folder: Path) -> None:
    async with maos.open(postgres_url, home=tmp_path / "there", mark_path=tmp_path / "mark") as there:
        assert (await bring(there, bundle, folder)).what == NEW
        assert (await bring(there, bundle, folder)).what == SAME
        back = await exported(there)
        assert isinstance(await there.runs.get(ID), Run)
    async with maos.open(tmp_path / "sqlite.db", home=tmp_path / "third") as third:
        assert (await bring(third, back, folder)).what == NEW
        assert (await third.verify()).ok


async def test_a_pipe_can_be_read(there: Maos, bundle: bytes, folder: Path, tmp_path: Path) -> None:
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(bundle))
    writer.start()
    assert (await there.transfer.import_(pipe, folder=folder, dry_run=True)).manifest.id == ID
    writer.join()
