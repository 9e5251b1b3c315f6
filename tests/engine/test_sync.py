"""maos without asyncio: the same services from any thread."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import maos
from maos.sync import SyncMaos

HELLO = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
IN_PLACE = {"in_place": True, "kind": "shell"}

INTERRUPTED = """
import sys
from pathlib import Path
import maos

plan = {"tasks": [{"name": "long", "command": ["sleep", "60"]}]}
with maos.connect(sys.argv[1], home=Path(sys.argv[2])) as m:
    run = m.runs.start(plan, folder=".", options={"in_place": True, "kind": "shell"}, id="r-1")
    try:
        print("started", flush=True)
        m.runs.execute(run.id)
    except KeyboardInterrupt:
        print(m.runs.get("r-1").status, flush=True)
"""


@pytest.fixture
def m(tmp_path: Path, home: Path) -> Iterator[SyncMaos]:
    with maos.connect(tmp_path / "maos.db", home=home) as opened:
        yield opened


def test_results_iterators_and_contexts(m: SyncMaos, tmp_path: Path) -> None:
    run = m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE)
    run = m.runs.execute(run.id)
    assert (run.status, run.tasks["hello"].result) == ("completed", "hello")
    assert [each.type for each in m.journal.read(f"run/{run.id}")][-1] == "run_ended"
    with m.runs.follow(run.id, from_start=True) as feed:
        first = next(iter(feed))
        assert first.event.type == "run_created"
        assert feed.run.id == run.id


def test_an_object_that_works_in_the_background_is_waited_for(m: SyncMaos, tmp_path: Path) -> None:
    running = m.agents.start(kind="shell", argv=["echo", "found"], cwd=tmp_path, in_place=True)
    assert running.wait().last_text == "found"
    assert running.attempt.status == "done"


def test_errors_arrive_as_they_are(m: SyncMaos) -> None:
    with pytest.raises(maos.NotFound):
        m.runs.get("r-0")
    with pytest.raises(AttributeError):
        m.runs.no_such_method  # noqa: B018
    with pytest.raises(maos.MaosError):
        maos.connect("mysql://x")
    assert not any(each.name == "maos" and each is not m._thread._thread for each in threading.enumerate())


def test_threads_share_it(m: SyncMaos) -> None:
    def write(number: int) -> None:
        for count in range(10):
            m.state.update(f"agent-{number}", {"count": count})

    for number in range(4):
        m.state.create(f"agent-{number}", {"count": -1})
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [m.state.get(f"agent-{number}").data["count"] for number in range(4)] == [9] * 4


def test_a_callback_cannot_wait_for_its_own_thread(m: SyncMaos, tmp_path: Path) -> None:
    found: list[BaseException] = []

    def listener(_run: object, _events: object) -> None:
        try:
            m.runs.get("r-1")
        except RuntimeError as error:
            found.append(error)

    m.runs.start(HELLO, folder=tmp_path, options=IN_PLACE, id="r-1")
    m.runs.execute("r-1", listener=listener)
    assert found


def test_it_can_be_interrupted_and_the_agent_keeps_running(tmp_path: Path, home: Path) -> None:
    """Ctrl+C detaches the engine, closes the store and ends the process."""
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "maos.db"), str(home)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process,
        maos.connect(tmp_path / "maos.db", home=home) as m,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        deadline = time.monotonic() + 30
        while not any(each.pid for each in m.agents.all()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "running\n"
        assert process.wait(30) == 0
        assert m.agents.get("r-1.long").is_open
        assert m.runs.cancel("r-1").status == "cancelled"
