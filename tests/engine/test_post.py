"""What comes into inboxes reaches those who registered, in order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import maos
from maos.engine.post import Post
from maos.journal.journal import Record


async def test_what_comes_while_the_earlier_is_read_does_not_overtake_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I19: who keeps the newest version only would lose what was overtaken."""
    async with maos.open(tmp_path / "maos.db") as m:
        post = Post(m.journal)

        async def wish(number: int) -> None:
            await m.journal.append("inbox/a", maos.Event("stop_requested", {"grace_s": number}))

        await wish(1)
        await post.register("somebody else", lambda _record: None, after=0)  # the reader begins after the first
        read = m.journal.read

        async def slowly(stream: str, **more: Any) -> AsyncIterator[Record]:
            async for record in read(stream, **more):
                if record.version == 1:
                    await wish(2)
                    await wish(3)
                    await asyncio.sleep(0.3)  # time enough for the reader to bring them
                yield record

        monkeypatch.setattr(m.journal, "read", slowly)
        heard: list[int] = []
        await post.register("a", lambda record: heard.append(record.version), after=0)
        monkeypatch.undo()
        await wish(4)
        async with asyncio.timeout(60):
            while heard[-1] < 4:
                await asyncio.sleep(0.01)
        await post.close()
    assert list(dict.fromkeys(heard)) == sorted(set(heard)) == [1, 2, 3, 4]
