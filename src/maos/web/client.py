"""The client of a server: the API of `maos serve` for programs, with the types and the errors of maos.

    async with maos.Client("http://127.0.0.1:6267", token=token) as client:
        for question in (await client.questions()).questions:
            await client.answer(question.ref, "yes")

    with maos.Client.connect("http://127.0.0.1:6267", token=token) as client:   # without asyncio
        print([run.id for run in client.runs().runs])

The token comes from the variable MAOS_TOKEN if it is not given. Requests that start something have a key of their own
and are repeated when the connection fails, so each takes effect once.

A method that stands below `_get`, `_post`, `_patch` or `_delete` is declared, not written: its parameters that are in
the path go there, `key` and `expected` become headers, all others the query or the fields of the body, and its result
is the class that it is annotated with.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import asyncio
import inspect
import os
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Literal, TypeVar, cast, get_type_hints
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from maos import errors
from maos.errors import InvalidInput, MaosError, StoreUnavailable
from maos.model.read_models import AgentStatus
from maos.ops.statistics import JournalStatistics
from maos.patterns import regex
from maos.sync import LoopThread, ProxyContext
from maos.tuples import NamedTuple
from maos.views.activity import ActivityDocument
from maos.web import documents as d
from maos.web import page_documents as p
from maos.web import requests as r
from maos.web import system_documents as sd

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])

TIMEOUT_S = 30.0
TRIES_MAX = 5
PAUSE_S, PAUSE_S_MAX = 0.2, 5.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_IN_PATH = regex(r"\{(\w+)(:path)?\}")
_ERRORS: Mapping[str, type[MaosError]] = {
    "not-found": errors.NotFound,
    "not-permitted": errors.NotPermitted,
    "unauthenticated": errors.NotPermitted,
    "invalid-input": errors.InvalidInput,
    "bad-plan": errors.InvalidInput,
}


class RequestForm(NamedTuple):
    """What a method of the client sends."""

    method: str
    path: str
    """With the names of parameters in braces; `:path` after a name keeps its slashes."""
    body: type[r.Body] | None

    def fill(self, given: dict[str, Any]) -> str:
        """Take what belongs into the path out of the parameters; the path."""
        return _IN_PATH.sub(lambda it: quote(str(given.pop(it[1])), safe="/" if it[2] else ""), self.path)


def _sends(method: str, path: str, body: type[r.Body] | None = None) -> Callable[[F], F]:
    """Make a method that sends a request of the function that declares it."""
    form = RequestForm(method, path, body)

    def make(function: F) -> F:
        signature = inspect.signature(function)

        @wraps(function)
        async def send(self: Client, /, *args: Any, **named: Any) -> Any:
            bound = signature.bind(self, *args, **named)
            bound.apply_defaults()
            _self, *items = bound.arguments.items()
            given: dict[str, Any] = {}
            for name, value in items:
                is_many = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
                given.update(value if is_many else {name: value})
            how: dict[str, Any] = {"expected": given.pop("expected", None)}
            if "key" in given:
                how["key"] = given.pop("key") or str(uuid.uuid4())
            path = form.fill(given)
            how |= {"body": body(**given)} if body is not None else {"query": given}
            return await self._request(method, path, get_type_hints(function)["return"], **how)

        send.form = form  # type: ignore[attr-defined]  # for the test that compares the client with the API
        return cast(F, send)

    return make


_get, _post, _patch, _delete = (partial(_sends, method) for method in ("GET", "POST", "PATCH", "DELETE"))


class SyncClient(ProxyContext):
    """A client whose methods wait for their results, for programs without asyncio. Use it with `with`, or close it."""


class Client:
    """A server of maos, over HTTP.

    Example::

        client = maos.Client("http://127.0.0.1:6267", token="maos_a1b2c3")
        await client.close()
    """

    def __init__(self, url: str = "", *, token: str = "", timeout_s: float = TIMEOUT_S) -> None:
        given = url or os.environ.get("MAOS_URL", "")
        token = token or os.environ.get("MAOS_TOKEN", "")
        parts = urlsplit(given)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query:
            raise InvalidInput("the address of a server is http://HOST:PORT", hint="give it, or set MAOS_URL")
        if not token:
            raise InvalidInput("there is no token", hint="give one, or set MAOS_TOKEN: `maos token create NAME`")
        if not token.isascii() or not token.isprintable():
            raise InvalidInput("that is no token", hint="it begins with maos_: `maos token create NAME`")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise InvalidInput(f"a token is not sent to {parts.hostname} without TLS", hint="use https://")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        """The address of the server."""
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "maos"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=timeout_s, follow_redirects=False, trust_env=False)

    @classmethod
    def connect(cls, url: str = "", *, token: str = "", timeout_s: float = TIMEOUT_S) -> SyncClient:
        """A client for programs without asyncio; the arguments are those of the class."""
        thread = LoopThread()

        async def made() -> Client:
            return cls(url, token=token, timeout_s=timeout_s)

        try:
            return SyncClient(thread, thread.run(made()))
        except BaseException:
            thread.close()
            raise

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections.

        Example::

            await client.close()
        """
        await self._http.aclose()

    # --- runs ------------------------------------------------------------------------------------------------------

    @_get("overview")
    async def overview(self) -> sd.OverviewInfo:
        """Everything that runs or waits now.

        Example::

            overview = await client.overview()
            print([run.id for run in overview.runs], len(overview.questions))
        """

    @_get("fleet")
    async def fleet(self) -> p.FleetInfo:
        """Runs and agents at a glance: those at work, and those that ended within a day.

        Example::

            fleet = await client.fleet()
            print([(run.id, run.strip) for run in fleet.runs], fleet.quotas)
        """

    @_get("runs")
    async def runs(self, *, status: str = "", limit: int = 50, cursor: str = "") -> d.RunPage:
        """A page of runs, open ones first, then the newest first.

        Example::

            page = await client.runs(status="running", limit=10)
            print([(run.id, run.progress) for run in page.runs])
        """

    @_get("runs/{id}")
    async def run(self, id: str, *, at: str = "") -> d.RunDetails:
        """One run, now or at a point in time.

        Example::

            run = await client.run("r-1")
            print(run.status, run.cost_usd)
        """

    @_get("runs/{id}/tasks")
    async def tasks(self, id: str, *, status: str = "", limit: int = 200, cursor: str = "") -> d.TaskPage:
        """A page of the tasks of a run.

        Example::

            page = await client.tasks("r-1")
            print([(task.name, task.status) for task in page.tasks])
        """

    @_get("runs/{id}/tasks/{task}")
    async def task(self, id: str, task: str) -> d.TaskInfo:
        """One task of a run.

        Example::

            task = await client.task("r-1", "api")
            print(task.status, task.needs)
        """

    @_get("runs/{id}/events")
    async def run_events(self, id: str, *, limit: int = 50, cursor: str = "") -> d.RunHistory:
        """A page of the events of a run, the oldest first: each is a version that it can be rolled back to.

        Example::

            page = await client.run_events("r-1", limit=10)
            print([(event.version, event.type) for event in page.events])
        """

    @_get("runs/{id}/timeline")
    async def timeline(self, id: str) -> p.TimelineInfo:
        """A run on a time axis: when each task was worked on, and what it had cost by when.

        Example::

            timeline = await client.timeline("r-1")
            print([(task.name, task.spans) for task in timeline.tasks])
        """

    @_get("runs/{id}/moment")
    async def moment(self, id: str, at: str = "") -> p.MomentInfo:
        """A run as it was at a point in time: tasks, agents, messages and files.

        Example::

            then = await client.moment("r-1", "planned")
            print(then.point.version, [task.status for task in then.tasks])
        """

    @_get("runs/{id}/discoveries")
    async def discoveries(self, id: str) -> p.DiscoveryList:
        """What the agents of a run have found, the oldest first.

        Example::

            print((await client.discoveries("r-1")).discoveries)
        """

    @_get("start-options")
    async def start_options(self) -> p.StartChoices:
        """What a run can be started with: folders, plan files, kinds of agents.

        Example::

            print((await client.start_options()).folders)
        """

    @_post("runs", r.NewRun)
    async def start_run(
        self, request: str = "", *, tasks: Sequence[r.NewTask] = (), key: str = "", **options: Any
    ) -> d.RunDetails:
        """Start a run of a request, or of tasks; `options` are the other fields of `NewRun`.

        Example::

            run = await client.start_run("Write tests for the parser", key="ticket-12")
            print(run.id)
        """

    @_post("runs/{id}/tasks", r.MoreTasks)
    async def add_tasks(self, id: str, tasks: Sequence[r.NewTask], *, expected: int | None = None) -> d.RunDetails:
        """Add tasks to a run. With `expected`, here and below: only while the run is at that version, else Conflict.

        Example::

            more = maos.web.requests.NewTask(name="more", task="Look once more", needs=["docs"])
            run = await client.add_tasks("r-1", [more])
        """

    @_post("runs/{id}/pause")
    async def pause(self, id: str, *, expected: int | None = None) -> d.RunDetails:
        """Pause a run.

        Example::

            run = await client.pause("r-1")
        """

    @_post("runs/{id}/resume")
    async def resume(self, id: str, *, expected: int | None = None) -> d.RunDetails:
        """Have the server resume a run.

        Example::

            await client.pause("r-1")
            run = await client.resume("r-1")
        """

    @_post("runs/{id}/limits", r.NewLimits)
    async def update(
        self, id: str, *, cost_usd: float | None = None, tokens: int | None = None, time_s: float | None = None,
        time_limit_s: float | None = None, concurrency: int | None = None, expected: int | None = None,
    ) -> d.RunDetails:  # fmt: skip
        """Change limits of a run; None for one that stays as it is, 0 for none.

        Example::

            run = await client.update("r-1", cost_usd=5)
        """

    async def cancel(self, id: str, *, task: str = "", why: str = "", expected: int | None = None) -> d.RunDetails:
        """Cancel a run, or one task of it.

        Example::

            run = await client.cancel("r-1", task="api", why="no longer needed")
        """
        if task:
            return await self.cancel_task(id, task, why=why, expected=expected)
        path = f"runs/{_part(id)}/cancel"
        return await self._request("POST", path, d.RunDetails, body=r.Reason(why=why), expected=expected)

    @_post("runs/{id}/tasks/{task}/cancel", r.Reason)
    async def cancel_task(self, id: str, task: str, *, why: str = "", expected: int | None = None) -> d.RunDetails:
        """Cancel a task of a run.

        Example::

            run = await client.cancel_task("r-1", "api")
        """

    @_post("runs/{id}/retry", r.RetryTasks)
    async def retry(self, id: str, *, tasks: Sequence[str] = (), expected: int | None = None) -> d.RunDetails:
        """Retry failed tasks of a run, all by default.

        Example::

            run = await client.retry("r-1", tasks=["deploy"])
        """

    @_post("runs/{id}/tasks/{task}/skip", r.Reason)
    async def skip(self, id: str, task: str, *, why: str = "", expected: int | None = None) -> d.RunDetails:
        """Skip a task of a run.

        Example::

            run = await client.skip("r-1", "deploy", why="deployed by hand")
        """

    # --- points in time, and what was changed ----------------------------------------------------------------------

    @_get("runs/{id}/checkpoints")
    async def checkpoints(self, id: str) -> d.PointList:
        """The checkpoints of a run, the oldest first.

        Example::

            print([point.name for point in (await client.checkpoints("r-1")).checkpoints])
        """

    @_post("runs/{id}/checkpoints", r.NewCheckpoint)
    async def checkpoint(self, id: str, name: str) -> d.PointInfo:
        """Give the present state of a run a name.

        Example::

            point = await client.checkpoint("r-1", "before-release")
        """

    @_post("runs/{id}/rollback", r.Rollback)
    async def rollback(
        self, id: str, to: str = "", *, without_files: bool = False, dry_run: bool = False, expected: int | None = None
    ) -> d.TravelInfo:
        """Roll a run back to a point in time, by default its newest checkpoint.

        Example::

            found = await client.rollback("r-1", "planned", dry_run=True)
            print(found)
        """

    @_post("runs/{id}/fork", r.Fork)
    async def fork(
        self, id: str, at: str = "", *, into: str = "", without_files: bool = False, dry_run: bool = False,
        key: str = "",
    ) -> d.TravelInfo:  # fmt: skip
        """Start a second run from a point in time of a run, by default now.

        Example::

            found = await client.fork("r-1", dry_run=True)
            print(found)
        """

    @_get("runs/{id}/comparison")
    async def compare(
        self, id: str, before: str = "", after: str = "", *, other: str = "", patch: bool = False
    ) -> d.DifferenceInfo:
        """How two points in time of a run differ, or of a run and another one.

        Example::

            found = await client.compare("r-1", "planned")
            print(found.tasks)
        """

    @_get("runs/{id}/diff")
    async def diff(self, id: str, *, patch: bool = False) -> d.DiffInfo:
        """Which files the merged work of a run has changed, and with `patch` the lines.

        Example::

            print((await client.diff("r-1")).files)
        """

    @_get("runs/{id}/files")
    async def task_files(self, id: str, *, patch: bool = False) -> d.TaskFilesList:
        """What each task of a run has changed, in the order in which their work was merged.

        Example::

            print([(each.task, each.files) for each in (await client.task_files("r-1")).tasks])
        """

    @_post("runs/{id}/merge", r.NewMerge)
    async def merge(
        self, id: str, *, branch: str = "", squash: bool = False, message: str = "", dry_run: bool = False,
        expected: int | None = None,
    ) -> d.MergeInfo:  # fmt: skip
        """Merge what the tasks of a run have done into the branch that is checked out, or another one.

        With `squash`, as one commit with a `message`.

        Example::

            found = await client.merge("r-1", branch="new-parser", dry_run=True)
            print(found.outcome, found.files)
        """

    # --- agents and messages ---------------------------------------------------------------------------------------

    @_get("agents")
    async def agents(self, *, run: str = "", open: bool = False, limit: int = 50, cursor: str = "") -> d.AgentPage:
        """A page of agents, open ones first, then the newest first.

        Example::

            page = await client.agents(run="r-1", open=True)
            print([agent.agent for agent in page.agents])
        """

    @_get("agents/{name}")
    async def agent(self, name: str) -> d.AgentDetailsInfo:
        """One agent.

        Example::

            agent = await client.agent("r-1.api")
            print(agent.status)
        """

    @_get("agents/{agent}/output")
    async def output(
        self, agent: str, *, attempt: int = 0, after: int | None = None, before: int | None = None, limit: int = 200,
        facts_max: int = 0, text_chars_max: int = 0,
    ) -> d.OutputPage:  # fmt: skip
        """A window of what an agent did: `after` or `before` a version, of an `attempt`, at most `limit`.

        Example::

            page = await client.output("r-1.api", limit=50)
            print([event.type for event in page.events])
        """

    @_get("agents/{agent}/diff")
    async def agent_diff(self, agent: str, *, patch: bool = False) -> d.DiffInfo:
        """Which files an agent has changed up to its last checkpoint, and with `patch` the lines.

        Example::

            print((await client.agent_diff("fixer")).files)
        """

    @_post("agents/{agent}/messages", r.NewMessage)
    async def send(self, agent: str, text: str, *, key: str = "") -> d.SentInfo:
        """Send a message to an agent.

        Example::

            sent = await client.send("fixer", "Use port 8080")
        """

    @_post("agents/{agent}/stop")
    async def stop(self, agent: str) -> AgentStatus:
        """Stop an agent.

        Example::

            agent = await client.stop("r-1.api")
        """

    @_post("agents/{agent}/resume", r.AgentResumption)
    async def resume_agent(self, agent: str, text: str = "") -> AgentStatus:
        """Resume an agent that belongs to no run, and tell it something more.

        Example::

            agent = await client.resume_agent("fixer")
        """

    @_get("messages")
    async def messages(self, *, run: str = "", agent: str = "", limit: int = 50) -> d.MessageList:
        """The newest messages between agents.

        Example::

            found = await client.messages(run="r-1")
            print([message.text for message in found.messages])
        """

    # --- questions -------------------------------------------------------------------------------------------------

    @_get("questions")
    async def questions(self) -> d.QuestionList:
        """Everything that waits for a person.

        Example::

            for question in (await client.questions()).questions:
                print(question.ref, question.text)
        """

    @_post("questions/{ref:path}/answer", r.NewAnswer)
    async def answer(
        self, ref: str, answer: str, *, why: str = "", scope: Literal["", "agent", "run"] = "", pattern: str = ""
    ) -> d.AnswerInfo:
        """Answer a question; the first answer counts. To a permission, `always` and `never` make a rule.

        Example::

            given = await client.answer("r-1/gate/docs/0/1", "yes")
            print(given.by)
        """

    @_post("questions/{ref:path}/links", r.NewAnswerLink)
    async def answer_link(self, ref: str, *, expires_s: float = 86_400.0) -> d.AnswerLink:
        """Create a link with which a person answers one question, once, within a time, without signing in.

        Example::

            link = await client.answer_link("r-1/gate/docs/0/1")
            print(client.url + link.url)
        """

    @_get("decisions")
    async def decisions(self, *, limit: int = 100) -> d.DecisionList:
        """The answers that people gave, of all runs, the newest first.

        Example::

            print([(each.ref, each.answer, each.by) for each in (await client.decisions()).decisions])
        """

    @_get("runs/{id}/decisions")
    async def run_decisions(self, id: str) -> d.DecisionList:
        """The answers that people gave in a run, the newest first.

        Example::

            print((await client.run_decisions("r-1")).decisions)
        """

    # --- state -----------------------------------------------------------------------------------------------------

    @_get("state")
    async def states(self, *, limit: int = 50, cursor: str = "") -> d.StateList:
        """A page of the agents that have a state, by name.

        Example::

            print([(each.agent, each.version) for each in (await client.states()).agents])
        """

    @_get("state/{agent:path}")
    async def state(self, agent: str, *, version: int = 0) -> d.StateInfo:
        """The state of an agent, now or at a version.

        Example::

            state = await client.state("reviewer", version=1)
            print(state.data["status"])
        """

    @_get("state/{agent:path}/versions")
    async def state_versions(self, agent: str, *, limit: int = 50, cursor: str = "") -> d.StateHistoryInfo:
        """A page of the versions of a state, the oldest first.

        Example::

            page = await client.state_versions("reviewer")
            print([(each.version, each.type) for each in page.versions])
        """

    @_get("state/{agent:path}/diff")
    async def state_diff(self, agent: str, first: int, second: int) -> d.StateDiffInfo:
        """How two versions of a state differ.

        Example::

            found = await client.state_diff("reviewer", 1, 2)
            print([(each.path, each.before, each.after) for each in found.changes])
        """

    @_patch("state/{agent:path}", r.StateUpdate)
    async def update_state(
        self, agent: str, changes: Mapping[str, Any], *, expected: int | None = None, key: str = ""
    ) -> d.StateInfo:
        """Change fields of the state of an agent; with `expected`, only at that version, else Conflict.

        Example::

            state = await client.update_state("reviewer", {"status": "busy"}, expected=2)
            print(state.version)
        """

    # --- workflow runs ---------------------------------------------------------------------------------------------

    @_get("workflows")
    async def workflows(self, *, status: str = "", limit: int = 50, cursor: str = "") -> d.WorkflowPage:
        """A page of workflow runs, open ones first, then the newest first.

        Example::

            page = await client.workflows()
            print([(each.id, each.status) for each in page.workflows])
        """

    @_get("workflows/{id}")
    async def workflow(self, id: str) -> d.WorkflowDetails:
        """A workflow run with its steps.

        Example::

            flow = await client.workflow("order-7")
            print([(step.name, step.status) for step in flow.step_list])
        """

    @_post("workflows/{workflow}/signals", r.NewSignal)
    async def signal(self, workflow: str, name: str, value: Any = None, *, key: str = "") -> sd.Accepted:
        """Send a workflow run a signal.

        Example::

            await client.signal("order-7", "paid", 7)
        """

    @_post("workflows/{workflow}/steps/{step}/resolution", r.Resolution)
    async def resolve_step(
        self, workflow: str, step: str, outcome: Literal["done", "failed", "again"], *, value: Any = None, why: str = ""
    ) -> sd.Accepted:
        """Say what came of a step whose outcome is unknown.

        Example::

            steps = (await client.workflow("order-7")).step_list
            charge = next(step for step in steps if step.name == "charge")
            await client.resolve_step("order-7", charge.id, "done", value=7)
        """

    @_post("workflows/{workflow}/pause", r.Reason)
    async def pause_workflow(self, workflow: str, *, why: str = "") -> sd.Accepted:
        """Pause a workflow run after its current steps.

        Example::

            await client.pause_workflow("order-7")
        """

    @_post("workflows/{workflow}/cancel", r.Reason)
    async def cancel_workflow(self, workflow: str, *, why: str = "") -> sd.Accepted:
        """Cancel a workflow run after its current steps.

        Example::

            await client.cancel_workflow("order-7", why="out of stock")
        """

    @_get("schedules")
    async def schedules(self) -> d.ScheduleList:
        """All schedules, and when each starts a workflow next.

        Example::

            print([(each.name, each.next_us) for each in (await client.schedules()).schedules])
        """

    # --- access ----------------------------------------------------------------------------------------------------

    @_get("identity")
    async def identity(self, on: str = "") -> sd.Identity:
        """Who the server takes the caller for, and what the caller may do: with something, or with anything.

        Example::

            me = await client.identity("run/r-1")
            print(me.principal, me.verbs)
        """

    @_get("credentials")
    async def credentials(self) -> sd.CredentialList:
        """Tokens, sessions and links that count; their secrets are not known.

        Example::

            print([(each.name, each.role) for each in (await client.credentials()).credentials])
        """

    @_post("credentials", r.NewToken)
    async def create_token(
        self, name: str, *, role: str = "viewer", on: Sequence[str] = (), expires_s: float = 0.0
    ) -> sd.CreatedToken:
        """Create a token for a program; its secret is returned once.

        Example::

            made = await client.create_token("grafana")
            await client.revoke_credential(made.id)
        """

    @_delete("credentials/{id}")
    async def revoke_credential(self, id: str) -> sd.CredentialInfo:
        """Revoke a token, a session or a link.

        Example::

            made = await client.create_token("phone", role="answerer")
            await client.revoke_credential(made.id)
        """

    @_get("access")
    async def grants(self, principal: str = "", *, at_us: int | None = None) -> sd.GrantList:
        """What principals, or one of them, may do: by their credentials, and by grants since; now or at a time.

        Example::

            print([(each.principal, each.on) for each in (await client.grants()).grants])
        """

    @_get("access/check")
    async def check_access(
        self, principal: str, verb: str, on: str = "store", *, at_us: int | None = None
    ) -> sd.AccessDecision:
        """Whether a principal may use a verb on something, and why.

        Example::

            print((await client.check_access("token:phone", "answer", "run/r-1")).why)
        """

    @_post("access", r.NewGrant)
    async def grant_access(
        self, principal: str, *, role: str = "", verbs: Sequence[str] = (), on: str = "store", expires_s: float = 0.0
    ) -> sd.GrantInfo:
        """Grant a token or an agent a role, or verbs, on something: of no more than the caller has.

        Example::

            given = await client.grant_access("agent:r-1.api", verbs=["read"], on="run/r-2")
            await client.revoke_access(given.id)
        """

    @_delete("access/{id}")
    async def revoke_access(self, id: str) -> sd.GrantInfo:
        """Revoke a grant.

        Example::

            given = await client.grant_access("agent:r-1.api", role="viewer", on="run/r-2")
            await client.revoke_access(given.id)
        """

    @_get("audit")
    async def audit(
        self, *, principal: str = "", on: str = "", since_us: int = 0, limit: int = 100,
        outcome: Literal["", "allowed", "denied", "unauthenticated"] = "",
    ) -> sd.AuditList:  # fmt: skip
        """Who read or did what over HTTP, from where, and with what result; the newest, the oldest of them first.

        Example::

            print([(each.principal, each.what) for each in (await client.audit(outcome="denied")).entries])
        """

    # --- everything ------------------------------------------------------------------------------------------------

    @_get("health")
    async def health(self) -> sd.HealthInfo:
        """How the server is.

        Example::

            print((await client.health()).version)
        """

    @_get("store")
    async def store_info(self) -> p.StoreInfo:
        """How large the database is, and what a check of it says.

        Example::

            print((await client.store_info()).bytes)
        """

    @_get("cost")
    async def cost(self) -> sd.CostInfo:
        """What all runs took, the most expensive first, and everything together.

        Example::

            print((await client.cost()).cost_usd)
        """

    @_get("effects")
    async def effects(self, id: str = "", *, unknown: bool = False, limit: int = 200) -> sd.EffectList:
        """Side effects of a run, a workflow run or an agent, or all; with `unknown`, those that a person must resolve.

        Example::

            print((await client.effects(unknown=True)).effects)
        """

    @_get("settings")
    async def settings(self) -> sd.SettingList:
        """All settings of the server, and where each comes from.

        Example::

            print([(each.name, each.value) for each in (await client.settings()).settings])
        """

    @_get("statistics")
    async def statistics(self, *, since_us: int = 0) -> JournalStatistics:
        """Figures of the last seven days, or from a time on: growth, agents and models compared, what is unusual.

        Example::

            figures = await client.statistics()
            print(figures.growth.events, [each.what for each in figures.anomalies])
        """

    # --- backups ---------------------------------------------------------------------------------------------------

    @_get("backups")
    async def backups(self) -> sd.BackupList:
        """The backups at the location of the server's settings, of all databases.

        Example::

            print([(each.place, each.position) for each in (await client.backups()).backups])
        """

    @_get("backups/status")
    async def backup_status(self) -> sd.BackupStatusInfo:
        """How far the backup of the server's database is, its last test, and the checks in progress.

        Example::

            status = await client.backup_status()
            print(status.missing, status.behind_s, status.tested)
        """

    @_post("backups/test")
    async def test_backup(self) -> sd.BackupCheckInfo:
        """Have the server restore its backup to a temporary database; `backup_status` shows how far it is.

        Example::

            check = await client.test_backup()
            while not check.ended_us:
                check = next(each for each in (await client.backup_status()).checks if each.kind == "test")
            print(check.problem or "it can be restored")
        """

    @_post("backups/verify")
    async def verify_backup(self) -> sd.BackupCheckInfo:
        """Have the server read its whole backup and compare every event; `backup_status` shows how far it is.

        Example::

            check = await client.verify_backup()
            print(check.started_us)
        """

    # --- events ----------------------------------------------------------------------------------------------

    @_get("events")
    async def events(
        self, *, after: int = 0, limit: int = 200, run: str = "", agent: str = "", types: Sequence[str] = ()
    ) -> sd.EventPage:
        """A page of what was recorded after a position, each event as JSON.

        Example::

            page = await client.events(run="r-1")
            print(len(page.events), page.position)
        """

    async def follow(
        self, *, after: int | None = None, run: str = "", agent: str = "", types: Sequence[str] = ()
    ) -> AsyncIterator[ActivityDocument]:
        """Everything that is recorded after a position, each once, also when the server is killed and started again.

        Without `after`, from now on. It never ends by itself: while the server is away, it waits.

        Example::

            async for event in client.follow(after=0, run="r-1"):
                print(event.position, event.type)
                break
        """
        if after is None:
            after = (await self.health()).position
        query = _query({"run": run, "agent": agent, "types": ",".join(types)})
        pause_s = PAUSE_S
        while True:
            try:
                headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
                timeout = httpx2.Timeout(TIMEOUT_S, read=60.0)
                url = f"{self.url}/api/v1/stream"
                async with self._http.stream("GET", url, params=query, headers=headers, timeout=timeout) as response:
                    if response.status_code != 200:
                        await response.aread()
                        raise _error(response)
                    pause_s = PAUSE_S
                    async for kind, position, data in _events(response.aiter_bytes()):
                        after = position
                        if kind == "recorded":
                            yield msgspec.json.decode(data, type=ActivityDocument)
            except (httpx2.TransportError, StoreUnavailable):
                pass  # it is away, or was stopped: continue after the last event that arrived
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    # --- inside ----------------------------------------------------------------------------------------------

    async def _request(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Any = None,
        body: Any = None,
        key: str = "",
        expected: int | None = None,
    ) -> T:
        headers = {"Idempotency-Key": key} if key else {}
        if expected is not None:
            headers["If-Match"] = f'"{expected}"'
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = msgspec.json.encode(body) if body is not None else None
        pause_s = PAUSE_S
        for tried in range(1, TRIES_MAX + 1):
            try:
                response = await self._http.request(
                    method, f"{self.url}/api/v1/{path}", params=_query(query or {}), content=content, headers=headers
                )
                break
            except httpx2.TransportError as error:
                is_unsent = isinstance(error, httpx2.ConnectError)
                if tried == TRIES_MAX or not (key or method == "GET" or is_unsent):
                    what = f"the server at {self.url} cannot be reached: {error}"
                    hint = "start `maos serve` there, or check MAOS_URL"
                    raise StoreUnavailable(what, written=False if is_unsent else None, hint=hint) from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        if response.status_code >= 400:
            raise _error(response)
        return msgspec.json.decode(response.content, type=kind)


