"""Encrypted databases for tests, and a search of raw bytes."""

from collections.abc import Iterable
from pathlib import Path

import maos
from maos.keys.sources import generate_key_file
from maos.settings.loader import Current

TYPES = [maos.EventType("note")]


def settings_of(key: Path | str, **more: str) -> Current:
    """Settings with a key file, or another source of a key."""
    source = key if isinstance(key, str) else f"file:{key}"
    return Current(environment={"MAOS_ENCRYPTION_SOURCE": source, **more})


def new_key(folder: Path, name: str = "key") -> Path:
    """Return a new key file."""
    folder.mkdir(exist_ok=True)
    generate_key_file(folder / name)
    return folder / name


def open_with(database: Path | str, key: Path | str, **more: str) -> maos.open:
    """Open a database with a key; a new one becomes encrypted."""
    return maos.open(database, types=TYPES, settings=lambda: settings_of(key, **more))


def note(text: str) -> maos.Event:
    return maos.Event("note", {"text": text})


def files_with(words: Iterable[str | bytes], folder: Path) -> dict[str, list[str]]:
    """Return which of these words are in the raw bytes of which files below a folder."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            here = [str(word) for word in words if (word.encode() if isinstance(word, str) else word) in content]
            if here:
                found[str(path.relative_to(folder))] = here
    return found
