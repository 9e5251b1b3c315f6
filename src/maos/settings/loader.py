"""Reads the settings: from the user's file, the project's, the variables and the flags, each outweighing those before.

Everything that is wrong is found at once, with its place; nothing is guessed, and nothing wrong is half used.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from maos.errors import InvalidInput, UnknownFormat
from maos.redact import REDACTED, Redactor
from maos.settings import schema
from maos.settings.locations import SettingsSource
from maos.settings.positions import Position, places
from maos.settings.schema import Field, Settings

FILE_BYTES_MAX = 64 << 10
SHOWN_CHARS_MAX = 60
DEFAULT, VARIABLE, FLAG = "default", "variable", "flag"
_SECRET = re.compile(r"(?i)(^|[_.-])(api_?)?(key|token|secret|password|passwd|passphrase|credentials?)s?$")
_SYNTAX = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.S)
_NOT_SETTINGS = (
    "MAOS_HOME", "MAOS_DB_SCHEMA", "MAOS_RUN", "MAOS_AGENT", "MAOS_ATTEMPT", "MAOS_ATTEMPT_FOLDER",
    "MAOS_CLAUDE_SETTING_SOURCES", "MAOS_CODEX_TRUST_WORKSPACE",
)  # fmt: skip


class SettingProblem(NamedTuple):
    """Something that is wrong."""

    where: str
    """A file with line and column, or a variable."""
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.hint})" if self.hint else "")


class SettingOrigin(NamedTuple):
    """Where a value comes from."""

    kind: str
    """default, file, variable or flag."""
    where: str = ""
    """The file with its line, or the name of the variable or flag."""


class Loaded(NamedTuple):
    """All settings, and where each comes from."""

    values: Settings
    origins: dict[str, SettingOrigin]
    files: Sequence[Path]
    notes: Sequence[str] = ()
    """What a person may want to know about the files, though nothing is wrong."""


class BadSettings(InvalidInput):
    """Settings that cannot be used, with the place of every mistake."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        first = problems[0]
        more = f"; and {len(problems) - 1} more, which `maos config validate` lists" if len(problems) > 1 else ""
        super().__init__(f"{first.where}: {first.what}{more}", hint=first.hint)
        self.problems = tuple(problems)


class NewerSettings(UnknownFormat):
    """A file of a version that this maos does not know."""


class _Layer(NamedTuple):
    """What one source says."""

    said: dict[str, Any]
    """By the name of the setting."""
    origins: dict[str, SettingOrigin]
    problems: list[SettingProblem]
    notes: list[str]


