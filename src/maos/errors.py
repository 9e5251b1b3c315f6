"""Every error maos raises on purpose.

Each says what happened, which thing it happened to, and what to do next (`hint`).
"""

from __future__ import annotations

import os


class MaosError(Exception):
    """Base class of all errors: what happened, and what to do about it.

    Example::

        try:
            await m.state.get("unknown")
        except maos.MaosError as error:
            print(error.what, error.hint)
    """

    hint = ""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


class Conflict(MaosError):
    """The stream is not at the expected version; nothing was written.

    Example::

        try:
            await m.state.update("reviewer", {"status": "busy"}, expected=1)
        except maos.Conflict as error:
            print(error.stream, error.expected, error.actual)
    """

    hint = "read the stream again and repeat with its version"

    def __init__(
        self, stream: str, *, expected: int = 0, actual: int = 0, what: str = "", hint: str | None = None
    ) -> None:
        super().__init__(what or f"{stream} is at version {actual}, expected {expected}", hint=hint)
        self.stream = stream
        self.expected = expected
        self.actual = actual


class UntrustedStore(MaosError):
    """This user did not make the database on this machine, and has not agreed to use it; nothing of it is executed.

    Example::

        try:
            await m.state.update("reviewer", {"status": "busy"})
        except maos.UntrustedStore as error:
            print(error.what)
    """

    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"{place} {why}: it can be read, and nothing of it is executed or written",
            hint="`maos admin trust` shows what it would start here and asks you; or name another one with --db",
        )


class NotPermitted(MaosError):
    """The principal may not do this, or could not prove who it is; nothing was written.

    Example::

        try:
            await m.trust()
        except maos.NotPermitted as error:
            print(m.principal, error.what)
    """


class LeaseLost(MaosError):
    """The lease expired or another process has it; nothing was written.

    Example::

        try:
            await m.state.update("reviewer", {"status": "busy"}, under=lease)
        except maos.LeaseLost as error:
            lease = await journal.acquire(error.name)
    """

    hint = "stop acting for this name; acquire the lease again before you continue"

    def __init__(self, name: str, *, token: int, why: str) -> None:
        super().__init__(f"lease {name} with token {token} is not valid: {why}")
        self.name = name
        self.token = token


class KeyReused(MaosError):
    """An idempotency key was used for a different append; nothing was written.

    Example::

        try:
            await m.state.update("reviewer", {"status": "done"}, key="task/1")
        except maos.KeyReused as error:
            print(error.key)
    """

    hint = "use a new key for a new append"

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} already belongs to a different append")
        self.key = key


class StoreUnavailable(MaosError):
    """The disk or the database server failed.

    `written` is False when nothing was written, None when the outcome is unknown.
    An append with an unknown outcome can safely be repeated under the same key, which is the hint if none is given.

    Example::

        try:
            await m.state.update("reviewer", {"status": "busy"}, key="task/2")
        except maos.StoreUnavailable as error:
            print("unknown" if error.written is None else "nothing was written")
    """

    def __init__(self, what: str, *, written: bool | None, hint: str | None = None) -> None:
        if hint is None and written is None:
            hint = "the outcome is unknown; repeating the append under the same key is safe"
        super().__init__(what, hint=hint)
        self.written = written


class DiskFull(StoreUnavailable):
    """No space left on the device; nothing of the append was written.

    Example::

        try:
            await m.state.update("reviewer", {"status": "busy"})
        except maos.DiskFull as error:
            print(error.what, error.hint)
    """

    hint = "free some space there, and repeat it; reading still works"

    def __init__(self, where: str) -> None:
        folder = f"on the server of {where}" if "://" in where else f"in {os.path.dirname(os.path.abspath(where))}"
        super().__init__(f"no space left {folder}", written=False)


class Corrupt(MaosError):
    """Stored bytes do not verify; no value is guessed for them.

    Example::

        try:
            await m.state.history("reviewer")
        except maos.Corrupt as error:
            print(error.stream, error.version)
    """

    hint = "run `maos admin verify` to see what is damaged and what can be recovered"

    def __init__(self, what: str, *, stream: str = "", version: int = 0, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.stream = stream
        self.version = version


class HistoryLost(MaosError):
    """The journal ends before a position that was acknowledged.

    Example::

        try:
            m = await maos.open("maos.db")
        except maos.HistoryLost as error:
            print(error.acknowledged, error.found)
    """

    def __init__(self, where: str, *, acknowledged: int, found: int, why: str) -> None:
        super().__init__(
            f"{where}: position {acknowledged} was acknowledged, but {why}",
            hint="restore the newest copy of the database (with its -wal file), "
            "or open with accept_loss=True (`maos admin verify --accept-loss`) to continue without the lost events",
        )
        self.acknowledged = acknowledged
        self.found = found


class UnknownFormat(MaosError):
    """Data that a newer or foreign maos wrote; it is refused, not guessed.

    Example::

        try:
            await journal.append("run/1", maos.Event("unheard of", {}))
        except maos.UnknownFormat as error:
            print(error.what, error.hint)
    """

    hint = "use the maos version that wrote it, or a newer one"


class NotFound(MaosError):
    """The requested agent, version, event or snapshot does not exist.

    Example::

        try:
            state = await m.state.get("writer")
        except maos.NotFound:
            state = await m.state.create("writer")
    """


class Erased(NotFound):
    """What was asked for was erased: the key that it was sealed with was destroyed.

    Example::

        try:
            run = await m.runs.get("r-1")
        except maos.Erased as error:
            print(error.scope)
    """

    def __init__(self, scope: str) -> None:
        super().__init__(f"{scope or 'this'} was erased", hint="its key was destroyed; nothing brings it back")
        self.scope = scope


class Locked(MaosError):
    """The database is encrypted, and its key was not given, is another one, or is not there; nothing was written.

    Example::

        try:
            state = await m.state.get("reviewer")
        except maos.Locked as error:
            print(error.what, error.hint)
    """


class InvalidInput(MaosError):
    """The request cannot be executed as given; nothing was written.

    Example::

        try:
            await m.state.update("reviewer", {"score": float("nan")})
        except maos.InvalidInput as error:
            print(error.what, error.hint)
    """


UNREADABLE = (StoreUnavailable, Corrupt, HistoryLost, UnknownFormat)
"""The database cannot be read, or a part of it: nothing that it holds may be left out instead."""
