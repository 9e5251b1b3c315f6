"""What a program writes into its own transcript is recorded without the secrets that it was given."""

from __future__ import annotations

import os
from pathlib import Path

from maos.agents.contract import LaunchOrder
from maos.agents.shell import Shell
from maos.app import Maos
from maos.clock import SystemClock
from maos.engine.attempts import Attempts
from maos.model.attempt import attempt_id, stream

TOKEN = "deploy-with-this-1"
WRITE = """\
while [ ! -e go ]; do sleep 0.05; done
echo "the token is $DEPLOY_TOKEN, mine is $MAOS_ATTEMPT_SECRET." > "$HOME/session.jsonl"
cp "$HOME/session.jsonl" written
"""


class Noting(Shell):
    """A command with a transcript."""

    def transcript(self, order: LaunchOrder, session: str) -> Path | None:
        return order.home / "session.jsonl"


def engine(m: Maos, home: Path) -> Attempts:
    environment = {"PATH": os.environ["PATH"], "DEPLOY_TOKEN": TOKEN}
    return Attempts(m.journal, SystemClock(), dialect=lambda _kind: Noting(), folder=home, environment=environment)


async def recorded(m: Maos) -> str:
    records = m.journal.read(stream(attempt_id("a", 1)))
    return "".join([each.data["text"] async for each in records if each.type == "attempt_transcript"])


async def test_variables_and_the_secret_of_the_attempt_are_not_in_the_transcript(
    m: Maos, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    attempts = engine(m, home)
    argv = ["sh", "-c", WRITE]
    running = await attempts.start(kind="shell", argv=argv, name="a", cwd=tmp_path, in_place=True, env=["DEPLOY_TOKEN"])
    await running.wait()
    await attempts.close()
    assert TOKEN in (tmp_path / "written").read_text()
    assert await recorded(m) == "the token is [redacted:DEPLOY_TOKEN], mine is [redacted:MAOS_ATTEMPT_SECRET].\n"


async def test_nor_are_variables_when_another_engine_has_attached(m: Maos, home: Path, tmp_path: Path) -> None:
    first = engine(m, home)
    argv = ["sh", "-c", WRITE]
    await first.start(kind="shell", argv=argv, name="a", cwd=tmp_path, in_place=True, env=["DEPLOY_TOKEN"])
    await first.close()
    second = engine(m, home)
    running = await second.adopt("a")
    assert running is not None
    (tmp_path / "go").touch()
    await running.wait()
    await second.close()
    assert (await recorded(m)).startswith("the token is [redacted:DEPLOY_TOKEN], mine is ")
