"""The current settings, reloaded when their files change while a process runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from maos.errors import InvalidInput, MaosError
from maos.settings import SettingsSource, config_folder, find_files, loader, schema
from maos.settings.loader import Loaded
from maos.settings.schema import Settings


class ChangedSetting(NamedTuple):
    """A setting that has changed."""

    name: str
    before: Any
    after: Any
    live: bool
    """Whether it takes effect without a restart."""

    def __str__(self) -> str:
        when = "" if self.live else ", from the next start on"
        if schema.fields()[self.name].personal:  # addresses can have secrets in them
            return f"{self.name} has changed{when}"
        return f"{self.name}: {render_value(self.before)} → {render_value(self.after)}{when}"


class News(NamedTuple):
    """What has changed in the settings since they were last reloaded."""

    changed: Sequence[ChangedSetting] = ()
    problem: MaosError | None = None
    """Why the files cannot be used; the settings stay as they were."""


class Current:
    """Settings that can be reloaded."""

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
        """The files as they were when last read; None when they could not be found out."""
        self.loaded: Loaded = self._load()
        """The values in the files, variables and flags."""
        self.values: Settings = self.loaded.values
        """The values in effect: settings that need a restart stay as they were at the start."""

    def look(self) -> News | None:
        """Reload the files if they have changed, and apply what needs no restart; None when they have not."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return None
            loaded = self._load()
        except OSError as error:
            reported, self._seen = self._seen is None, None
            hint = "restore the folder that maos was started in; the settings are then reloaded"
            problem = InvalidInput(f"cannot look for settings files: {error}", hint=hint)
            return None if reported else News(problem=problem)
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
        self.values = schema.apply_live(self.values, loaded.values)
        return News(found)

    def _load(self) -> Loaded:
        return loader.load(self._find(), self._environment, self._flags)

    def _stamps(self) -> list[tuple[Path, tuple[int, ...]]]:
        return [(each.path, _stamp(each.path)) for each in self._find()]


def here(flags: Mapping[str, tuple[str, Any]] | None = None, environment: Mapping[str, str] | None = None) -> Current:
    """Return the settings for the current folder; raise BadSettings with the position of every mistake."""
    folder, config = Path.cwd(), config_folder(environment)
    return Current(lambda: find_files(folder, config).sources, environment, flags)


def render_value(value: Any) -> str:
    """Return a value as text for people."""
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
