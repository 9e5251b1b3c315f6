"""What the HTTP API returns of everything together: the overview, costs, settings, health, backups, credentials,
access, the audit and the stream."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from maos.model.access import Verb
from maos.model.events.audit import AuditEntry
from maos.model.read_models import LABEL, AgentStatus, ExternalEffect, Label, LabelData, SupervisorProblem, WorkflowInfo
from maos.web.documents import ApiDocument, QuestionInfo, RunEntry

# --- everything -------------------------------------------------------------------------------------------------------


class EffectList(ApiDocument):
    """Side effects, in the order in which they were begun."""

    effects: list[ExternalEffect]


class OverviewInfo(ApiDocument):
    """Everything that runs or waits now."""

    position: int
    """The position of the journal that this is at least as new as: follow the stream from here."""
    runs: list[RunEntry]
    agents: list[AgentStatus]
    """Those that are at work and belong to no run."""
    questions: list[QuestionInfo]
    workflows: list[WorkflowInfo]
    unknown: list[ExternalEffect]


class CostRow(ApiDocument):
    """What one run took, or the agents that belong to none."""

    id: Label
    cost_usd: float
    estimated_usd: float
    tokens: int
    unpriced_tokens: int


class CostInfo(ApiDocument):
    """What everything took so far."""

    cost_usd: float
    estimated_usd: float
    tokens: int
    unpriced_tokens: int
    runs: list[CostRow]


class SettingInfo(ApiDocument):
    """A setting; values that can have secrets in them are hidden."""

    name: Label
    value: LabelData
    default: LabelData
    source: Label
    live: bool
    description: Label


class SettingList(ApiDocument):
    """All settings."""

    settings: list[SettingInfo]


class HealthInfo(ApiDocument):
    """How the server is."""

    status: Literal["ok", "stopping"]
    version: Label
    position: int
    executing: list[Label]
    problems: list[SupervisorProblem]
    streams: int
    started_us: int


# --- backups ----------------------------------------------------------------------------------------------------------


class BackupInfo(ApiDocument):
    """The backup of a database at the location of the settings."""

    store: Label
    """The identity of the database."""
    place: Label
    host: Label
    position: int
    """How far it reaches."""
    recorded_us: int
    written_us: int
    events: int
    bytes: int
    left_out: list[Label]
    is_own: bool
    """Whether it is of the database of this server."""


class BackupList(ApiDocument):
    """The backups at the location of the settings, of all databases, the newest first."""

    location: Label
    backups: list[BackupInfo]


class BackupTestInfo(ApiDocument):
    """A restoration to a temporary database, which was recorded."""

    at_us: int
    position: int
    events: int
    bytes: int
    took_us: int
    problem: Label
    """Why it could not be restored; empty when it could."""
    by: Label


class BackupCheckInfo(ApiDocument):
    """A check that this server was asked for: how far it is, or how it ended."""

    kind: Literal["test", "verify"]
    started_us: int
    ended_us: int
    """0 while it is in progress."""
    position: int
    of: int
    problem: Label


class BackupStatusInfo(ApiDocument):
    """How far the backup of this database is."""

    location: Label
    """That of the settings; empty when they name none."""
    problem: Label
    """Why nothing more is known; empty when the location answered."""
    recorded: int
    """The newest position of the database."""
    missing: int
    """How many positions are not in the backup."""
    behind_s: float
    """How long the oldest event that is not in the backup has been recorded: what a loss now would cost."""
    backup: BackupInfo | None
    tested: BackupTestInfo | None
    checks: list[BackupCheckInfo]


class PublicHealth(ApiDocument):
    """Whether the server is alive: all that is said without a credential."""

    status: Literal["ok", "stopping"]


# --- credentials ------------------------------------------------------------------------------------------------------


class CredentialInfo(ApiDocument):
    """A credential; its secret is not known."""

    id: Label
    kind: Label
    name: Label
    role: Label
    on: list[Label]
    """What it is limited to; empty: nothing."""
    expires_us: int
    by: Label
    created_us: int


class CredentialList(ApiDocument):
    """Credentials that count."""

    credentials: list[CredentialInfo]


class CreatedToken(ApiDocument):
    """A token, with its secret, which is shown once."""

    id: Label
    name: Label
    role: Label
    on: list[Label]
    secret: Label


class GrantInfo(ApiDocument):
    """What a principal may do with something."""

    id: Label
    """That of the credential, if it came with one."""
    principal: Label
    role: Label
    """Empty when the verbs were given one by one."""
    verbs: list[Label]
    on: Label
    expires_us: int
    by: Label
    created_us: int


class GrantList(ApiDocument):
    """Grants that count, the oldest first."""

    grants: list[GrantInfo]


class AuditList(ApiDocument):
    """Entries of the audit."""

    entries: list[Annotated[AuditEntry, Meta(extra={LABEL: True})]]


class AccessDecision(ApiDocument):
    """Whether something is allowed."""

    allowed: bool
    why: Label


class Identity(ApiDocument):
    """Who the server takes the caller for."""

    principal: Label
    role: Label
    on: list[Label]
    """What it is limited to; empty: nothing."""
    kind: Label
    expires_us: int
    verbs: list[Verb]
    """What it may do with what was asked about; if nothing was, with anything at all."""


class Accepted(ApiDocument):
    """The request is recorded; the engine that executes it acts on it."""

    id: Label
    done: Label


# --- the stream -------------------------------------------------------------------------------------------------------


class EventPage(ApiDocument):
    """Events after a position."""

    events: list[msgspec.Raw]
    """Each a document as in the stream."""
    position: int
    """Everything up to here was read: continue after it."""
