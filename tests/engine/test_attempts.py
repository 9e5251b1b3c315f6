"""One attempt of one agent, from the start to its end."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.app import Maos
from maos.engine.live import LiveAttempt
from maos.engine.recorder import Recorder
from maos.engine.streams import RUN
from maos.errors import InvalidInput, NotFound
from maos.model.attempt import Attempt
from maos.model.events.run import RunCreated
from maos.model.run import Run
from maos.store.contract import Lease
from tests.engine.conftest import processes_below


async def lines_of(m: Maos, agent: str) -> list[str]:
    found = []
    async for record in m.agents.records(agent):
        if record.type == "attempt_output":
            found += [each["text"] for each in record.data["facts"] if each["kind"] == "line"]
    return found


async def run(m: Maos, script: str, tmp_path: Path, **more: object) -> Attempt:
    running = await m.agents.start(argv=["sh", "-c", script], cwd=tmp_path, in_place=True, name="a", **more)  # type: ignore[arg-type]
    return await running.wait()


async def test_every_line_of_a_command_is_recorded_in_order(m: Maos, tmp_path: Path, home: Path) -> None:
    """R-103."""
    attempt = await run(m, "for i in $(seq 1 1000); do echo line $i; done", tmp_path)
    assert attempt.status == "done"
    assert await lines_of(m, "a") == [f"line {number}" for number in range(1, 1001)]
    assert processes_below(home) == []
    assert not list((home / "holders").iterdir())


async def test_a_failing_command_is_a_failed_attempt(m: Maos, tmp_path: Path) -> None:
    attempt = await run(m, "echo oh no >&2; exit 3", tmp_path)
    assert (attempt.status, attempt.failure, attempt.exit["code"]) == ("failed", "failed", 3)


async def test_a_program_that_does_not_exist_is_named(m: Maos, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nosuchprogram"):
        await m.agents.start(argv=["nosuchprogram"], cwd=tmp_path, in_place=True)


async def test_a_program_that_cannot_be_started_is_a_failed_attempt(m: Maos, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/nonexistent/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(maos.MaosError, match="broken"):
        await m.agents.start(argv=["./broken"], cwd=tmp_path, in_place=True, name="a")
    attempt = await m.agents.get("a")
    assert (attempt.status, attempt.failure) == ("failed", "start_failed")


async def test_keywords_become_discoveries(m: Maos, tmp_path: Path) -> None:
    """R-104: at the start of a line, also behind the mark of a list; an error message of a tool is none."""
    script = "echo 'FOUND: a bug in line 3'; echo nothing; echo '- discovery: y'; echo 'AssertionError: 3 != 4'"
    attempt = await run(m, script, tmp_path)
    assert [(each.keyword, each.text) for each in attempt.discoveries] == [
        ("found", "a bug in line 3"),
        ("discovery", "y"),
    ]


async def test_a_time_limit_ends_it_with_everything_it_said(m: Maos, tmp_path: Path, home: Path) -> None:
    """R-102, R-202."""
    attempt = await run(m, "echo begun; sleep 100 & setsid sleep 100; echo never", tmp_path, time_limit_s=0.5)
    assert (attempt.status, attempt.failure) == ("failed", "timed_out")
    assert await lines_of(m, "a") == ["begun"]
    assert processes_below(home) == []


async def test_a_stop_from_elsewhere_ends_it(m: Maos, tmp_path: Path, home: Path) -> None:
    running = await m.agents.start(argv=["sleep", "100"], cwd=tmp_path, in_place=True, name="a")
    async with maos.open(tmp_path / "maos.db", home=home) as other:
        await other.agents.stop("a")
    attempt = await running.wait()
    assert (attempt.status, attempt.failure) == ("stopped", "stopped")


async def test_a_message_reaches_a_command_that_takes_input(m: Maos, tmp_path: Path, home: Path) -> None:
    running = await m.agents.start(
        argv=["sh", "-c", "read a; echo got $a; read b; echo and $b"],
        cwd=tmp_path,
        in_place=True,
        name="a",
        takes_input=True,
    )
    async with maos.open(tmp_path / "maos.db", home=home) as other:
        await other.agents.send("a", "one")
        await other.agents.send("a", "two")
    attempt = await running.wait()
    assert attempt.status == "done"
    assert await lines_of(m, "a") == ["got one", "and two"]
    assert attempt.inbox_cursor == 2


async def test_a_name_is_used_once(m: Maos, tmp_path: Path) -> None:
    await run(m, "true", tmp_path)
    with pytest.raises(InvalidInput, match="already"):
        await run(m, "true", tmp_path)


async def test_two_engines_do_not_run_one_agent(m: Maos, tmp_path: Path, home: Path) -> None:
    running = await m.agents.start(argv=["sleep", "100"], cwd=tmp_path, in_place=True, name="a")
    async with maos.open(tmp_path / "maos.db", home=home) as other:
        with pytest.raises(maos.Conflict, match="is run by process"):
            await other.agents.adopt("a")
    await running.stop(grace_s=1)
    await running.wait()


@pytest.mark.parametrize("resumed", [False, True])
async def test_an_agent_that_another_engine_has_started_and_ended_meanwhile_is_not_started_again(
    m: Maos, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    """Both have seen that the agent does not run; the second one gets the lease when the first one is done."""
    if resumed:
        await run(m, "false", tmp_path)
    acquire, looked, ended = m.journal.acquire, asyncio.Event(), asyncio.Event()

    async def late(name: str, *, ttl_s: float) -> Lease | None:
        looked.set()
        await ended.wait()
        return await acquire(name, ttl_s=ttl_s)

    def begin(each: Maos) -> Awaitable[LiveAttempt]:
        if resumed:
            return each.agents.resume("a")
        return each.agents.start(argv=["sh", "-c", "echo ran >> effects"], cwd=tmp_path, in_place=True, name="a")

    monkeypatch.setattr(m.journal, "acquire", late)
    waiting = asyncio.ensure_future(begin(m))
    await looked.wait()
    async with maos.open(tmp_path / "maos.db", home=home) as other:
        first = await (await begin(other)).wait()
        ended.set()
        with pytest.raises(maos.Conflict, match="another process has started agent 'a' meanwhile"):
            await waiting
        assert (await other.agents.get("a")) == first


async def test_an_engine_that_closes_lets_go_and_the_next_one_goes_on(tmp_path: Path, home: Path) -> None:
    script = "for i in $(seq 1 40); do echo line $i; sleep 0.02; done"
    async with maos.open(tmp_path / "maos.db", home=home) as first:
        await first.agents.start(argv=["sh", "-c", script], cwd=tmp_path, in_place=True, name="a")
        while not (await first.agents.get("a")).lines:
            await asyncio.sleep(0.01)
    async with maos.open(tmp_path / "maos.db", home=home) as second:
        running = await second.agents.adopt("a")
        assert running is not None
        attempt = await running.wait()
        assert (attempt.status, attempt.number) == ("done", 1)
        assert await lines_of(second, "a") == [f"line {number}" for number in range(1, 41)]


async def test_an_engine_that_closes_in_the_middle_of_a_long_line_leaves_all_of_it_to_the_next(
    tmp_path: Path, home: Path
) -> None:
    """A line beyond the holder's limit comes in parts: none of them counts as heard before the last one is."""
    script = "head -c 1500000 /dev/zero | tr '\\0' x; until test -e go; do sleep 0.02; done; echo end"
    async with maos.open(tmp_path / "maos.db", home=home) as first:
        await first.agents.start(argv=["sh", "-c", script], cwd=tmp_path, in_place=True, name="a")
        folder = Path((await first.agents.get("a")).folder)
        while sum(each.stat().st_size for each in folder.glob("*.spool")) < 1_000_000:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # the first part is on its way to the engine, which must not record anything
    (tmp_path / "go").touch()
    async with maos.open(tmp_path / "maos.db", home=home) as second:
        running = await second.agents.adopt("a")
        assert running is not None
        assert (await running.wait()).status == "done"
        [line] = await lines_of(second, "a")
        assert line == "x" * 1_500_000 + "end"


