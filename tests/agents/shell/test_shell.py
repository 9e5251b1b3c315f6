"""Any command as an agent: its lines are the output."""

import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.agents.contract import AgentMissing
from maos.agents.shell import Shell
from maos.errors import InvalidInput, NotFound
from maos.model.events import facts
from maos.model.failure import Ending, understand
from tests.agents.driving import an_order, command_of, started


async def test_lines_become_facts_in_order_and_exit_0_is_success(tmp_path: Path) -> None:
    order = an_order(tmp_path, argv=["sh", "-c", "echo one; echo two; printf three"])
    async with started(Shell(), order) as run:
        assert await run.ended() == 0
    assert [fact["text"] for fact in run.of("line")] == ["one", "two", "three"]
    assert understand(Ending(exit_code=0), run.heard) is None


async def test_another_exit_code_is_a_failure(tmp_path: Path) -> None:
    async with started(Shell(), an_order(tmp_path, argv=["sh", "-c", "echo no; exit 7"])) as run:
        code = await run.ended()
    verdict = understand(Ending(exit_code=code), run.heard)
    assert verdict is not None
    assert (verdict.failure, verdict.message) == ("failed", "exit code 7")


async def test_what_goes_to_stderr_is_marked(tmp_path: Path) -> None:
    async with started(Shell(), an_order(tmp_path, argv=["sh", "-c", "echo good; echo bad >&2"])) as run:
        await run.ended()
    assert sorted((fact["text"], fact.get("stderr", False)) for fact in run.facts) == [("bad", True), ("good", False)]


async def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    """A14: quotes, semicolons and dollars are what they are."""
    words = ["; touch marker", "$(touch marker)", "-n", "a\nb", "'"]
    async with started(Shell(), an_order(tmp_path, argv=["printf", "%s|", *words])) as run:
        assert await run.ended() == 0
    assert "\n".join(fact["text"] for fact in run.of("line")) == "".join(f"{word}|" for word in words)
    assert not (tmp_path / "work" / "marker").exists()


async def test_binary_output_comes_back_byte_for_byte(tmp_path: Path) -> None:
    data = bytes(range(256)).replace(b"\n", b"")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").write_bytes(data)
    async with started(Shell(), an_order(tmp_path, argv=["cat", "data"])) as run:
        assert await run.ended() == 0
    (fact,) = run.of("line")
    assert msgspec.convert(fact, facts.Line).raw() == data
    assert "\\xff" in fact["text"]


@given(st.binary(max_size=200))
def test_no_line_is_lost_or_raises(line: bytes) -> None:
    conversation = Shell().converse(an_order(Path("/"), cwd=Path("/"), argv=["true"]))
    for stderr in (False, True):
        heard = conversation.hear(line, stderr=stderr)
        assert heard.facts[0].raw() == line
        assert heard.replies == ()


async def test_it_has_no_input_unless_the_order_says_so(tmp_path: Path) -> None:
    async with started(Shell(), an_order(tmp_path, argv=["cat"])) as run:
        assert await run.ended() == 0  # cat saw the end of its input at once
        assert run.conversation.say("m1", "hello") is None
        assert run.conversation.end() is None


async def test_messages_are_lines_of_its_input_if_it_takes_them(tmp_path: Path) -> None:
    async with started(Shell(), an_order(tmp_path, argv=["cat"], takes_input=True), forgetful=True) as run:
        assert await run.say("m1", "hello")
        assert await run.say("m2", "two\nlines")
        await run.until_fact("line", 3)
        assert await run.finish() == 0
    assert [fact["text"] for fact in run.of("line")] == ["hello", "two", "lines"]


async def test_its_environment_holds_only_what_it_was_given(tmp_path: Path) -> None:
    """A12: nothing of the engine's environment leaks into the child."""
    environment = {"PATH": os.environ["PATH"], "AWS_SECRET_ACCESS_KEY": "canary-1", "HOME": "/root"}
    order = an_order(tmp_path, argv=["env"], env={"COLOUR": "blue"})
    command = command_of(Shell(), order, environment)
    assert set(command.env) == {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TERM", "COLOUR"}
    assert command.env["HOME"] == str(tmp_path / "home")
    async with started(Shell(), order, environment) as run:
        assert await run.ended() == 0
    assert not any("canary" in fact["text"] for fact in run.facts)
    assert any(fact["text"] == "COLOUR=blue" for fact in run.facts)


def test_its_home_and_temporary_folder_are_private(tmp_path: Path) -> None:
    """A21."""
    command = command_of(Shell(), an_order(tmp_path, argv=["true"]))
    for name in ("HOME", "TMPDIR"):
        assert stat.S_IMODE(Path(command.env[name]).stat().st_mode) == 0o700


def test_values_that_look_like_keys_are_secrets(tmp_path: Path) -> None:
    env = {
        "DEPLOY_TOKEN": "t0ken-value",
        "COLOUR": "turquoise",
        "API_KEY": "short",
        "MY_TOKENS": "128000",
        "MODE_AUTH": "enabled",
    }
    command = command_of(Shell(), an_order(tmp_path, argv=["true"], env=env))
    assert command.secrets == {"DEPLOY_TOKEN": "t0ken-value"}


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(AgentMissing) as caught:
        Shell().find({"PATH": "/usr/bin"}, ["no-such-program"])
    assert "no-such-program" in caught.value.what
    assert caught.value.hint


def test_a_path_is_taken_as_it_is_and_looked_at_when_it_starts() -> None:
    assert Shell().find({}, ["./run.sh"]).path == Path("./run.sh")
    assert Shell().find({"PATH": "/usr/bin:/bin"}, ["sh"]).path.is_absolute()


@pytest.mark.parametrize("argv", [[], [""]])
def test_no_command_at_all_is_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidInput):
        Shell().find({"PATH": "/usr/bin"}, argv)


def test_it_has_no_transcript(tmp_path: Path) -> None:
    order = an_order(tmp_path)
    assert Shell().transcript(order, order.session) is None
    with pytest.raises(NotFound):
        Shell().transcript_home(order, order.session, "x.jsonl")
    assert Shell().converse(order).answer("1", allow=True) is None
