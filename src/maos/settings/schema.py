"""All settings: name, type, default, range, description, and whether each can change while maos runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from maos.settings import DATABASE_DEFAULT, LEASE_S

VERSION = 1
"""The version of the file format."""

LIVE = Meta(extra={"live": True})
"""Marks a setting that a running engine applies at once; the others take effect at the next start."""
PERSONAL = Meta(extra={"personal": True})
"""Marks a setting that is refused in a project's file, because a project may come from someone else."""

Text = Annotated[str, Meta(min_length=1)]
UpToAYear = Annotated[float, Meta(ge=0, le=31_536_000)]
Days = Annotated[float, Meta(ge=0, le=36_500)]
Frequency = Literal["every_step", "every_n_steps", "on_gates", "time_based", "manual"]


def _variable(name: str) -> Meta:
    return Meta(extra={"variable": name})


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the journal is stored."""

    path: Annotated[
        Text,
        _variable("MAOS_DB"),
        Meta(description="The database: a path, relative to the folder of the settings file, or a `postgresql://` URL "
             "(not in a project's file, which can only name one below its folder). Without the setting, the nearest "
             "one in or above the current folder, up to the root of the repository. Flag `--db`."),
    ] = DATABASE_DEFAULT  # fmt: skip


class OrchestrateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for runs of many agents."""

    concurrency: Annotated[
        int,
        LIVE,
        Meta(ge=1, le=1000, description="How many agents run at once. The flag `--concurrency` takes precedence."),
    ] = 4
    kind: Annotated[
        Text,
        Meta(description="The kind of the agents; `maos agent kinds` lists them. A project's file cannot name a kind "
             "with a program of its own (`acp:…`). Flag `--kind`."),
    ] = "claude"  # fmt: skip
    model: Annotated[
        str, Meta(description="The model of the agents; empty: the default of their program. Flag `--model`.")
    ] = ""
    permission: Annotated[
        Literal["ask", "edits", "deny"],
        Meta(description="What agents may do without asking: nothing, or edit files. Flag `--permission`."),
    ] = "edits"
    time_limit_s: Annotated[
        UpToAYear, Meta(description="The time limit of each agent; 0: none. Flag `--time-limit`.")
    ] = 600.0


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use before it is paused. A run keeps the limits it was started with; `maos resume ID --budget`,
    `--tokens` and `--run-time` change them."""

    cost_usd: Annotated[float, Meta(ge=0, le=10**9, description="Money; 0: no limit. Flag `--budget`.")] = 0.0
    tokens: Annotated[int, Meta(ge=0, le=10**15, description="Tokens; 0: no limit. Flag `--tokens`.")] = 0
    time_s: Annotated[
        UpToAYear, Meta(description="Time since its start or last resume; 0: no limit. Flag `--run-time`.")
    ] = 0.0


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Running agents, alone or in a run."""

    time_limit_s: Annotated[
        UpToAYear, Meta(description="The time limit of `maos agent run`; 0: none. Flag `--time-limit`.")
    ] = 600.0
    silence_s: Annotated[
        float, Meta(ge=0, le=86_400, description="End an agent that has printed nothing for this long; 0: never.")
    ] = 0.0
    unattended_s: Annotated[
        float,
        Meta(ge=60, le=31_536_000, description="End an agent to which no engine has been attached for this long."),
    ] = 86_400.0


class CheckpointSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When the files and conversations of agents are saved. Their output is always saved at once."""

    enabled: Annotated[
        bool, LIVE, Meta(description="Whether checkpoints are made while an agent runs, apart from those on request.")
    ] = True
    frequency: Annotated[
        Frequency,
        LIVE,
        Meta(description="`every_step`: after each turn of an agent, and every `interval_s` within one; "
             "`every_n_steps`: after every `steps` turns; `on_gates`: when the agent has ended, before its gates; "
             "`time_based`: every `interval_s`; `manual`: on request. Always when an agent has ended."),
    ] = "every_step"  # fmt: skip
    interval_s: Annotated[
        float,
        LIVE,
        _variable("MAOS_CHECKPOINT_INTERVAL"),
        Meta(ge=1, le=86_400, description="The interval. `maos admin save-interval` takes precedence."),
    ] = 120.0
    steps: Annotated[int, LIVE, Meta(ge=1, le=10_000, description="The number of turns, with `every_n_steps`.")] = 1


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of output are discoveries."""

    keywords: Annotated[
        tuple[Annotated[Text, Meta(max_length=100)], ...],
        LIVE,
        Meta(max_length=100, description="A line with one of these words, in upper or lower case, is a discovery."),
    ] = ("discovery:", "found:", "result:", "error:")


class RecoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which interrupted runs are reported."""

    lookback_days: Annotated[
        Days,
        Meta(description="Report only runs with an event in this many days; 0: all. Any run can be resumed by its id."),
    ] = 0.0


class MessagesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Messages between agents. Acknowledged messages stay in the journal: rolling back a run, and the proof that each
    message was delivered once, need them."""

    restore_s: Annotated[
        float,
        _variable("MAOS_RESTORE_MESSAGES"),
        Meta(ge=0, le=3_153_600_000,
             description="When an agent is resumed, unacknowledged messages older than this, in seconds, become dead "
             "letters; 0: all are delivered."),
    ] = 0.0  # fmt: skip


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A log file of the events, for searching. It is written from the journal, so it has neither gaps nor duplicates,
    even after a crash; the output of agents is not in it."""

    file: Annotated[
        str,
        PERSONAL,
        Meta(description="The log file: one line for each event, from when it is first set; a path relative to the "
             "folder of the settings file. Empty: none."),
    ] = ""  # fmt: skip


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send notifications when a run needs a person, ends, fails or is paused by a limit."""

    urls: Annotated[
        tuple[Text, ...],
        LIVE,
        PERSONAL,
        Meta(max_length=100,
             description="Apprise URLs. One with a password or key belongs in the variable. The flag `--notify` adds "
             "to them."),
        _variable("MAOS_NOTIFY"),
    ] = ()  # fmt: skip


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The process that executes runs."""

    lease_s: Annotated[
        float,
        Meta(ge=3, le=3600,
             description="How long an engine on another machine is considered alive after its last heartbeat; it sends "
             "three in that time."),
    ] = LEASE_S  # fmt: skip


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which worktrees of the runs of one kind are removed."""

    older_than_days: Annotated[
        Days,
        LIVE,
        Meta(description="Remove worktrees of runs that were completed longer ago than this; 0: none by age."),
    ] = 30.0
    keep_runs: Annotated[
        int,
        LIVE,
        Meta(ge=0, le=1_000_000, description="Remove worktrees of all but this many of the newest completed runs of a "
             "kind; 0: none by number."),
    ] = 0  # fmt: skip
    size_mb: Annotated[
        int,
        LIVE,
        Meta(ge=0, le=10**9, description="Remove worktrees of the oldest completed runs, until those of the kind use "
             "at most this; 0: none by size."),
    ] = 0  # fmt: skip


