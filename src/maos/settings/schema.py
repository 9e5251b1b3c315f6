"""All settings: name, type, default, range, description, and whether each can change while maos runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from maos.settings import DATABASE_DEFAULT, FILE_BYTES_MAX, LEASE_S, DatabaseName
from maos.tuples import NamedTuple

VERSION = 1
"""The version of the file format."""

LIVE = Meta(extra={"live": True})
"""Marks a setting that a running engine applies at once; the others take effect at the next start."""
PERSONAL = Meta(extra={"personal": True})
"""Marks a setting that is refused in a project's file, because a project may come from someone else."""

SECRET = Meta(extra={"secret": True})
"""Marks a setting whose values may have a key in them, and are not shown."""
CONSENT = Meta(extra={"consent": True})
"""Marks a setting that a project's file can have, and that takes effect when the user has agreed to it."""
LINES = Meta(extra={"lines": True})
"""Marks a list whose variable has one entry on each line, because entries can have spaces."""

Text = Annotated[str, Meta(min_length=1)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=1000)]
UpToAYear = Annotated[float, Meta(ge=0, le=31_536_000)]
Days = Annotated[float, Meta(ge=0, le=36_500)]
Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]
Frequency = Literal["every_step", "every_n_steps", "on_gates", "time_based", "manual"]


def _variable(name: str) -> Meta:
    return Meta(extra={"variable": name})


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the journal is stored."""

    path: Annotated[
        DatabaseName,
        _variable("MAOS_DB"),
        Meta(description="The database: a path, relative to the folder of the settings file, or a `postgresql://` URL "
             "(not in a project's file, which can only name one below its folder). Without the setting, the nearest "
             "one in or above the current folder, up to the root of the repository. Flag `--db`."),
    ] = DatabaseName(DATABASE_DEFAULT)  # fmt: skip
    wait_s: Annotated[
        UpToAYear | None,
        Meta(description="How long to wait for a database server that does not answer; 0: not at all. Without the "
             "setting, commands that do one thing wait for 10 seconds, and those that execute or follow something "
             "(`run`, `resume`, `attach`, `logs -f`, `serve`, an agent's MCP server, …) as long as it takes. "
             "An engine that executes something always does."),
    ] = None  # fmt: skip


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
    ] = 3_600.0


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the workspaces of agents are prepared before they start. In a project's file these settings take effect when
    you have agreed to them: you are asked, and `maos admin trust` shows them."""

    setup: Annotated[
        Texts,
        CONSENT,
        LINES,
        Meta(description="Commands that run before an agent starts, once for all that need the same; what they make is "
             "copied into the workspaces. Each is split into words as a shell does. Flag `--setup`."),
    ] = ()  # fmt: skip
    setup_inputs: Annotated[
        Texts,
        CONSENT,
        Meta(description="Patterns of the files that the result of `setup` depends on; empty: lists of dependencies, "
             "build files and sources of compiled languages."),
    ] = ()  # fmt: skip
    copy_ignored: Annotated[
        Texts,
        CONSENT,
        Meta(description="Patterns of ignored files of your folder that the workspaces get copies of, such as `.env`. "
             "Flag `--copy-ignored`."),
    ] = ()  # fmt: skip
    include_uncommitted: Annotated[
        bool | Texts,
        CONSENT,
        Meta(description="Whether workspaces start with your uncommitted changes; or patterns of the files whose "
             "changes they start with. Flag `--include-uncommitted`."),
    ] = False  # fmt: skip
    keep_ignored: Annotated[
        Texts,
        CONSENT,
        Meta(description="Patterns of ignored files that checkpoints keep. They are part of the agents' work then: "
             "they are merged with it."),
    ] = ()  # fmt: skip
    file_bytes_max: Annotated[
        int,
        CONSENT,
        Meta(ge=1, le=1_000_000_000_000, description="The largest file that a checkpoint keeps, in bytes; larger ones "
             "are left out, and listed."),
    ] = FILE_BYTES_MAX  # fmt: skip
    env: Annotated[
        Texts,
        CONSENT,
        LINES,
        Meta(description="Variables of the agents: `NAME=VALUE`, or `NAME` for one of yours that is passed on. Flag "
             "`--env`."),
    ] = ()  # fmt: skip
    project_settings: Annotated[
        Texts,
        PERSONAL,
        Meta(description="What of a project reaches the agents' programs: `instructions` (CLAUDE.md, AGENTS.md), "
             "`skills`, `mcp` (MCP servers), `settings` and `hooks`, or `all`. Not in a project's file. Flag "
             "`--project-settings`."),
    ] = ()  # fmt: skip


class McpServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server of your own."""

    command: Annotated[Texts, PERSONAL, Meta(description="The program and its arguments.")]
    env: Annotated[
        Texts,
        PERSONAL,
        Meta(description="Its variables: `NAME=VALUE`, or `NAME` for one of yours that is passed on."),
    ] = ()


class McpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """MCP servers of your own, which agents are given beside the one of maos."""

    of: Annotated[
        dict[str, McpServerSettings],
        PERSONAL,
        Meta(description="A server: `[mcp.of.NAME]`, with `command`, a list, and `env`. All agents with a model are "
             "given it; a type of agents with `mcp_servers` only those that it names. Not in a project's file."),
    ] = {}  # fmt: skip


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use before it is paused. A run keeps the limits it was started with; `maos update ID` changes
    them, also while the run is executed."""

    cost_usd: Annotated[float, Meta(ge=0, le=10**9, description="Money; 0: no limit. Flag `--budget`.")] = 0.0
    tokens: Annotated[int, Meta(ge=0, le=10**15, description="Tokens; 0: no limit. Flag `--tokens`.")] = 0
    time_s: Annotated[
        UpToAYear, Meta(description="Time since its start or last resume; 0: no limit. Flag `--run-time`.")
    ] = 0.0


class PriceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a model costs, in dollars for a million tokens."""

    input: Annotated[Dollars, LIVE, PERSONAL, Meta(description="Tokens that the model reads.")]
    output: Annotated[Dollars, LIVE, PERSONAL, Meta(description="Tokens that the model writes.")]
    cache_write: Annotated[
        Dollars | None, LIVE, PERSONAL, Meta(description="Tokens written to a cache; as `input` when not given.")
    ] = None
    cache_write_1h: Annotated[
        Dollars | None,
        LIVE,
        PERSONAL,
        Meta(description="Tokens written to a cache that is kept for an hour; as `cache_write` when not given."),
    ] = None
    cache_read: Annotated[
        Dollars | None, LIVE, PERSONAL, Meta(description="Tokens read from a cache; as `input` when not given.")
    ] = None


class PricesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What models cost: the cost of agents at work is estimated from their tokens. Prices here take precedence over
    those that maos has."""

    of: Annotated[
        dict[str, PriceSettings],
        LIVE,
        PERSONAL,
        Meta(description="The price of a model: `[prices.of.\"NAME\"]`, with `input` and `output`, and `cache_write`, "
             "`cache_write_1h` and `cache_read` if they differ from `input`, in dollars for a million tokens. NAME "
             "also stands for dated versions of the model, and for its name at a provider; a `*` in it stands for any "
             "text. An agent whose program does not say which model it uses is priced by its kind: "
             "`[prices.of.codex]`. Not in a project's file."),
    ] = {}  # fmt: skip


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Running agents, alone or in a run."""

    time_limit_s: Annotated[
        UpToAYear, Meta(description="The time limit of `maos agent run`; 0: none. Flag `--time-limit`.")
    ] = 3_600.0
    exit_grace_s: Annotated[
        float,
        Meta(ge=0, le=86_400,
             description="How long an agent that has answered may take to exit. Then it is ended, with every process "
             "that it has left running, and its answer counts."),
    ] = 5.0  # fmt: skip
    silence_s: Annotated[
        float,
        Meta(ge=0, le=86_400,
             description="End an agent that has printed nothing for this long while no tool of it was running and no "
             "person was asked, and resume it, at most twice; 0: never. Commands may be silent."),
    ] = 1_800.0  # fmt: skip
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
        Meta(max_length=100, description="A line of output that begins with one of these words is a discovery."),
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
    """A log file of the events, for searching, and the log of `maos serve` on standard error. The file is written from
    the journal, so it has neither gaps nor duplicates, even after a crash; the output of agents is in neither."""

    file: Annotated[
        str,
        PERSONAL,
        Meta(description="The log file: one line for each event, from when it is first set; a path relative to the "
             "folder of the settings file. Empty: none."),
    ] = ""  # fmt: skip
    format: Annotated[
        Literal["text", "json"],
        PERSONAL,
        Meta(
            description="What `maos serve` logs: lines of text, or a JSON document on each line. Flag `--log-format`."
        ),
    ] = "text"
    level: Annotated[
        Literal["info", "warning", "error"],
        PERSONAL,
        Meta(description="What `maos serve` logs: everything that its engine does, warnings, or errors alone."),
    ] = "info"


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send notifications when a run needs a person, ends, fails or is paused by a limit."""

    urls: Annotated[
        tuple[Text, ...],
        LIVE,
        PERSONAL,
        SECRET,
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


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The continuous backup of the database: `maos backup`, and `maos serve` by itself. Not in a project's file."""

    to: Annotated[
        str,
        PERSONAL,
        Meta(description="Where backups are: a folder, or the URL of a bucket (`s3://BUCKET/PATH`, `gs://…`, `az://…`) "
             "without credentials, which come from the variables of its provider. Empty: `maos serve` writes none."),
    ] = ""  # fmt: skip
    every_s: Annotated[
        float,
        PERSONAL,
        Meta(ge=0.05, le=86_400, description="The shortest interval between two segments: what a loss costs at most."),
    ] = 1.0
    merge: Annotated[
        bool,
        PERSONAL,
        Meta(description="Whether small segments are merged into larger ones, which deletes them: off for credentials "
             "that may not delete objects."),
    ] = True  # fmt: skip
    test_hours: Annotated[
        float,
        PERSONAL,
        Meta(ge=0, le=8_760, description="How often `maos serve` restores the backup to a temporary database, to test "
             "it; 0: never."),
    ] = 24.0  # fmt: skip


class EncryptionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Encryption of the database. Not in a project's file."""

    source: Annotated[
        str,
        PERSONAL,
        Meta(description="Where the key comes from: `file:PATH`, `passphrase` (from the variable MAOS_PASSPHRASE, or "
             "asked for), `age:IDENTITY_FILE`, `keyring:NAME` or `command:PROGRAM ARGUMENTS…`. With the setting, new "
             "databases are encrypted; `maos key encrypt` encrypts one that exists."),
    ] = ""  # fmt: skip


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`maos serve`: the engine, the HTTP API and the page in one process. Not in a project's file."""

    host: Annotated[
        Text,
        PERSONAL,
        Meta(
            description="The address to listen on. Any other than one of this machine alone needs TLS. Flag `--host`."
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, PERSONAL, Meta(ge=0, le=65_535, description="The port; 0: a free one. Flag `--port`.")
    ] = 6267  # fmt: skip
    url: Annotated[
        str,
        PERSONAL,
        Meta(description="The address under which people reach it, if a reverse proxy is in front of it, such as "
             "`https://maos.example.org`. Requests for other hosts are refused. Notifications have a link to it."),
    ] = ""  # fmt: skip
    tls_certificate: Annotated[str, PERSONAL, Meta(description="The file of a TLS certificate, in PEM form.")] = ""
    tls_key: Annotated[str, PERSONAL, Meta(description="The file of its key, in PEM form.")] = ""
    resume: Annotated[
        bool,
        PERSONAL,
        Meta(description="Whether it executes runs and workflow runs that no engine executes: those that were "
             "interrupted, and those that `--detach` has handed over. Flag `--no-resume`."),
    ] = True  # fmt: skip
    on_stop: Annotated[
        Literal["detach", "pause"],
        PERSONAL,
        Meta(description="When it is stopped: `detach` leaves agents running until the next start; `pause` ends them, "
             "and the runs wait for `maos resume`."),
    ] = "detach"  # fmt: skip
    folders: Annotated[
        tuple[Text, ...],
        PERSONAL,
        Meta(max_length=100, description="Folders that runs which are started over HTTP may work in, with the folders "
             "below them. Empty: the folder that it was started in."),
    ] = ()  # fmt: skip
    plans: Annotated[
        tuple[Text, ...],
        PERSONAL,
        Meta(max_length=100, description="Folders with plan files that may be started over HTTP by their names. Their "
             "commands run as you: agents must not be able to write there. Empty: none."),
    ] = ()  # fmt: skip


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which worktrees of the runs of one kind are removed."""

    older_than_days: Annotated[
        Days,
        LIVE,
        PERSONAL,
        Meta(description="Remove worktrees of runs that were completed longer ago than this; 0: none by age."),
    ] = 30.0
    keep_runs: Annotated[
        int,
        LIVE,
        PERSONAL,
        Meta(ge=0, le=1_000_000, description="Remove worktrees of all but this many of the newest completed runs of a "
             "kind; 0: none by number."),
    ] = 0  # fmt: skip
    size_mb: Annotated[
        int,
        LIVE,
        PERSONAL,
        Meta(ge=0, le=10**9, description="Remove worktrees of the oldest completed runs, until those of the kind use "
             "at most this; 0: none by size."),
    ] = 0  # fmt: skip


class CleanupSettings(PolicySettings, frozen=True, kw_only=True):
    """What is removed to free space: never anything that is saved nowhere else, or is running. Not in a project's file:
    the rules count for all runs of a database, also those of other projects."""

    unfinished_days: Annotated[
        Days,
        LIVE,
        PERSONAL,
        Meta(description="Remove worktrees of runs that failed, were paused or interrupted, and to which nothing has "
             "happened for this long; `maos resume` creates them again. 0: never."),
    ] = 90.0  # fmt: skip
    enabled: Annotated[bool, LIVE, PERSONAL, Meta(description="Whether engines clean up automatically.")] = True
    every_hours: Annotated[
        float, LIVE, PERSONAL, Meta(ge=0.01, le=8_760, description="The shortest interval between two cleanups.")
    ] = 24.0
    of: Annotated[
        dict[str, PolicySettings],
        LIVE,
        PERSONAL,
        Meta(description="A policy for the runs of one kind: `[cleanup.of.NAME]`, with NAME `orchestration` or the "
             "name of a workflow."),
    ] = {}  # fmt: skip


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings."""

    database: DatabaseSettings = DatabaseSettings()
    orchestrate: OrchestrateSettings = OrchestrateSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    mcp: McpSettings = McpSettings()
    budget: BudgetSettings = BudgetSettings()
    prices: PricesSettings = PricesSettings()
    agent: AgentSettings = AgentSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    recovery: RecoverySettings = RecoverySettings()
    messages: MessagesSettings = MessagesSettings()
    notify: NotifySettings = NotifySettings()
    log: LogSettings = LogSettings()
    engine: EngineSettings = EngineSettings()
    serve: ServeSettings = ServeSettings()
    cleanup: CleanupSettings = CleanupSettings()
    backup: BackupSettings = BackupSettings()
    encryption: EncryptionSettings = EncryptionSettings()


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
    secret: bool
    consent: bool
    lines: bool
    allowed: str
    """The allowed values, in words."""

    def convert(self, value: Any, *, text: bool = False) -> Any:
        """Convert and check a value; raise msgspec.ValidationError. `text`: it comes from a variable."""
        given = value.splitlines() if text and self.lines else _parse(self, value) if text else value
        return msgspec.convert(given, self.type, strict=not text, dec_hook=read_name)


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


TABLES: Mapping[str, type[msgspec.Struct]] = {
    "cleanup.of": PolicySettings,
    "prices.of": PriceSettings,
    "mcp.of": McpServerSettings,
}
"""Settings that are tables with names of the user's choice: `[cleanup.of.NAME]`."""


def table_of(name: str) -> str:
    """Return which of these tables a setting is in, or is; empty when it is in none."""
    return next((table for table in TABLES if f"{name}.".startswith(f"{table}.")), "")


def named_fields(table: str, name: str) -> dict[str, Field]:
    """Return the settings under one name in such a table."""
    section = f"{table}.{name}"
    return {f"{section}.{each.name}": _field(section, each) for each in msgspec.structs.fields(TABLES[table])}


def value_of(settings: Settings, name: str) -> Any:
    """Return the value of a setting as JSON data."""
    section, _, key = name.partition(".")
    return msgspec.to_builtins(getattr(getattr(settings, section), key), enc_hook=str)


def apply_live(settings: Settings, newer: Settings) -> Settings:
    """Return settings with the newer values of those that can change while maos runs."""
    for field in fields().values():
        if field.live:
            section, _, key = field.name.partition(".")
            changed = {key: getattr(getattr(newer, section), key)}
            table = msgspec.structs.replace(getattr(settings, section), **changed)
            settings = msgspec.structs.replace(settings, **{section: table})
    return settings


def read_name(_type: type, value: Any) -> DatabaseName:
    """Convert the name of a database, which msgspec does not know; ValueError if it is none."""
    if isinstance(value, DatabaseName):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text that is not empty")
    return DatabaseName(value)


def _field(section: str, each: msgspec.structs.FieldInfo) -> Field:
    info = msgspec.inspect.type_info(each.type)
    assert isinstance(info, msgspec.inspect.Metadata)
    schema, extra = info.extra_json_schema or {}, info.extra or {}
    name = f"{section}.{each.name}"
    return Field(
        name,
        each.type,
        None
        if each.required
        else msgspec.to_builtins({} if each.default is msgspec.NODEFAULT else each.default, enc_hook=str),
        schema["description"],
        extra.get("variable") or ("" if table_of(name) else f"MAOS_{name.replace('.', '_').upper()}"),
        bool(extra.get("live")),
        bool(extra.get("personal")),
        bool(extra.get("secret")),
        bool(extra.get("consent")),
        bool(extra.get("lines")),
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
        case msgspec.inspect.UnionType():
            return ", or ".join(_allowed(each) for each in info.types if not isinstance(each, msgspec.inspect.NoneType))
        case msgspec.inspect.DictType():
            return "a table"
        case msgspec.inspect.CustomType():
            return "a text that is not empty"
        case _:
            return "a text that is not empty" if getattr(info, "min_length", None) else "a text"


def _plain(number: Any) -> str:
    return f"{number:,}".replace(",", "_") if isinstance(number, int) and number >= 10_000 else f"{number:g}"


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _parse(field: Field, text: str) -> Any:
    """Parse the text of a variable into lists and booleans; msgspec converts the other types."""
    if isinstance(field.default, bool):
        if text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        return text.split() if "list" in field.allowed else text
    return text.split() if isinstance(field.default, tuple | list) else text
