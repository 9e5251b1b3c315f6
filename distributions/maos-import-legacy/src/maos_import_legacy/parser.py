"""Finds the orchestrations in the rows of maos-cli: their agents, results and messages.

maos-cli records an orchestration only when all its agents have ended. One that was killed before has only agents that
belong to none, so agents that were created together are taken for one orchestration. It runs agents in batches of
three, one batch after the other.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from maos.clock import MICROSECONDS, to_us
from maos.model.status import RunStatus
from maos_import_legacy.file import Row, Tables, parse_json

WAITING, INTERRUPTED, DONE, FAILED_TASK = "waiting", "interrupted", "done", "failed"
"""The status of an agent: not started, started, completed, failed."""

BATCH = 3
TOGETHER_S = 5
"""Agents of one orchestration are recorded within this time of each other."""
PLANNED_BEFORE_S = 3600
"""An orchestration may have been planned this long before its agents: a person had to approve it."""
DECOMPOSITION = "Decomposition: "
DECOMPOSITION_CHARS = 30
NAME_CHARS_MAX = 40
DISCOVERIES_MAX = 50

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


class LegacyAgent(msgspec.Struct, kw_only=True):
    """An agent of maos-cli, and its one task."""

    id: str
    name: str
    """The name of its task in the imported run."""
    type: str
    task: str
    status: str
    needs: list[str] = []
    session: str = ""
    """The session of Claude Code that it worked in, if it is known."""
    began_us: int = 0
    ended_us: int = 0
    result: str = ""
    last_text: str = ""
    discoveries: list[str] = []
    cost_usd: float = 0.0
    rows: dict[str, Any] = {}
    """All rows about it, unchanged."""


class LegacyMessage(msgspec.Struct, kw_only=True):
    """A message."""

    id: int
    sender: str
    """Ids of agents, as in the file."""
    to: str
    """Empty for a broadcast."""
    text: str
    type: str
    at_us: int
    acknowledged: bool


class LegacyRun(msgspec.Struct, kw_only=True):
    """An orchestration of maos-cli."""

    id: str
    """As in the file; derived from its first agent when it has none."""
    request: str
    status: str
    """The status of the imported run: completed, failed or paused."""
    said_status: str
    """The status in the file; empty when it was killed before it was recorded."""
    created_us: int
    ended_us: int = 0
    agents: list[LegacyAgent] = []
    messages: list[LegacyMessage] = []
    checkpoints: list[Row] = []
    cost_usd: float = 0.0
    rows: dict[str, Any] = {}


class LegacyContents(msgspec.Struct, kw_only=True):
    """All orchestrations of a file, the oldest first, and what was left out."""

    orchestrations: list[LegacyRun]
    left_out: dict[str, int]
    """How many rows of each kind are not imported."""


class _Result(msgspec.Struct):
    """The last line of `claude -p --output-format json`, which maos-cli sometimes records as a discovery."""

    type: str = ""
    result: str = ""
    session_id: str = ""
    total_cost_usd: float = 0.0
    is_error: bool = False


class _Output(msgspec.Struct):
    output: str | None = ""


class _About(msgspec.Struct):
    task: str = ""


class _Turn(msgspec.Struct):
    role: str = ""
    content: str | None = ""


class _State(msgspec.Struct):
    orchestration_id: str = ""


def parse(tables: Tables) -> LegacyContents:
    """Return the orchestrations in the tables of a file."""
    return _Parser(tables).parse()


def task_name(id: str, taken: Iterable[str] = ()) -> str:
    """Return a name for the task of an agent: its id, changed where it is not a valid name."""
    name = _UNFIT.sub("-", id).strip("-_") or "agent"
    if len(name) > NAME_CHARS_MAX:
        name = f"{name[: NAME_CHARS_MAX - 9]}-{_short_hash(id)}"
    lowered = {each.lower() for each in taken}
    return name if name.lower() not in lowered else f"{name[: NAME_CHARS_MAX - 9]}-{_short_hash(id)}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class _Parser:
    def __init__(self, tables: Tables) -> None:
        rows = tables.rows
        self._others = tables.others
        self._cut = tables.cut
        self._agents = {_text(row["id"]): row for row in rows["agents"] if _text(row["id"])}
        self._sessions = _by(rows["sessions"], lambda row: _text(row["agent_id"]))
        self._tasks = {_text(row["id"]): row for row in rows["tasks"]}
        self._messages = [_message(row) for row in rows["messages"]]
        self._sent_by = _by(self._messages, lambda each: each.sender)
        self._orchestrations = rows["orchestrations"]
        self._checkpoints = list(rows["checkpoints"])
        self._owner: dict[str, LegacyRun] = {}

    def parse(self) -> LegacyContents:
        recorded = [self._recorded(row) for row in self._orchestrations]
        loose = [id for id in self._agents if id not in self._owner]
        found = [*(each for each in recorded if each is not None), *map(self._killed, self._together(loose))]
        found.sort(key=lambda each: (each.created_us, each.id))
        left_out = self._share_messages()
        left_out |= self._share_checkpoints(found)
        used = {f"task-{id}" for id in self._agents}
        left_out["planned tasks that no agent had"] = sum(id not in used for id in self._tasks)
        left_out["orchestrations without agents"] = sum(each is None for each in recorded)
        left_out |= {f"rows of table {name}" if name != "key_value_store" else "settings": count
                     for name, count in self._others.items()}  # fmt: skip
        left_out["values that were too long or not text, cut"] = self._cut
        return LegacyContents(orchestrations=found, left_out={what: count for what, count in left_out.items() if count})

    # --- orchestrations --------------------------------------------------------------------------------------

    def _recorded(self, row: Row) -> LegacyRun | None:
        """Return a recorded orchestration; None for one without agents."""
        ids = [id for id in dict.fromkeys(parse_json(row["agents"], list[str], [])) if id and id not in self._owner]
        batches = [[id for id in batch if id in ids] for batch in parse_json(row["batches"], list[list[str]], [])]
        batches.append([id for id in ids if not any(id in batch for batch in batches)])
        if not ids:
            return None
        said = _text(row["status"]).lower()
        all_went_well = said == RunStatus.COMPLETED and bool(row.get("total_agents"))
        all_went_well = all_went_well and row.get("successful_agents") == row.get("total_agents")
        agents = self._of(batches, otherwise=DONE if all_went_well else "")
        begun = [each.began_us for each in agents if each.began_us] or [parse_time(row.get("created_at"))]
        made = self._orchestration(
            agents,
            id=_text(row["id"]),
            request=_text(row["request"]),
            said_status=said,
            created_us=min(begun),
            ended_us=parse_time(row.get("completed_at") or row.get("last_updated") or row.get("created_at")),
            rows={"orchestration": row},
        )
        made.cost_usd = _spread_cost(agents, _number(row.get("total_cost")))
        return made

    def _killed(self, ids: list[str]) -> LegacyRun:
        """Return an orchestration of which only the agents are recorded."""
        agents = self._of([ids[place : place + BATCH] for place in range(0, len(ids), BATCH)])
        created_us = min(parse_time(self._agents[id].get("created_at")) for id in ids)
        times = [each.at_us for id in ids for each in self._sent_by.get(id, ())]
        request = self._planned_request(created_us) or "; ".join(each.task for each in agents)
        made = self._orchestration(
            agents,
            id=self._saved_id(created_us, max([created_us, *times])) or ids[0].rpartition("-")[2] or ids[0],
            request=request,
            said_status="",
            created_us=created_us,
            ended_us=max([created_us, *(each.ended_us for each in agents), *times]),
            rows={},
        )
        made.cost_usd = _spread_cost(agents, 0.0)
        return made

    def _orchestration(self, agents: list[LegacyAgent], *, said_status: str, **more: Any) -> LegacyRun:
        statuses = {each.status for each in agents}
        if statuses == {DONE}:
            status = RunStatus.COMPLETED
        elif said_status == RunStatus.FAILED or (said_status == RunStatus.COMPLETED and FAILED_TASK in statuses):
            status = RunStatus.FAILED
        else:
            status = RunStatus.PAUSED
        made = LegacyRun(agents=agents, status=status, said_status=said_status, **more)
        self._owner |= {each.id: made for each in agents}
        return made

    def _together(self, ids: Sequence[str]) -> list[list[str]]:
        """Group agents without an orchestration by the time of their creation."""
        groups: list[list[str]] = []
        before_us = -1
        for id in ids:
            at_us = parse_time(self._agents[id].get("created_at"))
            if not groups or not 0 <= at_us - before_us <= TOGETHER_S * MICROSECONDS:
                groups.append([])
            groups[-1].append(id)
            before_us = at_us
        return groups

    def _planned_request(self, created_us: int) -> str:
        """Return the beginning of the request, from the name of the last saved plan before the agents."""
        found = ""
        for row in self._checkpoints:
            name, at_us = _text(row["name"]), parse_time(row.get("created_at"))
            if name.startswith(DECOMPOSITION) and 0 <= created_us - at_us <= PLANNED_BEFORE_S * MICROSECONDS:
                found = name.removeprefix(DECOMPOSITION)
        return found + " …" if len(found) >= DECOMPOSITION_CHARS else found

    def _saved_id(self, from_us: int, until_us: int) -> str:
        """Return the beginning of an orchestration's id, from the name of a checkpoint that was saved while it ran."""
        for row in self._checkpoints:
            match = re.fullmatch(r"auto-([0-9a-f]{8})-\d{6}", _text(row["name"]))
            at_us = parse_time(row.get("created_at"))
            if match is None or not from_us <= at_us <= until_us + PLANNED_BEFORE_S * MICROSECONDS:
                continue
            if not any(_text(each["id"]).startswith(match[1]) for each in self._orchestrations):
                return match[1]
        return ""

    # --- agents ----------------------------------------------------------------------------------------------

    def _of(self, batches: Iterable[Sequence[str]], *, otherwise: str = "") -> list[LegacyAgent]:
        """Return the agents of batches; those of each batch need those of the one before."""
        found: list[LegacyAgent] = []
        needs: list[str] = []
        for batch in batches:
            names = []
            for id in batch:
                agent = self._agent(id, [each.name for each in found], otherwise)
                agent.needs = list(needs)
                found.append(agent)
                names.append(agent.name)
            needs = names or needs
        return found

    def _agent(self, id: str, taken: Sequence[str], otherwise: str) -> LegacyAgent:
        row = self._agents.get(id, {})
        task = self._tasks.get(f"task-{id}", {})
        sessions = self._sessions.get(id, [])
        said = self._sent_by.get(id, [])
        results = [each for each in (parse_json(one.text, _Result, _Result()) for one in said) if each.type == "result"]
        worked = [each for each in sessions if not _text(each["session_id"]).endswith("-pending")]
        turns = [turn for each in worked for turn in parse_json(each["conversation_history"], list[_Turn], [])]
        output = parse_json(task.get("result"), _Output, _Output()).output or ""
        status = self._status(_text(task.get("status")), results, bool(row.get("session_id") or worked), otherwise)
        ids = (_text(row.get("session_id")), *(_text(each["session_id"]) for each in reversed(worked)),
               *(each.session_id for each in reversed(results)))  # fmt: skip
        last = next((turn.content for turn in reversed(turns) if turn.content), "") or ""
        times = [parse_time(row.get("last_active")), *(parse_time(each.get("updated_at")) for each in worked),
                 *(each.at_us for each in said)]  # fmt: skip
        return LegacyAgent(
            id=id,
            name=task_name(id, taken),
            type=task_name(_text(row.get("type")) or "agent"),
            task=_text(task.get("description")) or parse_json(row.get("metadata"), _About, _About()).task
            or next((_text(each["task"]) for each in sessions if each["task"]), "") or f"The task of {id}",
            status=status,
            session=next(filter(None, map(_session, ids)), ""),
            began_us=parse_time(row.get("created_at")) or min((each.at_us for each in said), default=0),
            ended_us=parse_time(task.get("completed_at")) or max(times),
            result=(results[-1].result if results else "") or output or last if status == DONE else "",
            last_text=last or (results[-1].result if results else ""),
            discoveries=[each.text.strip() for each in said if _is_discovery(each)][-DISCOVERIES_MAX:],
            cost_usd=max(sum(each.total_cost_usd for each in results),
                         sum(_number(each["total_cost"]) for each in sessions)),
            rows={"agent": row, "tasks": [task] if task else [], "sessions": sessions},
        )  # fmt: skip

    def _status(self, status: str, results: Sequence[_Result], has_begun: bool, otherwise: str) -> str:
        if status == RunStatus.COMPLETED:
            return DONE
        if status == RunStatus.FAILED:
            return FAILED_TASK
        if results:  # it had finished, but maos-cli was killed before it recorded that
            return FAILED_TASK if results[-1].is_error else DONE
        return otherwise or (INTERRUPTED if has_begun else WAITING)

    # --- messages and checkpoints ----------------------------------------------------------------------------

    def _share_messages(self) -> dict[str, int]:
        """Assign each message to the orchestration of its sender, or else of its recipient."""
        lost = 0
        for each in self._messages:
            owner = self._owner.get(each.sender) or self._owner.get(each.to)
            if owner is None:
                lost += 1
            else:
                owner.messages.append(each)
        return {"messages of agents that do not exist": lost}

    def _share_checkpoints(self, found: Sequence[LegacyRun]) -> dict[str, int]:
        """Assign each checkpoint to the orchestration that its name or content refers to."""
        lost = plans = 0
        for row in self._checkpoints:
            name = _text(row["name"])
            if name.startswith(DECOMPOSITION):
                plans += 1  # the plan is in the tasks; the row has nothing else
                continue
            owner = self._owner.get(name.removeprefix("Auto-save for "))
            owner = owner or next((each for each in found if _refers_to(row, name, each)), None)
            if owner is None:
                lost += 1
            else:
                owner.checkpoints.append(row)
        return {"checkpoints of no orchestration": lost, "empty records of plans": plans}