class CleanupSettings(PolicySettings, frozen=True, kw_only=True):
    """What is removed to free space: never anything that is saved nowhere else, is running, or can be resumed."""

    enabled: Annotated[bool, LIVE, Meta(description="Whether engines clean up automatically.")] = True
    every_hours: Annotated[
        float, LIVE, Meta(ge=0.01, le=8_760, description="The shortest interval between two cleanups.")
    ] = 24.0
    of: Annotated[
        dict[str, PolicySettings],
        LIVE,
        Meta(description="A policy for the runs of one kind: `[cleanup.of.NAME]`, with NAME `orchestration` or the "
             "name of a workflow."),
    ] = {}  # fmt: skip


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings."""

    database: DatabaseSettings = DatabaseSettings()
    orchestrate: OrchestrateSettings = OrchestrateSettings()
    budget: BudgetSettings = BudgetSettings()
    agent: AgentSettings = AgentSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    recovery: RecoverySettings = RecoverySettings()
    messages: MessagesSettings = MessagesSettings()
    notify: NotifySettings = NotifySettings()
    log: LogSettings = LogSettings()
    engine: EngineSettings = EngineSettings()
    cleanup: CleanupSettings = CleanupSettings()


UPGRADES: Mapping[int, Mapping[str, str]] = {
    0: {
        "db_path": "database.path",
        "auto_save_interval": "engine.lease_s",
        "checkpoint_interval": "checkpoint.interval_s",
        "discovery_keywords": "discovery.keywords",
        "recovery_lookback_days": "recovery.lookback_days",
    }
}
"""For each older version, the names of its settings in the next one. Version 0 has the names of maos-cli."""


class Field(NamedTuple):
    """One setting."""

    name: str
    """As in `checkpoint.interval_s`."""
    type: Any
    default: Any
    description: str
    variable: str
    live: bool
    personal: bool
    allowed: str
    """The allowed values, in words."""

    def convert(self, value: Any, *, text: bool = False) -> Any:
        """Convert and check a value; raise msgspec.ValidationError. `text`: it comes from a variable."""
        return msgspec.convert(_parse(self.default, value) if text else value, self.type, strict=not text)


@cache
def fields() -> dict[str, Field]:
    """Return all settings by name, in the order of the reference."""
    sections = msgspec.structs.fields(Settings)
    found = [_field(section.name, each) for section in sections for each in msgspec.structs.fields(section.type)]
    return {each.name: each for each in found}


@cache
def sections() -> dict[str, str]:
    """Return all tables of the file with their descriptions."""
    return {each.name: " ".join((each.type.__doc__ or "").split()) for each in msgspec.structs.fields(Settings)}


def policy_fields(name: str) -> dict[str, Field]:
    """Return the settings of the cleanup policy for one kind of runs."""
    section = f"cleanup.of.{name}"
    return {f"{section}.{each.name}": _field(section, each) for each in msgspec.structs.fields(PolicySettings)}


def value_of(settings: Settings, name: str) -> Any:
    """Return the value of a setting as JSON data."""
    section, _, key = name.partition(".")
    return msgspec.to_builtins(getattr(getattr(settings, section), key))


def apply_live(settings: Settings, newer: Settings) -> Settings:
    """Return settings with the newer values of those that can change while maos runs."""
    for field in fields().values():
        if field.live:
            section, _, key = field.name.partition(".")
            changed = {key: getattr(getattr(newer, section), key)}
            table = msgspec.structs.replace(getattr(settings, section), **changed)
            settings = msgspec.structs.replace(settings, **{section: table})
    return settings


def _field(section: str, each: msgspec.structs.FieldInfo) -> Field:
    info = msgspec.inspect.type_info(each.type)
    assert isinstance(info, msgspec.inspect.Metadata)
    schema, extra = info.extra_json_schema or {}, info.extra or {}
    name = f"{section}.{each.name}"
    return Field(
        name,
        each.type,
        msgspec.to_builtins(each.default if each.default is not msgspec.NODEFAULT else {}),
        schema["description"],
        extra.get("variable") or ("" if each.name == "of" else f"MAOS_{name.replace('.', '_').upper()}"),
        bool(extra.get("live")),
        bool(extra.get("personal")),
        _allowed(info.type),
    )


def _allowed(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType():
            return "one of " + ", ".join(sorted(map(str, info.values)))
        case msgspec.inspect.IntType(ge=least, le=most):
            return f"a whole number from {_plain(least)} to {_plain(most)}"
        case msgspec.inspect.FloatType(ge=least, le=most):
            return f"a number from {_plain(least)} to {_plain(most)}"
        case msgspec.inspect.VarTupleType():
            return f"a list of texts, at most {info.max_length}"
        case msgspec.inspect.DictType():
            return "a table of policies"
        case _:
            return "a text that is not empty" if getattr(info, "min_length", None) else "a text"


def _plain(number: Any) -> str:
    return f"{number:,}".replace(",", "_") if isinstance(number, int) and number >= 10_000 else f"{number:g}"


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _parse(default: Any, text: str) -> Any:
    """Parse the text of a variable into lists and booleans; msgspec converts the other types."""
    if isinstance(default, bool):
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else text
    return text.split() if isinstance(default, tuple | list) else text