def load(
    sources: Iterable[SettingsSource],
    environment: Mapping[str, str],
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Loaded:
    """The settings; BadSettings with everything that is wrong, NewerSettings for a file of a later version.

    `flags` are the settings that a person gave with the command: the flag and its value.
    """
    sources = list(sources)
    layers = [read(each) for each in sources]
    layers.append(_variables(environment))
    layers.append(_flags(flags or {}))
    problems = [problem for layer in layers for problem in layer.problems]
    if problems:
        raise BadSettings(problems)
    said: dict[str, Any] = {}
    origins: dict[str, SettingOrigin] = {}
    for layer in layers:
        said |= layer.said
        origins |= layer.origins
    notes = [note for layer in layers for note in layer.notes]
    return Loaded(_settings(said), origins, [each.path for each in sources], notes)


def _settings(said: Mapping[str, Any]) -> Settings:
    sections: dict[str, dict[str, Any]] = {}
    policies: dict[str, dict[str, Any]] = {}
    for name, value in said.items():
        section, _, key = name.partition(".")
        if name.startswith("cleanup.of."):
            kind, _, key = name.removeprefix("cleanup.of.").rpartition(".")
            policies.setdefault(kind, {})[key] = value
        else:
            sections.setdefault(section, {})[key] = value
    if policies:
        cleanup = sections.setdefault("cleanup", {})
        general = {name: cleanup[name] for name in schema.PolicySettings.__struct_fields__ if name in cleanup}
        cleanup["of"] = {kind: schema.PolicySettings(**{**general, **each}) for kind, each in policies.items()}
    defaults = Settings()
    return Settings(
        **{name: msgspec.structs.replace(getattr(defaults, name), **values) for name, values in sections.items()}
    )


# --- files -------------------------------------------------------------------------------------------------------


def read(source: SettingsSource) -> _Layer:
    """What a file says, and what is wrong with it."""
    layer = _Layer({}, {}, [], [])
    name = str(source.path)
    try:
        content = _content(source.path)
    except FileNotFoundError:
        return layer
    except OSError as error:
        layer.problems.append(SettingProblem(name, f"cannot be read: {error.strerror}"))
        return layer
    if len(content) > FILE_BYTES_MAX:
        layer.problems.append(SettingProblem(name, f"has more than {FILE_BYTES_MAX >> 10} KB, which are not settings"))
        return layer
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        layer.problems.append(SettingProblem(f"{name}:{line}", "is not text in UTF-8"))
        return layer
    check(text, source, layer)
    return layer


def check(text: str, source: SettingsSource, into: _Layer | None = None) -> _Layer:
    """What a text says that is in a file, or is to be."""
    layer = into or _Layer({}, {}, [], [])
    name = str(source.path)
    text = text.replace("\r\n", "\n")
    try:
        file = _File(source, tomllib.loads(text), text, layer)
    except tomllib.TOMLDecodeError as error:
        found = _SYNTAX.fullmatch(str(error))
        end = (text.count("\n") + 1, len(text) - text.rfind("\n"))
        what = found[1] if found else str(error)
        line, column = (found[2], found[3]) if found and found[2] else end
        layer.problems.append(SettingProblem(f"{name}:{line}:{column}", f"not TOML: {what[:1].lower()}{what[1:]}"))
        return layer
    except RecursionError:
        layer.problems.append(SettingProblem(name, "is nested too deeply, which settings are not"))
        return layer
    file.check()
    return layer


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


class _File:
    """A file being checked."""

    def __init__(self, source: SettingsSource, document: dict[str, Any], text: str, layer: _Layer) -> None:
        self._source = source
        self._document = document
        self._places = places(text)
        self._layer = layer

    def check(self) -> None:
        version = self._version()
        for way, value in _leaves(self._document):
            if way != ("version",):
                self._one(".".join(way), way, value, version)

    def _version(self) -> int:
        version = self._document.get("version", schema.VERSION)
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            self._wrong(("version",), f"version is {_shown(version)}", f"this maos writes version = {schema.VERSION}")
            return schema.VERSION
        if version > schema.VERSION:
            raise NewerSettings(
                f"{self._where(self._places.values[('version',)])}: settings of version {version}; "
                f"this maos knows up to {schema.VERSION}",
                hint="use a newer maos, or set `version` back and see what `maos config validate` says",
            )
        return version

    def _one(self, name: str, way: tuple[str, ...], value: Any, version: int) -> None:
        for old in range(version, schema.VERSION):
            newer = schema.UPGRADES[old].get(name)
            if newer is not None:
                where = self._where(self._places.keys[way])
                self._layer.notes.append(f"{where}: {name} of version {version} is {newer} now")
                name = newer
        field = schema.fields().get(name)
        if name.startswith("cleanup.of.") and len(way) > 3:
            field = schema.policy_fields(".".join(way[2:-1])).get(name)
        if field is None and _SECRET.search(name) and not get_close_matches(name, schema.fields(), n=1, cutoff=0.85):
            hint = "secrets are never in a file: give them to the agents' programs by variables"
            self._wrong(way, f"{name} looks like a secret", hint, key=True)
        elif field is None:
            self._unknown(name, way, version)
        elif field.personal and self._source.is_project:
            hint = f"put it into your own file (`maos config path`) or the variable {field.variable}"
            self._wrong(way, f"{name} cannot be said by a project's file", hint, key=True)
        elif REDACTED in Redactor({}).text(str(value)):
            hint = f"secrets are never in a file: use the variable {field.variable}"
            self._wrong(way, f"the value of {name} looks like a secret", hint)
        else:
            self._accept(field, way, value)

    def _accept(self, field: Field, way: tuple[str, ...], value: Any) -> None:
        try:
            converted = field.convert(value)
        except ValueError:
            self._wrong(way, f"{field.name} is {_shown(value)}", f"it can be {field.allowed}")
            return
        if field.name == "database.path":
            if self._source.is_project and "://" in converted:
                hint = "put it into your own file (`maos config path`) or the variable MAOS_DB"
                self._wrong(way, "the database of a project's file is a path", hint)
                return
            converted = _path(converted, self._source.path.parent)
        if field.name == "log.file" and converted:
            converted = _path(converted, self._source.path.parent)
        if field.name == "orchestrate.kind" and self._source.is_project and ":" in converted:
            hint = "put it into your own file (`maos config path`), or use the flag --kind"
            self._wrong(way, f"a project's file cannot name a program: orchestrate.kind is {_shown(value)}", hint)
            return
        self._layer.said[field.name] = converted
        place = self._places.keys[way]
        self._layer.origins[field.name] = SettingOrigin("file", f"{self._source.path}:{place.line}")

    def _unknown(self, name: str, way: tuple[str, ...], version: int) -> None:
        if name in schema.sections():
            self._wrong(way, f"{name} is {_shown(self._document[name])}", f"it is a table: [{name}]")
            return
        known = [*schema.fields(), *(each for old in range(version, schema.VERSION) for each in schema.UPGRADES[old])]
        known.remove("cleanup.of")
        section = ".".join(way[:-1])
        if way[:2] == ("cleanup", "of"):
            keys = ", ".join(schema.PolicySettings.__struct_fields__)
            self._wrong(way, f"there is no setting {name}", f"a table [cleanup.of.NAME] can have {keys}", key=True)
            return
        if section not in schema.sections() and section:
            near = get_close_matches(section, schema.sections(), n=1)
            guess = [f"{near[0]}.{way[-1]}"] if near and f"{near[0]}.{way[-1]}" in known else near
        else:
            inside = [each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == section]
            guess = [f"{section}.{each}".lstrip(".") for each in get_close_matches(way[-1], inside, n=1)]
        guess = guess or get_close_matches(name, known, n=1) or _by_key(way[-1], known)
        if guess:
            hint = f"did you mean {guess[0]}?"
        elif section in schema.sections():
            there = [each for each in known if each.startswith(f"{section}.")]
            hint = f"there are {', '.join(there)}"
        else:
            hint = f"there are the tables {', '.join(schema.sections())}"
        self._wrong(way, f"there is no setting {name}", hint, key=True)

    def _wrong(self, way: tuple[str, ...], what: str, hint: str, *, key: bool = False) -> None:
        place = self._places.keys[way] if key else self._places.values.get(way, self._places.keys[way])
        self._layer.problems.append(SettingProblem(self._where(place), what, hint))

    def _where(self, place: Position) -> str:
        return f"{self._source.path}:{place.line}:{place.column}"


def _leaves(table: Mapping[str, Any], way: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    """What is no table, and the way to it. An empty table of an unknown name counts too."""
    for key, value in table.items():
        here = (*way, key)
        known = ".".join(here) in schema.sections() or here[:2] == ("cleanup", "of")
        if isinstance(value, dict) and (value or known):
            yield from _leaves(value, here)
        else:
            yield here, value


def _by_key(key: str, known: Iterable[str]) -> list[str]:
    """The one setting whose last name this is: somebody has forgotten the table."""
    found = [each for each in known if each.rpartition(".")[2] == key]
    return found if len(found) == 1 else []


def _path(text: str, folder: Path) -> str:
    """A path counts from the folder of the file that says it."""
    if "://" in text or text == ":memory:":
        return text
    return str(folder / Path(text).expanduser())


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


# --- variables and flags -----------------------------------------------------------------------------------------


def _variables(environment: Mapping[str, str]) -> _Layer:
    layer = _Layer({}, {}, [], [])
    for field in schema.fields().values():
        given = environment.get(field.variable, "") if field.variable else ""
        if not given:
            continue
        try:
            layer.said[field.name] = field.convert(given, text=True)
        except ValueError:
            shown = "what it is" if field.personal else _shown(given)
            layer.problems.append(SettingProblem(field.variable, f"cannot be {shown}", f"it can be {field.allowed}"))
        layer.origins[field.name] = SettingOrigin(VARIABLE, field.variable)
    known = {each.variable for each in schema.fields().values()}
    for name in sorted(environment):
        is_unknown = name.startswith("MAOS_") and name not in known and name not in _NOT_SETTINGS
        if is_unknown and (near := get_close_matches(name, known, n=1, cutoff=0.85)):
            layer.notes.append(f"{name} is no variable of maos; did you mean {near[0]}?")
    return layer


def _flags(flags: Mapping[str, tuple[str, Any]]) -> _Layer:
    """Flags have been checked where they were read."""
    said = {name: value for name, (_flag, value) in flags.items()}
    return _Layer(said, {name: SettingOrigin(FLAG, flag) for name, (flag, _value) in flags.items()}, [], [])