def _refers_to(row: Row, name: str, orchestration: LegacyRun) -> bool:
    id = orchestration.id
    named = parse_json(row.get("orchestrator_state"), _State, _State()).orchestration_id or _text(row["id"])
    short = re.search(r"(?:auto-|orch-|orchestration_)([0-9a-f]{8})\b", name)
    return named == id or (short is not None and id.startswith(short[1]))


def _spread_cost(agents: Sequence[LegacyAgent], total_usd: float) -> float:
    """Distribute the unassigned cost equally to agents without a known cost; return the total."""
    known_usd = sum(each.cost_usd for each in agents)
    rest_usd = total_usd - known_usd
    if rest_usd > 1e-9:
        ran = [each for each in agents if each.status != WAITING] or list(agents)
        sharing = [each for each in ran if not each.cost_usd] or ran
        for each in sharing:
            each.cost_usd += rest_usd / len(sharing)
    return max(total_usd, known_usd)


def _message(row: Row) -> LegacyMessage:
    id = row["id"]
    return LegacyMessage(
        id=id if isinstance(id, int) else 0,
        sender=_text(row["from_agent"]),
        to=_text(row["to_agent"]),
        text=_text(row["message"]),
        type=_text(row["message_type"]) or "info",
        at_us=parse_time(row["timestamp"]),
        acknowledged=bool(row["acknowledged"]),
    )


def _is_discovery(said: LegacyMessage) -> bool:
    """Return whether a message is a discovery of its agent, not a text of maos-cli or a result."""
    is_own = said.text.startswith("Working in parallel with agents: ")
    return said.type == "discovery" and not is_own and parse_json(said.text, _Result, _Result()).type != "result"


def _session(text: str) -> str:
    """Return the id of a Claude Code session, which is a UUID; empty for ids that maos-cli made up."""
    try:
        return str(uuid.UUID(text)) if len(text) == 36 else ""
    except ValueError:
        return ""


def parse_time(value: Any) -> int:
    """Return the time in microseconds; 0 when there is none.

    SQLite wrote times with a space between date and time, in UTC; Python wrote them with a T, in the local time zone of
    its machine, which is assumed to be that of this one.
    """
    if not isinstance(value, str):
        return 0
    try:
        found = datetime.fromisoformat(value)
        if found.tzinfo is None and "T" not in value:
            found = found.replace(tzinfo=UTC)
        return max(0, to_us(found))
    except (ValueError, OverflowError, OSError):
        return 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0


def _by(rows: Iterable[Any], key: Callable[[Any], str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
