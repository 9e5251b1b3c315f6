"""All runs and agents at a glance: what each does, since when, and at which rate it takes tokens and money.

A state is what the journal and the processes of this machine say: an agent whose process has exited is not shown as
working, and one that prints nothing for long is shown as that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from maos.clock import MICROSECONDS, Clock
from maos.engine.streams import owner_of
from maos.model.access import VisibleParts
from maos.model.attempt import Attempt
from maos.model.read_models import AgentCard, AgentStatus, CardState, QuotaInfo
from maos.model.run import TaskState, asked_for
from maos.model.run_status import agents_of
from maos.model.status import AgentState, TaskStatus
from maos.runs.service import Runs
from maos.runs.status import RunView
from maos.tuples import NamedTuple
from maos.views.agent_status import failure_of, state_of
from maos.views.agents import Agents

QUIET_US = 300 * MICROSECONDS
"""After so long without output an agent is shown as quiet: it may be stuck."""
RECENT_US = 86_400 * MICROSECONDS
RECENT_RUNS_MAX = 50
SMALL_TASKS_MAX = 12
"""A run with so few tasks is shown with all of them, a larger one with those that are at work or need a person."""
CARDS_MAX = 24
STRIP_TASKS_MAX = 20_000
RATE_US = 300 * MICROSECONDS
SAMPLES_US_MIN = 20 * MICROSECONDS
SAMPLES_MAX = 200


LETTERS: Mapping[CardState, str] = {
    CardState.WORKING: "r", CardState.CHECKED: "r", CardState.DETACHED: "r", CardState.YOU: "y", CardState.QUIET: "b",
    CardState.STUCK: "b", CardState.INTERRUPTED: "b", CardState.WAITING: "w", CardState.DONE: "d",
    CardState.FAILED: "x", CardState.SKIPPED: "s", CardState.STOPPED: "s",
}  # fmt: skip
"""The letter of each state in `RunCard.strip`."""
_ORDER = [CardState.YOU, CardState.STUCK, CardState.INTERRUPTED, CardState.QUIET, CardState.FAILED]


class RunCard(NamedTuple):
    """A run, and its agents."""

    view: RunView
    strip: str
    """One letter for each task, in the order of the plan: `LETTERS`."""
    states: Mapping[str, int]
    """How many tasks are in each state."""
    cards: list[AgentCard]
    """All of a small run; of a larger one those that need a person first, and then those at work."""
    tokens_per_min: float
    usd_per_min: float
    output_us: int
    """When one of its agents printed something last."""


class FleetView(NamedTuple):
    """All runs and agents that are at work or were lately."""

    runs: list[RunCard]
    """Those that have not ended: those that need a person first, then the newest first."""
    agents: list[AgentCard]
    """Agents without a run that are at work, those that need a person first."""
    recent: list[RunView]
    """Runs that ended within a day, the newest first."""
    ended: int
    """How many runs have ended in all."""
    recent_agents: list[AgentStatus]
    """Agents without a run that ended within a day, the newest first."""
    quotas: list[QuotaInfo]
    """Windows of the accounts that agents use, as far as their programs tell, the fullest first."""


class _Rate:
    """How much an attempt took at which time, as it was seen."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int, float]] = deque(maxlen=SAMPLES_MAX)

    def per_min(self, attempt: Attempt, now_us: int) -> tuple[float, float]:
        """Tokens and money a minute, of the last minutes; as long as that is not known, since it began."""
        spent = attempt.spent
        self._samples.append((now_us, spent.tokens, spent.cost_usd))
        while self._samples[0][0] < now_us - RATE_US:
            self._samples.popleft()
        since_us, tokens, usd = self._samples[0]
        if now_us - since_us < SAMPLES_US_MIN:
            since_us, tokens, usd = attempt.started_us or now_us, 0, 0.0
        minutes = max(1 * MICROSECONDS, now_us - since_us) / (60 * MICROSECONDS)
        return (spent.tokens - tokens) / minutes, (spent.cost_usd - usd) / minutes


