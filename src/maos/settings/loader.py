"""Loads the settings from the user's file, the project's, variables and flags, which take precedence in this order;
reloads them when the files change while a process runs; and writes settings files.

All mistakes are reported together, each with its position. Settings with a mistake are never partly used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from maos.errors import InvalidInput, MaosError, UnknownFormat
from maos.faults import crash_point
from maos.files import private_folder, read_bounded, sync_folder
from maos.redact import REDACTED, Redactor, is_secret_name
from maos.settings import (
    DatabaseName,
    SettingsSource,
    config_folder,
    find_files,
    names_program,
    schema,
    state_folder,
)
from maos.settings.positions import DIGITS_MAX, NotToml, Position, Problem, find_positions, parse_toml
from maos.settings.schema import Field, Settings
from maos.tuples import NamedTuple

FILE_BYTES_MAX = 64 << 10
SHOWN_CHARS_MAX = 60
DEFAULT, VARIABLE, FLAG = "default", "variable", "flag"
HIDDEN = "(hidden)"
"""In the place of addresses, which may have a key in them."""
_NOT_SETTINGS = (
    "MAOS_HOME", "MAOS_DB_SCHEMA", "MAOS_RUN", "MAOS_ATTEMPT", "MAOS_ATTEMPT_FOLDER", "MAOS_ATTEMPT_SECRET",
    "MAOS_URL", "MAOS_TOKEN",
)  # fmt: skip


class SettingOrigin(NamedTuple):
    """Where a value comes from."""

    kind: str
    """default, file, variable or flag."""
    where: str = ""
    """The file with its line, or the name of the variable or flag."""


class AskedFor(NamedTuple):
    """Settings of a project's file that take effect when the user has agreed to them."""

    path: Path
    values: Mapping[str, Any]

    def agree(self, environment: Mapping[str, str] | None = None) -> None:
        """Record that this user has agreed to them, as they are now."""
        private_folder(self._file(environment).parent)
        self._file(environment).touch(mode=0o600)

    def is_agreed(self, environment: Mapping[str, str] | None = None) -> bool:
        """Whether this user has agreed to them."""
        return self._file(environment).is_file()

    def _file(self, environment: Mapping[str, str] | None) -> Path:
        import hashlib  # loads OpenSSL, which most commands do not need

        said = json.dumps([str(self.path), self.values], sort_keys=True, default=list)
        return state_folder(environment) / "agreed" / hashlib.sha256(said.encode()).hexdigest()


class NotAgreedTo(InvalidInput):
    """A project's settings file names commands, variables or files, and the user has not agreed to them."""

    def __init__(self, asked: AskedFor) -> None:
        names = ", ".join(asked.values)
        super().__init__(
            f"{asked.path} sets {names}, and you have not agreed to it",
            hint="`maos admin trust` shows it and asks you; or remove it from the file",
        )


class Loaded(NamedTuple):
    """All settings, and where each comes from."""

    values: Settings
    origins: dict[str, SettingOrigin]
    files: Sequence[Path]
    notes: Sequence[str] = ()
    """Remarks about the files that are not mistakes."""
    asked: AskedFor | None = None
    """What the project's file sets and the user has not agreed to; it has no effect."""

    def check_agreed(self) -> None:
        """NotAgreedTo when the project's file asks for something that the user has not agreed to."""
        if self.asked is not None:
            raise NotAgreedTo(self.asked)