def _part(text: str) -> str:
    return quote(text, safe="")


def _query(given: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as text, without those that are not given."""
    found = {name: value for name, value in given.items() if value not in ("", None, ()) and value is not False}
    return {name: _query_value(value) for name, value in found.items()}


def _query_value(value: Any) -> str:
    return "true" if value is True else ",".join(value) if isinstance(value, list | tuple) else str(value)


def _error(response: httpx2.Response) -> MaosError:
    """The error that a response stands for."""
    try:
        problem = msgspec.json.decode(response.content, type=d.ProblemDocument)
    except msgspec.DecodeError:
        what = f"the server replied with {response.status_code}, and not as maos does"
        return StoreUnavailable(what, written=None, hint="check the address, and what is in front of the server")
    name = problem.type.rpartition(":")[2]
    if response.status_code in (409, 412):
        return errors.Conflict("", what=problem.detail, hint=problem.hint)
    if response.status_code in (429, 500, 503, 507):
        return StoreUnavailable(problem.detail, written=None, hint=problem.hint)
    by_status: Mapping[int, type[MaosError]] = {
        401: errors.NotPermitted,
        403: errors.NotPermitted,
        404: errors.NotFound,
    }
    kind = _ERRORS.get(name) or by_status.get(response.status_code, InvalidInput)
    return kind(problem.detail, hint=problem.hint)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, int, bytes]]:
    """The events of a stream: kind, position and data. Lines end with a line feed alone: other characters that end
    lines in some programs can be in the data."""
    kind, position, data = "", 0, b""
    rest: list[bytes] = []
    async for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        for line in lines:
            line = b"".join([*rest, line])
            rest.clear()
            if line.startswith(b"id: "):
                position = int(line[4:])
            elif line.startswith(b"event: "):
                kind = line[7:].decode()
            elif line.startswith(b"data: "):
                data = line[6:]
            elif not line and kind:
                yield kind, position, data
                kind = ""
        rest.append(last)