class Fleet:
    """Reads all runs and agents at a glance."""

    def __init__(self, runs: Runs, agents: Agents, clock: Clock) -> None:
        self._runs = runs
        self._agents = agents
        self._clock = clock
        self._rates: dict[str, _Rate] = {}

    async def read(self, *, seen: VisibleParts | None = None) -> FleetView:
        """All runs and agents that are at work, and runs that ended lately; with `seen`, what a reader sees of them.

        Example::

            print([(each.view.run.id, each.states) for each in (await m.fleet.read()).runs])
        """
        now_us = self._clock.now_us()
        since_us = now_us - RECENT_US
        shown = [run async for run in self._runs.open(since_us=since_us) if seen is None or await seen.has_run(run.id)]
        known = sorted(shown, key=lambda run: -run.created_us)
        going = [run for run in known if run.is_open]
        over = sorted((run for run in known if not run.is_open), key=lambda run: -run.ended_us)
        lately = [run for run in over if run.ended_us >= since_us][:RECENT_RUNS_MAX]
        cards = [self._card(await self._runs.status_of(run), now_us) for run in going]
        cards.sort(key=lambda card: not card.view.now.needs_person)  # each part stays in the order of the newest
        alone, left, at_work = [], [], set[str]()
        told: list[Attempt] = []
        async for attempt in self._agents.open(since_us=since_us):
            if seen is not None and not await seen.has_agent(attempt.agent):
                continue
            if attempt.windows:
                told.append(attempt)
            if await owner_of(self._agents.journal, attempt.agent):
                continue
            if attempt.is_open:
                at_work.add(attempt.id)
                alone.append(self._alone(attempt, await self._agents.status(attempt.agent), now_us))
            elif attempt.ended_us >= since_us:
                left.append(attempt)
        alone.sort(key=lambda card: card.state is not CardState.YOU)
        left.sort(key=lambda attempt: -attempt.ended_us)
        recent_agents = [await self._agents.status(each.agent) for each in left[:RECENT_RUNS_MAX]]
        if seen is None:
            at_work.update(each.id for card in cards for each in card.view.attempts.values())
            self._rates = {id: rate for id, rate in self._rates.items() if id in at_work}
        ended = await self._runs.count() - len(going) if seen is None else len(over)
        recent = [await self._runs.status_of(run) for run in lately]
        return FleetView(cards, alone, recent, ended, recent_agents, quotas_of(told, now_us))

    def _card(self, view: RunView, now_us: int) -> RunCard:
        asked: dict[str, int] = {}
        for each in view.questions:
            task = asked_for(each.id)
            for name in (*each.asked_by, each.owner, *([view.run.agent(task)] if task else [])):
                asked.setdefault(name, each.asked_us)
        found = [self._task(view, each, asked, now_us) for each in view.run.tasks.values()]
        shown = found
        if len(found) > SMALL_TASKS_MAX:
            idle = (CardState.WAITING, CardState.DONE, CardState.SKIPPED)
            shown = sorted((each for each in found if each.state not in idle), key=_urgency)[:CARDS_MAX]
        return RunCard(
            view=view,
            strip="".join(LETTERS[each.state] for each in found[:STRIP_TASKS_MAX]),
            states=Counter(str(each.state) for each in found),
            cards=shown,
            tokens_per_min=sum(each.tokens_per_min for each in found),
            usd_per_min=sum(each.usd_per_min for each in found),
            output_us=max((each.output_us for each in view.attempts.values()), default=0),
        )

    def _task(self, view: RunView, task: TaskState, asked: Mapping[str, int], now_us: int) -> AgentCard:
        run = view.run
        names = agents_of(run, task)
        attempt = next((view.attempts[name] for name in names if name in view.attempts), None)
        state, began_us = _state_of(task, view.now.stuck)
        card = AgentCard(
            agent=attempt.agent if attempt else run.agent(task.name),
            task=task.name,
            kind=attempt.kind
            if attempt
            else str(task.plan.get("agent") or ("shell" if task.plan.get("command") else "")),
            state=state,
            since_us=began_us,
            activity=task.why or task.result.partition("\n")[0],
            cost_usd=task.cost_usd,
            estimated_usd=task.estimated_usd,
            tokens=task.tokens,
        )
        if task.status is TaskStatus.WAITING and task.not_before_us > now_us:
            card.until_us = task.not_before_us
        if attempt is not None and attempt.is_open:
            self._add_attempt(card, attempt, now_us)
        since_us = asked.get(run.agent(task.name)) or asked.get(card.agent)
        if since_us is not None and not task.status.is_done:
            card.state, card.since_us = CardState.YOU, since_us
        if card.state is CardState.STUCK:
            failed = [each for each in task.needs if run.tasks[each].status is TaskStatus.FAILED]
            card.activity = f"needs {', '.join(failed)}, which failed" if failed else "needs a task that cannot begin"
            card.since_us = max((run.tasks[each].ended_us for each in failed), default=0)
        return card

    def _alone(self, attempt: Attempt, status: AgentStatus, now_us: int) -> AgentCard:
        card = AgentCard(agent=attempt.agent, task=attempt.task, kind=attempt.kind, state=CardState.WORKING,
                         since_us=status.since_us)  # fmt: skip
        self._add_attempt(card, attempt, now_us)
        if any(each.is_open for each in attempt.permissions.values()) or attempt.asks_person:
            card.state = CardState.YOU
        return card

    def _add_attempt(self, card: AgentCard, attempt: Attempt, now_us: int) -> None:
        spent, state = attempt.spent, state_of(attempt)
        card.activity, card.output_us = attempt.activity or attempt.last_text, attempt.output_us
        card.cost_usd += spent.cost_usd
        card.estimated_usd += spent.estimated_usd
        card.tokens += spent.tokens
        card.tokens_per_min, card.usd_per_min = self._rates.setdefault(attempt.id, _Rate()).per_min(attempt, now_us)
        if state is AgentState.INTERRUPTED:
            card.state, card.since_us = CardState.INTERRUPTED, attempt.output_us
        elif state is AgentState.DETACHED:
            card.state = CardState.DETACHED
        elif attempt.output_us and now_us - attempt.output_us > QUIET_US and not attempt.is_waiting:
            card.state, card.since_us = CardState.QUIET, attempt.output_us
        failure = failure_of(attempt)
        if attempt.is_limited:
            card.activity = failure.message if failure else "waits for the end of a rate limit"