class BadSettings(InvalidInput):
    """The settings cannot be used; `problems` has the position of every mistake."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        more = f"; and {len(problems) - 1} more, which `maos admin config validate` lists" if len(problems) > 1 else ""
        super().__init__(f"{first.where}: {first.what}{more}", hint=first.hint)
        self.problems = tuple(problems)


class NewerSettings(UnknownFormat):
    """A settings file has a newer version than this maos knows."""


class _Layer(msgspec.Struct):
    """The settings of one source."""

    values: dict[str, Any] = {}
    origins: dict[str, SettingOrigin] = {}
    problems: list[Problem] = []
    notes: list[str] = []
    asked: dict[str, Any] = {}


def load(
    sources: Iterable[SettingsSource],
    environment: Mapping[str, str],
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Loaded:
    """Load the settings; raise BadSettings with all mistakes, NewerSettings for a file of a newer version.

    `flags` are the settings given on the command line: for each, its flag and its value.
    """
    sources = list(sources)
    layers = [*map(read, sources), _variables(environment), _flags(flags or {})]
    problems = [problem for layer in layers for problem in layer.problems]
    if problems:
        raise BadSettings(problems)
    values: dict[str, Any] = {}
    origins: dict[str, SettingOrigin] = {}
    asked = None
    for source, layer in zip_longest(sources, layers):
        if layer.asked:
            found = AskedFor(source.path, layer.asked)
            asked = None if found.is_agreed(environment) else found
            values |= layer.asked if asked is None else {}
        values |= layer.values
        origins |= {name: each for name, each in layer.origins.items() if asked is None or name not in asked.values}
    if problems := _incomplete(values, origins):
        raise BadSettings(problems)
    notes = [note for layer in layers for note in layer.notes]
    if asked is not None:
        notes.append(f"{asked.path}: {', '.join(asked.values)} takes effect when you agree to it: `maos admin trust`")
    return Loaded(_build(values), origins, [each.path for each in sources], notes, asked)


def _build(by_name: Mapping[str, Any]) -> Settings:
    tables: dict[str, Any] = {}
    for name, value in by_name.items():
        section, _, key = name.partition(".")
        table = tables.setdefault(section, {})
        if schema.table_of(name):
            own, _, key = key.removeprefix("of.").rpartition(".")
            table = table.setdefault("of", {}).setdefault(own, {})
        table[key] = value
    cleanup = tables.get("cleanup", {})
    general = {name: cleanup[name] for name in schema.PolicySettings.__struct_fields__ if name in cleanup}
    if "of" in cleanup:
        cleanup["of"] = {kind: general | each for kind, each in cleanup["of"].items()}
    return msgspec.convert(tables, Settings, dec_hook=schema.read_name)


_NEEDED = {
    "prices.of": (("input", "output"), "a price is in dollars for a million tokens"),
    "mcp.of": (("command",), "the program and its arguments, as a list"),
}


def _incomplete(values: Mapping[str, Any], origins: Mapping[str, SettingOrigin]) -> list[Problem]:
    """Prices and servers that lack what each must have."""
    found: dict[str, Problem] = {}
    for name in values:
        needed, hint = _NEEDED.get(schema.table_of(name), ((), ""))
        own = name.rpartition(".")[0]
        if lacking := [each for each in needed if f"{own}.{each}" not in values]:
            found[own] = Problem(origins[name].where, f"{own} has no {' and no '.join(lacking)}", hint)
    return list(found.values())


# --- files -------------------------------------------------------------------------------------------------------


def read(source: SettingsSource) -> _Layer:
    """Read a file: its settings and its mistakes."""
    name = str(source.path)
    try:
        content = read_bounded(source.path, FILE_BYTES_MAX)
    except FileNotFoundError:
        return _Layer()
    except OSError as error:
        return _Layer(problems=[Problem(name, f"cannot be read: {error.strerror}")])
    if len(content) > FILE_BYTES_MAX:
        what = f"has more than {FILE_BYTES_MAX >> 10} KB, too much for settings"
        return _Layer(problems=[Problem(name, what)])
    try:
        return check(content.decode(), source)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _Layer(problems=[Problem(f"{name}:{line}", "is not text in UTF-8")])


def check(text: str, source: SettingsSource) -> _Layer:
    """Check the text of a file, or of one that is to be written."""
    name = str(source.path)
    text = text.replace("\r\n", "\n")
    try:
        return _File(source, parse_toml(text), text).check()
    except NotToml as error:
        problem = Problem(f"{name}:{error.position.line}:{error.position.column}", str(error))
    except RecursionError:
        problem = Problem(name, "is nested too deeply for settings")
    except ValueError:  # of a number that Python cannot print; in TOML it has hexadecimal digits
        problem = Problem(name, f"a number has more than {DIGITS_MAX} digits")
    return _Layer(problems=[problem])


class _File:
    """A file being checked."""

    def __init__(self, source: SettingsSource, document: dict[str, Any], text: str) -> None:
        self._source = source
        self._document = document
        self._positions = find_positions(text)
        self._layer = _Layer()

    def check(self) -> _Layer:
        version = self._version()
        for path, value in _leaves(self._document):
            if path != ("version",):
                self._check_setting(".".join(path), path, value, version)
        return self._layer

    def _version(self) -> int:
        version = self._document.get("version", schema.VERSION)
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            self._wrong(("version",), f"version is {_quote(version)}", f"this maos writes version = {schema.VERSION}")
            return schema.VERSION
        if version > schema.VERSION:
            raise NewerSettings(
                f"{self._where(self._positions.values[('version',)])}: settings of version {version}; "
                f"this maos knows up to {schema.VERSION}",
                hint="use a newer maos, or lower `version` and run `maos admin config validate`",
            )
        return version

    def _check_setting(self, name: str, path: tuple[str, ...], value: Any, version: int) -> None:
        for old in range(version, schema.VERSION):
            newer = schema.UPGRADES[old].get(name)
            if newer is not None:
                where = self._where(self._positions.keys[path])
                self._layer.notes.append(f"{where}: {name} of version {version} is {newer} now")
                name = newer
        field = schema.fields().get(name)
        if (table := schema.table_of(name)) and len(path) > 3:
            field = schema.named_fields(table, ".".join(path[2:-1])).get(name)
        is_secret = field is None and is_secret_name(name.replace(".", "_"))
        if is_secret and not get_close_matches(name, schema.fields(), n=1, cutoff=0.85):
            hint = "files must not have secrets: pass them to the agents' programs in variables"
            self._wrong(path, f"{name} looks like a secret", hint, key=True)
        elif field is None:
            self._unknown(name, path, version)
        elif field.personal and self._source.is_project:
            hint = "put it into your own file (`maos admin config path`)"
            hint += f" or the variable {field.variable}" if field.variable else ""
            self._wrong(path, f"{name} is not allowed in a project's file", hint, key=True)
        elif REDACTED in Redactor({}).text(str(value)) or str(DatabaseName(str(value))) != str(value):
            hint = f"files must not have secrets: use the variable {field.variable}"
            self._wrong(path, f"the value of {name} looks like a secret", hint)
        else:
            self._accept(field, path, value)

    def _accept(self, field: Field, path: tuple[str, ...], value: Any) -> None:
        try:
            converted = field.convert(value)
        except msgspec.ValidationError:
            self._wrong(path, f"{field.name} is {_quote(value)}", f"it can be {field.allowed}")
            return
        if field.name in ("database.path", "log.file") and converted:
            folder, path_given = self._source.path.parent, _path(value, self._source.path.parent)
            converted = field.convert(path_given)
            is_inside = value == ":memory:" or Path(os.path.realpath(path_given)).is_relative_to(folder.resolve())
            if self._source.is_project and ("://" in value or not is_inside):
                hint = "put it into your own file (`maos admin config path`) or the variable MAOS_DB"
                self._wrong(path, "the database in a project's file must be a path below its folder", hint)
                return
        if field.name == "orchestrate.kind" and self._source.is_project and names_program(converted):
            hint = "put it into your own file (`maos admin config path`), or use the flag --kind"
            self._wrong(path, f"a project's file cannot name a program: orchestrate.kind is {_quote(value)}", hint)
            return
        is_asked = field.consent and self._source.is_project and msgspec.to_builtins(converted) != field.default
        (self._layer.asked if is_asked else self._layer.values)[field.name] = converted
        position = self._positions.keys[path]
        self._layer.origins[field.name] = SettingOrigin("file", f"{self._source.path}:{position.line}")

    def _unknown(self, name: str, path: tuple[str, ...], version: int) -> None:
        if name in schema.sections():
            self._wrong(path, f"{name} is {_quote(self._document[name])}", f"it is a table: [{name}]")
            return
        known = [*schema.fields(), *(each for old in range(version, schema.VERSION) for each in schema.UPGRADES[old])]
        known = [each for each in known if each not in schema.TABLES]
        section = ".".join(path[:-1])
        if table := schema.table_of(name):
            keys = ", ".join(schema.TABLES[table].__struct_fields__)
            self._wrong(path, f"there is no setting {name}", f"a table [{table}.NAME] can have {keys}", key=True)
            return
        if section not in schema.sections() and section:
            near = get_close_matches(section, schema.sections(), n=1)
            guess = [f"{near[0]}.{path[-1]}"] if near and f"{near[0]}.{path[-1]}" in known else near
        else:
            inside = [each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == section]
            guess = [f"{section}.{each}".lstrip(".") for each in get_close_matches(path[-1], inside, n=1)]
        of_key = [each for each in known if each.rpartition(".")[2] == path[-1]]  # for a file that lacks the table
        guess = guess or get_close_matches(name, known, n=1) or (of_key if len(of_key) == 1 else [])
        if guess:
            hint = f"did you mean {guess[0]}?"
        elif section in schema.sections():
            there = [each for each in known if each.startswith(f"{section}.")]
            hint = f"there are {', '.join(there)}"
        else:
            hint = f"there are the tables {', '.join(schema.sections())}"
        self._wrong(path, f"there is no setting {name}", hint, key=True)

    def _wrong(self, path: tuple[str, ...], what: str, hint: str, *, key: bool = False) -> None:
        position = self._positions.keys[path] if key else self._positions.values.get(path, self._positions.keys[path])
        self._layer.problems.append(Problem(self._where(position), what, hint))

    def _where(self, position: Position) -> str:
        return f"{self._source.path}:{position.line}:{position.column}"


def _leaves(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Yield the settings of a document with their paths; an empty table with an unknown name counts as one."""
    for key, value in table.items():
        here = (*path, key)
        known = ".".join(here) in schema.sections() or schema.table_of(".".join(here))
        if isinstance(value, dict) and (value or known):
            yield from _leaves(value, here)
        else:
            yield here, value