async def test_a_command_is_run_again_in_a_new_attempt_when_it_is_resumed(m: Maos, tmp_path: Path) -> None:
    script = "test -e done && echo better || { touch done; exit 1; }"
    first = await run(m, script, tmp_path)
    assert first.status == "failed"
    second = await (await m.agents.resume("a")).wait()
    assert (second.status, second.number) == ("done", 2)
    assert await lines_of(m, "a") == ["better"]


async def test_no_value_of_a_passed_variable_is_written_down(m: Maos, tmp_path: Path, monkeypatch, home: Path) -> None:  # type: ignore[no-untyped-def]
    """A16."""
    secret = "correct-horse-battery-staple"
    m.agents._environment["DEPLOY_TOKEN"] = secret
    await run(m, "echo $DEPLOY_TOKEN and some", tmp_path, env=["DEPLOY_TOKEN"])
    assert (await lines_of(m, "a"))[0].endswith("and some")
    await m.journal.store.close()
    for file in (*tmp_path.glob("maos.db*"), *home.rglob("*")):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


async def test_a_lease_that_ran_out_is_had_again_once(m: Maos, tmp_path: Path) -> None:
    """Whoever notices it, the recording or the renewing, the other one does not take it for somebody else's."""
    script = "for i in $(seq 1 50); do echo line $i; sleep 0.01; done"
    running = await m.agents.start(argv=["sh", "-c", script], cwd=tmp_path, in_place=True, name="a")
    recorder = running.recorder
    for _ in range(20):
        await m.journal.release(recorder.lease)
        await asyncio.gather(*(recorder._reacquire(recorder.lease) for _ in range(3)))
        await asyncio.sleep(0.01)
    attempt = await running.wait()
    assert attempt.status == "done"
    assert await lines_of(m, "a") == [f"line {number}" for number in range(1, 51)]


