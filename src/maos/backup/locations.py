"""Where backups are: a folder, or a bucket of S3, Google Cloud Storage or Azure.

An object is created once, or replaced if it is still what the caller has read (compare-and-swap), so that of two
writers one is refused. An object is complete and durable when the call returns. Objects in a folder are files for their
owner alone, which are synced together with their folder: obstore's own local store syncs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from maos.errors import DiskFull, InvalidInput, MaosError, StoreUnavailable
from maos.faults import crash_point
from maos.files import is_regular, private_folder, read_bounded, sync_folder
from maos.patterns import regex
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
SCHEMES = ("s3", "gs", "az")
OBJECT_BYTES_MAX = 1 << 30
RETRIES_MAX = 3
TIMEOUT_S = 30
CONNECT_S = 5
RETRY_S_MAX = 20
_NAME = regex(r"[a-z0-9]+(/[a-z0-9]+)*")
_LOCK = ".lock"
_PARTIAL = ".partial"


class StoredObject(NamedTuple):
    """The content of an object, and what tells this version of it from others."""

    content: bytes
    tag: str


class Location(Protocol):
    """A place for the objects of backups."""

    name: str
    """The folder, or the URL, for messages."""

    async def create(self, name: str, content: bytes) -> bool:
        """Write a new object; return False when there is one of this name."""
        ...

    async def replace(self, name: str, content: bytes, *, tag: str) -> str | None:
        """Replace an object that still has this tag, or create one if the tag is empty; return the new tag.

        Returns None, and changes nothing, when another process has replaced it since.
        """
        ...

    async def read(self, name: str) -> StoredObject | None:
        """Return an object; None when there is none of this name."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object, if there is one of this name."""
        ...

    def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all objects below a prefix, which ends at a slash, sorted."""
        ...


def open_location(name: str) -> Location:
    """Return the location of a folder's path or a bucket's URL; nothing is connected or created yet."""
    scheme, separator, _rest = name.partition("://")
    if not separator:
        return FolderLocation(Path(name).expanduser().absolute())
    if scheme not in SCHEMES:
        hint = f"give a folder, or a URL such as {', '.join(f'{each}://bucket/path' for each in SCHEMES)}"
        raise InvalidInput(f"{scheme}:// cannot hold a backup", hint=hint)
    if "@" in name:
        hint = "name the bucket only; credentials come from variables, such as AWS_SECRET_ACCESS_KEY"

        raise InvalidInput("the URL of a backup has a user name or a password in it", hint=hint)
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        what = f"a backup to {scheme}:// needs the package obstore"
        raise InvalidInput(what, hint="pip install 'maos[backup]'") from error
    return BucketLocation(name)


class FolderLocation:
    """A folder: on another disk, a network share, or a synchronized one."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder

    async def create(self, name: str, content: bytes) -> bool:
        return await self._work(self._create, name, content)

    async def replace(self, name: str, content: bytes, *, tag: str) -> str | None:
        return await self._work(self._replace, name, content, tag)

    async def read(self, name: str) -> StoredObject | None:
        return await self._work(self._read, name)

    async def delete(self, name: str) -> None:
        await self._work(self._delete, name)

    async def names(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._work(self._names, prefix):
            yield name

    async def _work(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.to_thread(work, *arguments)
        except OSError as error:
            raise _unavailable(self.name, error) from error

    def _create(self, name: str, content: bytes) -> bool:
        path = self._path(name)
        with self._written(path, content) as partial:
            try:
                os.link(partial, path)  # fails where there is one, unlike a rename
            except FileExistsError:
                return False
        sync_folder(path.parent)
        return True

    def _replace(self, name: str, content: bytes, tag: str) -> str | None:
        path = self._path(name)
        private_folder(path.parent)
        descriptor = os.open(path.parent / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            found = self._read(name)
            if (found.tag if found is not None else "") != tag:
                return None
            with self._written(path, content) as partial:
                os.replace(partial, path)
            sync_folder(path.parent)
        finally:
            os.close(descriptor)
        return _tag(content)

    def _read(self, name: str) -> StoredObject | None:
        path = self._path(name)
        if not is_regular(path):
            if os.path.lexists(path):
                raise OSError(0, "it is not a regular file", str(path))
            if os.path.lexists(self._folder) and not self._folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self._folder))
            return None
        content = read_bounded(path, OBJECT_BYTES_MAX)
        return StoredObject(content, _tag(content))

    def _delete(self, name: str) -> None:
        path = self._path(name)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)

    def _names(self, prefix: str) -> list[str]:
        found = []
        for folder, _folders, files in os.walk(self._folder / prefix):
            below = Path(folder).relative_to(self._folder)
            found += [str(below / file) for file in files if _NAME.fullmatch(file)]
        return sorted(found)

    @contextlib.contextmanager
    def _written(self, path: Path, content: bytes) -> Iterator[Path]:
        """A synced file with the content beside the path; removed afterwards if it still has its own name."""
        private_folder(path.parent)
        partial = path.with_name(f"{path.name}-{os.getpid()}{_PARTIAL}")
        partial.unlink(missing_ok=True)
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            crash_point("backup: object not yet named")
            yield partial
        finally:
            partial.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{name!r} cannot name an object of a backup")
        return self._folder / name


