"""Signals handled by callbacks, for commands that must end in an orderly way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heard(*, interrupted: Callable[[], None], sent_away: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Ctrl+C interrupts; SIGTERM and a closed terminal send away.

    One that is ignored stays so: `nohup`, and jobs in the background of a script.
    """
    loop = asyncio.get_running_loop()
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGINT: interrupted,
        signal.SIGTERM: lambda: sent_away(signal.SIGTERM),
        signal.SIGHUP: lambda: sent_away(signal.SIGHUP),
    }
    ours = [each for each in handlers if signal.getsignal(each) is not signal.SIG_IGN]
    for each in ours:
        loop.add_signal_handler(each, handlers[each])
    try:
        yield
    finally:
        for each in ours:
            loop.remove_signal_handler(each)
