"""The settings as they are now, for a process that runs while somebody edits them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from maos.errors import InvalidInput, MaosError
from maos.settings import loader, schema
from maos.settings.loader import Loaded
from maos.settings.locations import SettingsSource
from maos.settings.schema import Settings


class ChangedSetting(NamedTuple):
    """A setting that has changed."""

    name: str
    before: Any
    after: Any
    live: bool
    """Whether it counts at once."""

    def __str__(self) -> str:
        now = "" if self.live else ", from the next start on"
        if schema.fields()[self.name].personal:  # addresses can have secrets in them
            return f"{self.name} has changed{now}"
        return f"{self.name}: {shown(self.before)} → {shown(self.after)}{now}"


class News(NamedTuple):
    """What became of the settings since somebody last looked."""

    changed: Sequence[ChangedSetting] = ()
    problem: MaosError | None = None
    """Why the files cannot be used; everything stays as it was."""


class Current:
    """Settings that can be looked at again."""

    def __init__(
        self,
        find: Callable[[], Sequence[SettingsSource]] = lambda: (),
        environment: Mapping[str, str] | None = None,
        flags: Mapping[str, tuple[str, Any]] | None = None,
    ) -> None:
        self._find = find
        self._environment = os.environ if environment is None else environment
        self._flags = dict(flags or {})
        self._seen: list[tuple[Path, tuple[int, ...]]] | None = self._stamps()
        """The files as they were last; None when they could not be looked for."""
        self.loaded: Loaded = self._load()
        """What the files, variables and flags say."""
        self.values: Settings = self.loaded.values
        """What counts now: what cannot change while this runs is as it was at the start."""

    def look(self) -> News | None:
        """Look at the files again; None when nobody has touched them. What can change at once has then changed."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return None
            loaded = self._load()
        except OSError as error:
            was_told, self._seen = self._seen is None, None
            hint = "put back the folder that maos was started in; the settings are looked at again then"
            return None if was_told else News(problem=InvalidInput(f"they cannot be looked for: {error}", hint=hint))
        except MaosError as error:
            self._seen = stamps
            return News(problem=error)
        self._seen = stamps
        before, self.loaded = self.loaded, loaded
        found = []
        for field in schema.fields().values():
            old, new = (schema.value_of(each.values, field.name) for each in (before, loaded))
            if old != new:
                found.append(ChangedSetting(field.name, old, new, field.live))
        self.values = schema.with_live(self.values, loaded.values)
        return News(found)

    def _load(self) -> Loaded:
        return loader.load(self._find(), self._environment, self._flags)

    def _stamps(self) -> list[tuple[Path, tuple[int, ...]]]:
        return [(each.path, _stamp(each.path)) for each in self._find()]


def shown(value: Any) -> str:
    """A value for people."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(value) or "none"
    return str(value) or "none"


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)