async def test_a_lease_that_is_had_again_is_known_also_when_the_renewing_is_cancelled(
    m: Maos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the agent ends, and the renewing with it, while the store has granted the lease and not yet replied."""
    lease = await m.journal.acquire("run/r-1")
    assert lease is not None
    recorder, granted = Recorder(m.journal, RUN, Run(id="r-1"), lease), asyncio.Event()
    acquire = m.journal.acquire

    async def acquire_slowly(*args: Any, **more: Any) -> Any:
        found = await acquire(*args, **more)
        granted.set()
        await asyncio.sleep(0.01)
        return found

    monkeypatch.setattr(m.journal, "acquire", acquire_slowly)
    await m.journal.release(lease)
    renewing = asyncio.create_task(recorder.keep_lease())
    await granted.wait()
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    await recorder.append(RunCreated(request="", folder="", options={}, owner={}, at_us=1))
    assert recorder.lease.token == lease.token + 1


async def test_a_message_behind_an_answered_question_is_not_forgotten(m: Maos, tmp_path: Path, home: Path) -> None:
    """I19: answers are carried out as they come, so a message that came earlier may still be undelivered."""
    async with maos.open(tmp_path / "maos.db", home=home) as first:
        argv = ["sh", "-c", "read a; echo got $a"]
        await first.agents.start(argv=argv, cwd=tmp_path, in_place=True, name="a", takes_input=True)
    await m.agents.send("a", "one")
    answered = {"request": "r", "allow": True, "why": "", "inbox_version": 2}
    await m.journal.append("attempt/a.1", maos.Event("attempt_answered", answered))
    running = await m.agents.adopt("a")
    assert running is not None
    async with asyncio.timeout(60):
        await running.wait()
    assert await lines_of(m, "a") == ["got one"]


async def test_what_an_agent_has_fetched_itself_is_not_said_again(m: Maos, tmp_path: Path) -> None:
    """I19: an agent that takes no word during a turn may have looked into its inbox through its door."""
    script = "sleep 0.2; while read a; do echo got $a; done"
    running = await m.agents.start(argv=["sh", "-c", script], cwd=tmp_path, in_place=True, name="a", takes_input=True)
    live = running
    async with asyncio.timeout(20):
        while not (opened := m.bus.mailbox._inboxes.get("inbox/a")):
            await asyncio.sleep(0.01)
    opened[0].close()  # as for an agent that is in a turn
    fetched, missed = [await m.bus.send("b", "a", text) for text in ("one", "two")]
    live._undelivered = [fetched, missed]
    async with m.bus.receive("a") as receiver:
        delivery = await anext(aiter(receiver))
        await delivery.ack()
    await live._after_turn()
    async with asyncio.timeout(60):
        while not (lines := await lines_of(m, "a")):
            await asyncio.sleep(0.02)
    assert lines == ["got two"]
    await running.stop()
    await running.wait()


async def test_a_command_whose_secret_was_not_written_down_is_not_run_again(m: Maos, tmp_path: Path) -> None:
    key = "sk-ant-" + "a1b2" * 10
    await (await m.agents.start(argv=["echo", key], cwd=tmp_path, in_place=True, name="a")).wait()
    with pytest.raises(InvalidInput, match="contained a secret"):
        await m.agents.resume("a")
    assert (await m.agents.get("a")).number == 1


async def test_a_command_that_had_ended_when_it_was_to_be_stopped_is_done(m: Maos, tmp_path: Path) -> None:
    """I29: it would be run again if it was called stopped."""
    running = await m.agents.start(argv=["sh", "-c", "echo all"], cwd=tmp_path, in_place=True, name="a")
    pid = running.attempt.pid
    async with asyncio.timeout(60):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
    await running.stop()
    assert (await running.wait()).status == "done"
    assert await lines_of(m, "a") == ["all"]
