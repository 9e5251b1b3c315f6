"""A person's consent before anything is executed that a file from elsewhere has brought."""

from __future__ import annotations

from maos.clock import Clock
from maos.errors import InvalidInput
from maos.journal.journal import Journal
from maos.model.events.records import BundleImported, BundleTrusted
from maos.model.run import bundle_stream, dotted


class NotAgreed(InvalidInput):
    """It came with a file, and no person here has agreed to what it would do."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"{id} came with a file, and no person has agreed to what it would do here",
            hint=f"`maos resume {id} --dry-run` shows it (`maos workflow show {id}` for a workflow); --trust agrees",
        )
        self.id = id


async def waits(journal: Journal, name: str) -> str:
    """The run or workflow run that a person must agree to before the one of that name may act; empty if none."""
    for id in dotted(name):
        version = await journal.version(bundle_stream(id))
        newest = await journal.event(bundle_stream(id), version) if version else None
        if newest is not None and isinstance(newest.event, BundleImported):
            of = newest.event.of or id
            found = of if of == id else await waits(journal, of)
            if found:  # else that one is agreed to, and another it belongs to may not be
                return found
    return ""


async def check(journal: Journal, name: str) -> None:
    """NotAgreed when the run or agent of that name may not act yet."""
    if id := await waits(journal, name):
        raise NotAgreed(id)


async def agree(journal: Journal, clock: Clock, id: str) -> None:
    """Note that a person has seen what would be done, and wants it to be."""
    journal.principal.check_may_decide(f"agree to what {id} would do")
    if await waits(journal, id):
        await journal.append(bundle_stream(id), BundleTrusted(by=journal.by, at_us=clock.now_us()))