def _path(text: str, folder: Path) -> str:
    if "://" in text or text == ":memory:":
        return text
    return str(folder / Path(text).expanduser())


def _quote(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


# --- variables and flags -----------------------------------------------------------------------------------------


def _variables(environment: Mapping[str, str]) -> _Layer:
    layer = _Layer()
    for field in schema.fields().values():
        given = environment.get(field.variable, "") if field.variable else ""
        if not given:
            continue
        try:
            layer.values[field.name] = field.convert(given, text=True)
        except msgspec.ValidationError:
            shown = "what it is" if field.personal else _quote(given)
            layer.problems.append(Problem(field.variable, f"cannot be {shown}", f"it can be {field.allowed}"))
        layer.origins[field.name] = SettingOrigin(VARIABLE, field.variable)
    known = {each.variable for each in schema.fields().values()}
    for name in sorted(environment):
        is_unknown = name.startswith("MAOS_") and name not in known and name not in _NOT_SETTINGS
        if is_unknown and (near := get_close_matches(name, known, n=1, cutoff=0.85)):
            layer.notes.append(f"{name} is not a variable of maos; did you mean {near[0]}?")
    return layer


def _flags(flags: Mapping[str, tuple[str, Any]]) -> _Layer:
    origins = {name: SettingOrigin(FLAG, flag) for name, (flag, _value) in flags.items()}
    return _Layer({name: value for name, (_flag, value) in flags.items()}, origins)


# --- the current settings ----------------------------------------------------------------------------------------


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
        return load(self._find(), self._environment, self._flags)

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


# --- writing a file ----------------------------------------------------------------------------------------------


def write(path: Path, text: str) -> None:
    """Replace the text of a file atomically: readers, also after a crash, find the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a symbolic link stays one
    try:
        mode = target.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(new, "w", encoding="utf-8") as file:
            os.chmod(new, mode)
            crash_point("settings: begun")
            file.write(text)
            file.flush()
            crash_point("settings: written")
            os.fsync(file.fileno())
        crash_point("settings: synced")
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    crash_point("settings: in place")
    sync_folder(target.parent)


def template(*, is_project: bool) -> str:
    """Return the text of a new file: every setting with its default, commented out."""
    lines = [f"version = {schema.VERSION}"]
    for section, about in schema.sections().items():
        settings = [
            each
            for each in schema.fields().values()
            if each.name.startswith(f"{section}.") and each.variable and not (is_project and each.personal)
        ]
        if settings:
            lines += ["", f"# {about}", f"[{section}]"]
            lines += [_commented(each) for each in settings]
    return "\n".join(lines) + "\n"


def _commented(field: Field) -> str:
    """A setting as a comment with its default; one that has none is explained, and not set."""
    name = field.name.partition(".")[2]
    return f"# {name}: not set" if field.default is None else f"# {name} = {to_toml(field.default)}"


def to_toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def entries(loaded: Loaded) -> list[dict[str, Any]]:
    """All settings as plain data, with where each comes from; values that may have a key in them are hidden."""
    found = []
    for field in schema.fields().values():
        if field.name in schema.TABLES:
            continue
        value = schema.value_of(loaded.values, field.name)
        found.append(_entry(loaded, field, [HIDDEN] * len(value) if field.secret else value))
    for table in schema.TABLES:
        for own, values in schema.value_of(loaded.values, table).items():
            for name, field in schema.named_fields(table, own).items():
                found.append(_entry(loaded, field, values[name.rpartition(".")[2]]))
    return found


def _entry(loaded: Loaded, field: Field, value: Any) -> dict[str, Any]:
    origin = loaded.origins.get(field.name)
    return {
        "name": field.name,
        "value": value,
        "source": origin.kind if origin else "default",
        "where": origin.where if origin else None,
        "default": field.default,
        "live": field.live,
        "variable": field.variable or None,
    }
