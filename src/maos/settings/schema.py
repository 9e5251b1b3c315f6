"""Every setting, said once: its name, type, default, range and meaning, and whether it can change while maos runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from maos.settings import DATABASE_DEFAULT, LEASE_S

VERSION = 1
"""Of the file's format."""

LIVE = {"live": True}
"""A running engine goes by the new value; the others count from the next start."""


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything is kept."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            description="The database: a path, which counts from the folder of the file that says it, or a "
            "`postgresql://` URL (not in a project's file). Flag `--db`.",
            extra={"variable": "MAOS_DB"},
        ),
    ] = DATABASE_DEFAULT


class OrchestrateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What runs of many agents are made with."""

    concurrency: Annotated[
        int,
        Meta(ge=1, le=1000, description="How many agents work at once. Flag `--concurrency`, which stays.", extra=LIVE),
    ] = 4
    kind: Annotated[
        str,
        Meta(
            min_length=1,
            description="The kind of the agents; `maos agent kinds` lists them. A project's file "
            "cannot name a kind with a program of its own (`acp:…`). Flag `--kind`.",
        ),
    ] = "claude"
    model: Annotated[str, Meta(description="The model they use; empty: their own choice. Flag `--model`.")] = ""
    permission: Annotated[
        Literal["ask", "edits", "deny"],
        Meta(description="What they may do unasked: nothing, or edit files. Flag `--permission`."),
    ] = "edits"
    time_limit_s: Annotated[
        float, Meta(ge=0, le=31_536_000, description="For each agent; 0: none. Flag `--time-limit`.")
    ] = 600.0


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may take before it is paused. A run keeps those that it was begun with; `maos resume ID --budget`,
    `--tokens` and `--run-time` give it others."""

    cost_usd: Annotated[float, Meta(ge=0, le=10**9, description="Money; 0: no limit. Flag `--budget`.")] = 0.0
    tokens: Annotated[int, Meta(ge=0, le=10**15, description="Tokens; 0: no limit. Flag `--tokens`.")] = 0
    time_s: Annotated[
        float,
        Meta(
            ge=0, le=31_536_000, description="Time, from when it begins or is resumed; 0: no limit. Flag `--run-time`."
        ),
    ] = 0.0


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Agents that run, alone or in a run of many."""

    time_limit_s: Annotated[
        float,
        Meta(
            ge=0,
            le=31_536_000,
            description="How long `maos agent run` lets one work; 0: no limit. Flag `--time-limit`.",
        ),
    ] = 600.0
    silence_s: Annotated[
        float, Meta(ge=0, le=86_400, description="End one that has said nothing for so long; 0: never.")
    ] = 0.0
    unattended_s: Annotated[
        float, Meta(ge=60, le=31_536_000, description="End one that no engine has attended to for so long.")
    ] = 86_400.0


class CheckpointSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When the files and conversations of agents are saved. What they say is saved at once in any case."""

    enabled: Annotated[
        bool, Meta(description="Whether they are saved before an agent has ended, unless somebody asks.", extra=LIVE)
    ] = True
    frequency: Annotated[
        Literal["every_step", "every_n_steps", "on_gates", "time_based", "manual"],
        Meta(
            description="`every_step`: after each turn of an agent, and every `interval_s` within one; "
            "`every_n_steps`: after every `steps` turns; `on_gates`: when it has ended, before its gates; "
            "`time_based`: every `interval_s`; `manual`: when somebody asks. Always when it has ended.",
            extra=LIVE,
        ),
    ] = "every_step"
    interval_s: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            description="How often. `maos orchestration save-interval` outweighs it.",
            extra={**LIVE, "variable": "MAOS_CHECKPOINT_INTERVAL"},
        ),
    ] = 120.0
    steps: Annotated[
        int, Meta(ge=1, le=10_000, description="After how many turns, with `every_n_steps`.", extra=LIVE)
    ] = 1


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as a discovery."""

    keywords: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=100)], ...],
        Meta(
            max_length=100,
            description="A line that has one of these words is a discovery, whatever their case.",
            extra=LIVE,
        ),
    ] = ("discovery:", "found:", "result:", "error:")


class RecoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about things that were interrupted."""

    lookback_days: Annotated[
        float,
        Meta(
            ge=0,
            le=36_500,
            description="Name only runs that something happened to within so many days; "
            "0: all. Any run can be resumed by its id.",
        ),
    ] = 0.0


class MessagesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What agents tell each other. Messages that were acknowledged are kept as long as the journal is, and not for some
    days: going back in time, and the proof that each was delivered once, need them."""

    restore_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3_153_600_000,
            description="Messages that nobody has acknowledged and that are older than this, in seconds, when an agent "
            "is resumed, become dead letters; 0: it gets them, whatever their age.",
            extra={"variable": "MAOS_RESTORE_MESSAGES"},
        ),
    ] = 0.0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A file to search for what was saved when. It is written from the journal, so it has no gaps and nothing twice,
    whoever is killed; what agents say is not in it."""

    file: Annotated[
        str,
        Meta(
            description="One line for each event, by every command that writes, from when it is first set; a path "
            "counts from the folder of the file that says it. Empty: none.",
            extra={"personal": True},
        ),
    ] = ""


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told when a run needs a person, ends, fails or is paused by a limit."""

    urls: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            max_length=100,
            description="Addresses as apprise has them. One with a password or a key belongs in the "
            "variable. Flag `--notify` adds to it.",
            extra={**LIVE, "variable": "MAOS_NOTIFY", "personal": True},
        ),
    ] = ()


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The process that carries runs out."""

    lease_s: Annotated[
        float,
        Meta(
            ge=3,
            le=3600,
            description="How long an engine on another machine is trusted to live after its "
            "last heartbeat; it gives three in that time.",
        ),
    ] = LEASE_S


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is removed of the runs of one kind."""

    older_than_days: Annotated[
        float,
        Meta(
            ge=0,
            le=36_500,
            description="Worktrees of runs that were completed longer ago than this; 0: none because of their age.",
            extra=LIVE,
        ),
    ] = 30.0
    keep_runs: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Worktrees of all but so many completed runs of a kind, the newest; 0: none because"
            " of their number.",
            extra=LIVE,
        ),
    ] = 0
    size_mb: Annotated[
        int,
        Meta(
            ge=0,
            le=10**9,
            description="Worktrees of the oldest completed runs, until those of the kind take no more than "
            "this; 0: none because of their size.",
            extra=LIVE,
        ),
    ] = 0


class CleanupSettings(PolicySettings, frozen=True, kw_only=True):
    """What is removed to make room. Never anything that is saved nowhere else, that runs, or that can go on."""

    enabled: Annotated[bool, Meta(description="Whether engines do it by themselves.", extra=LIVE)] = True
    every_hours: Annotated[float, Meta(ge=0.01, le=8_760, description="How often at most.", extra=LIVE)] = 24.0
    of: Annotated[
        dict[str, PolicySettings],
        Meta(
            description="Another policy for the runs of one kind: `[cleanup.of.NAME]`, with NAME `orchestration` or "
            "that of a workflow.",
            extra=LIVE,
        ),
    ] = msgspec.field(default_factory=dict)


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
"""For each older version, what its settings are called in the next one. Version 0 has the names of the original."""


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
    """Whether a project's file cannot say it: a project may come from strangers."""
    allowed: str
    """What it can be, in words."""

    def convert(self, value: Any, *, text: bool = False) -> Any:
        """The value as the program uses it; ValueError with what was wrong. `text`: it comes from a variable."""
        try:
            return msgspec.convert(_parsed(self.type, value) if text else value, self.type, strict=not text)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


@cache
def fields() -> dict[str, Field]:
    """All settings by name, in the order of the reference."""
    found = {}
    for section in msgspec.structs.fields(Settings):
        for each in msgspec.structs.fields(section.type):
            found_field = _field(section.name, each)
            found[found_field.name] = found_field
    return found


@cache
def sections() -> dict[str, str]:
    """All tables of the file, with what each is about."""
    return {each.name: " ".join((each.type.__doc__ or "").split()) for each in msgspec.structs.fields(Settings)}


def policy_fields(name: str) -> dict[str, Field]:
    """The settings of the policy for one kind of runs."""
    section = f"cleanup.of.{name}"
    return {f"{section}.{each.name}": _field(section, each) for each in msgspec.structs.fields(PolicySettings)}


def value_of(settings: Settings, name: str) -> Any:
    """One setting by its name, as JSON can say it."""
    section, _, key = name.partition(".")
    return msgspec.to_builtins(getattr(getattr(settings, section), key))


def with_live(settings: Settings, newer: Settings) -> Settings:
    """Settings with those of newer ones that can change while maos runs."""
    changed = {}
    for section in sections():
        live = [
            each.name.partition(".")[2]
            for each in fields().values()
            if each.live and each.name.startswith(f"{section}.")
        ]
        taken = {key: getattr(getattr(newer, section), key) for key in live}
        changed[section] = msgspec.structs.replace(getattr(settings, section), **taken)
    return msgspec.structs.replace(settings, **changed)


def _field(section: str, each: msgspec.structs.FieldInfo) -> Field:
    meta = next(part for part in each.type.__metadata__ if isinstance(part, Meta))
    extra: dict[str, Any] = meta.extra or {}
    name = f"{section}.{each.name}"
    default = each.default if each.default is not msgspec.NODEFAULT else {}
    return Field(
        name,
        each.type,
        msgspec.to_builtins(default),
        meta.description or "",
        extra.get("variable") or ("" if each.name == "of" else f"MAOS_{name.replace('.', '_').upper()}"),
        bool(extra.get("live")),
        bool(extra.get("personal")),
        _allowed(each.type),
    )


def _allowed(type_: Any) -> str:
    """What a value can be, for people."""
    info = msgspec.inspect.type_info(type_)
    if isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    match info:
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType():
            return "one of " + ", ".join(sorted(map(str, info.values)))
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            what = "a whole number" if isinstance(info, msgspec.inspect.IntType) else "a number"
            if info.ge is not None and info.le is not None:
                return f"{what} from {_plain(info.ge)} to {_plain(info.le)}"
            return f"{what}, {_plain(info.ge)} or more" if info.ge is not None else what
        case msgspec.inspect.VarTupleType():
            return f"a list of texts, at most {info.max_length}"
        case msgspec.inspect.DictType():
            return "a table of policies"
        case _:
            return "a text" if not getattr(info, "min_length", None) else "a text that is not empty"


def _plain(number: float) -> str:
    return f"{number:,}".replace(",", "_") if isinstance(number, int) and number >= 10_000 else f"{number:g}"


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _parsed(type_: Any, text: str) -> Any:
    """What a text in a variable stands for, as far as the type does not tell by itself."""
    info = msgspec.inspect.type_info(type_)
    if isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    if isinstance(info, msgspec.inspect.VarTupleType):
        return text.split()
    if isinstance(info, msgspec.inspect.BoolType):
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else text
    return text