class BucketLocation:
    """A bucket of S3, Google Cloud Storage or Azure; credentials come from the variables of its provider."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._made: ObjectStore | None = None

    @property
    def _store(self) -> ObjectStore:
        if self._made is None:
            from datetime import timedelta

            from obstore.store import from_url

            try:
                self._made = from_url(
                    self.name,
                    client_options={
                        "timeout": f"{TIMEOUT_S}s",
                        "connect_timeout": f"{CONNECT_S}s",
                        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true",
                    },
                    retry_config={"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_S_MAX)},
                )
            except Exception as error:  # obstore has one for each wrong option
                raise InvalidInput(f"{self.name} cannot be used: {_first_line(error)}") from error
        return self._made

    async def create(self, name: str, content: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._explained():
                await obstore.put_async(self._store, name, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    async def replace(self, name: str, content: bytes, *, tag: str) -> str | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            with self._explained():
                done = await obstore.put_async(
                    self._store, name, content, mode={"e_tag": tag} if tag else "create", use_multipart=False
                )
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return None
        return done["e_tag"] or ""

    async def read(self, name: str) -> StoredObject | None:
        import obstore

        try:
            with self._explained():
                found = await obstore.get_async(self._store, name)
                if found.meta["size"] > OBJECT_BYTES_MAX:
                    raise InvalidInput(f"{self.name}/{name} is larger than any object of a backup")
                return StoredObject(bytes(await found.bytes_async()), found.meta["e_tag"] or "")
        except FileNotFoundError:
            return None

    async def delete(self, name: str) -> None:
        import obstore

        with contextlib.suppress(FileNotFoundError), self._explained():
            await obstore.delete_async(self._store, name)

    async def names(self, prefix: str) -> AsyncIterator[str]:
        import obstore

        found: list[str] = []
        with self._explained():
            async for page in obstore.list(self._store, prefix=prefix.rstrip("/") or None):
                found += [each["path"] for each in page if _NAME.fullmatch(each["path"])]
        for name in sorted(found):
            yield name

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise StoreUnavailable for what the provider answers, or does not; what the callers decide on stays."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, FileNotFoundError, PreconditionError):
            raise
        except (BaseError, OSError, TimeoutError) as error:
            raise _unavailable(self.name, error) from error


def _tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _unavailable(name: str, error: Exception) -> MaosError:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return DiskFull(name)
    why = error.strerror if isinstance(error, OSError) and error.strerror else _first_line(error)
    return StoreUnavailable(
        f"the backup at {name} cannot be used: {why}",
        written=None,
        hint="check that it exists, and that you may write there; what is recorded is safe in the database",
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0][:500]