def quotas_of(attempts: Sequence[Attempt], now_us: int) -> list[QuotaInfo]:
    """What was said last of each window that has not begun anew since."""
    found: dict[tuple[str, str], QuotaInfo] = {}
    for attempt in sorted(attempts, key=lambda each: each.output_us):
        for name, each in attempt.windows.items():
            key = (attempt.kind, name)
            found[key] = QuotaInfo(attempt.kind, name, each.used, each.reset_us, each.status, attempt.output_us)
    current = [each for each in found.values() if not each.reset_us or each.reset_us > now_us]
    return sorted(current, key=lambda each: (-(each.used or 0.0), each.kind, each.window))


def _state_of(task: TaskState, stuck: tuple[str, ...]) -> tuple[CardState, int]:
    match task.status:
        case TaskStatus.RUNNING:
            return CardState.WORKING, task.started_us
        case TaskStatus.GATED:
            return CardState.CHECKED, task.started_us
        case TaskStatus.DONE:
            return CardState.DONE, task.ended_us
        case TaskStatus.FAILED:
            return CardState.FAILED, task.ended_us
        case TaskStatus.SKIPPED:
            return CardState.SKIPPED, task.ended_us
        case _:
            return (CardState.STUCK if task.name in stuck else CardState.WAITING), 0


def _urgency(card: AgentCard) -> tuple[int, int]:
    return (_ORDER.index(card.state) if card.state in _ORDER else len(_ORDER)), -card.output_us
