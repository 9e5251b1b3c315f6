"""Events of everything else: chats, notices, tool calls, cleanup, settings, schedules and imported bundles."""

from __future__ import annotations

from typing import Any

from maos.model.events.core import EventBase, event
from maos.model.permission import PermissionRule


@event("chat_said")
class ChatSaid(EventBase, frozen=True, kw_only=True):
    """A line that a person wrote in `maos chat`, in the stream `chat/<run>`."""

    text: str
    asked: str = ""
    """The question that it answers."""
    by: str = ""
    at_us: int


@event("notice_planned")
class NoticePlanned(EventBase, frozen=True, kw_only=True):
    """A notice is to be sent to a person, in the stream `notices/<run>`."""

    id: str
    what: str
    title: str
    body: str
    addresses: list[str]
    """Number and scheme of each address; addresses have secrets in them."""
    at_us: int


class NoticeOutcome(EventBase, frozen=True, kw_only=True):
    """What all events have that record the outcome of a notice at one address."""

    id: str
    address: str
    why: str = ""
    at_us: int = 0


@event("notice_sent")
class NoticeSent(NoticeOutcome, frozen=True, kw_only=True):
    """The address has accepted it."""


@event("notice_failed")
class NoticeFailed(NoticeOutcome, frozen=True, kw_only=True):
    """The address did not accept it."""


@event("notice_unknown")
class NoticeUnknown(NoticeOutcome, frozen=True, kw_only=True):
    """It was being sent when the process ended."""


@event("tool_called")
class ToolCalled(EventBase, frozen=True, kw_only=True):
    """An agent changed something through its tool server, in the stream `tools/<agent>`."""

    tool: str
    arguments: dict[str, Any]
    digest: str
    attempt: str
    server: str
    """The process that served it."""
    proved: list[int]
    """Earlier calls whose answers have arrived, by version."""
    answer: str = ""
    """What the agent was answered, if it changed something else with the same append."""
    at_us: int = 0


@event("setting_changed")
class SettingChanged(EventBase, frozen=True, kw_only=True):
    """A setting that all engines on this journal use is changed, in the stream `settings/<name>`."""

    value: float | None
    by: str = ""
    at_us: int


@event("removal_started")
class RemovalStarted(EventBase, frozen=True, kw_only=True):
    """A worktree is about to be removed, in the stream `cleanup`."""

    run: str
    agent: str
    tree: str
    bytes: int
    why: str
    by: str
    at_us: int


@event("cleanup_ended")
class CleanupEnded(EventBase, frozen=True, kw_only=True):
    """A cleanup is over."""

    by: str
    runs: int
    removed: int
    kept: int
    bytes: int
    refused: list[tuple[str, str]] = []
    """Runs and agents whose worktrees could not be removed."""
    at_us: int


@event("pin_added")
class PinAdded(EventBase, frozen=True, kw_only=True):
    """A run is never cleaned up from now on, in the stream `permanent`."""

    run: str
    why: str
    by: str = ""
    at_us: int


@event("pin_removed")
class PinRemoved(EventBase, frozen=True, kw_only=True):
    """A run may be cleaned up again."""

    run: str
    by: str = ""
    at_us: int


@event("permission_rule_added")
class PermissionRuleAdded(EventBase, frozen=True, kw_only=True):
    """A person wants agents to be answered by a rule, in the stream `permissions/<run or agent>`."""

    id: str
    rule: PermissionRule
    scope: str
    """`run` or `agent`."""
    by: str
    at_us: int


@event("permission_rule_revoked")
class PermissionRuleRevoked(EventBase, frozen=True, kw_only=True):
    """A rule counts no more."""

    id: str
    by: str
    at_us: int


@event("schedule_set")
class ScheduleSet(EventBase, frozen=True, kw_only=True):
    """A workflow begins at times that come again, in the stream `schedules/all`."""

    name: str
    cron: str
    zone: str = "UTC"
    workflow: str
    definition: str = ""
    arguments: dict[str, Any] = {}
    where: dict[str, str] = {}
    """Where the workflow is defined."""
    set_us: int = 0
    by: str = ""


@event("schedule_removed")
class ScheduleRemoved(EventBase, frozen=True, kw_only=True):
    """A schedule is removed."""

    name: str
    by: str = ""
    at_us: int = 0


@event("bundle_imported")
class BundleImported(EventBase, frozen=True, kw_only=True):
    """A run came with a file, in the stream `bundle/<id>`."""

    sha256: str = ""
    made_by: str = ""
    made_us: int = 0
    version: int = 0
    """How many events of the run came with it."""
    events: int = 0
    """How many events were new."""
    later: dict[str, int] = {}
    """How many events belong to the same point in time, by version of the run."""
    of: str = ""
    """The run or workflow run that brought it, when it belongs to another one."""
    by: str = ""
    """The principal that imported it."""
    at_us: int = 0


@event("bundle_trusted")
class BundleTrusted(EventBase, frozen=True, kw_only=True):
    """A person has seen what an imported run would do, and agrees."""

    by: str
    at_us: int


@event("backup_tested")
class BackupTested(EventBase, frozen=True, kw_only=True):
    """A backup was restored to a database of its own and compared with its checksums, in the stream `backups`."""

    location: str
    position: int
    """How far it could be restored."""
    events: int
    bytes: int
    took_us: int
    problem: str = ""
    """Why it could not be restored; empty when it could."""
    by: str = ""
    at_us: int


@event("key_rotated")
class KeyRotated(EventBase, frozen=True, kw_only=True):
    """The keys of an encrypted database were rotated, in the stream `keys`."""

    source: str
    """The kind of the source that unlocks it from now on."""
    keys: int
    """How many data keys were wrapped again."""
    by: str = ""
    at_us: int


@event("erasure_started")
class ErasureStarted(EventBase, frozen=True, kw_only=True):
    """A person has asked to erase a run or an agent, in the stream `erasures`; `erasure_ended` follows."""

    scope: str
    why: str = ""
    by: str = ""
    at_us: int


@event("erasure_ended")
class ErasureEnded(EventBase, frozen=True, kw_only=True):
    """The keys of a run or an agent were destroyed: what they sealed can no longer be read."""

    scope: str
    keys: int
    documents: int
    folders: int
    by: str = ""
    at_us: int
