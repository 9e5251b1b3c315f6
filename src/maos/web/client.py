"""The client of a server: the API of `maos serve` for programs, with the types and the errors of maos.

    async with maos.Client("http://127.0.0.1:6267", token=token) as client:
        for question in (await client.questions()).questions:
            await client.answer(question.ref, "yes")

    with maos.Client.connect("http://127.0.0.1:6267", token=token) as client:   # without asyncio
        print([run.id for run in client.runs().runs])

The token comes from the variable MAOS_TOKEN if it is not given. Requests that start something have a key of their own
and are repeated when the connection fails, so each takes effect once.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from maos import errors
from maos.errors import InvalidInput, MaosError, StoreUnavailable
from maos.model.read_models import AgentStatus
from maos.ops.statistics import JournalStatistics
from maos.sync import LoopThread, ProxyContext
from maos.views.activity import ActivityDocument
from maos.web import documents as d
from maos.web import requests as r
from maos.web import system_documents as sd

T = TypeVar("T")

TIMEOUT_S = 30.0
TRIES_MAX = 5
PAUSE_S, PAUSE_S_MAX = 0.2, 5.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ERRORS: Mapping[str, type[MaosError]] = {
    "not-found": errors.NotFound,
    "not-permitted": errors.NotPermitted,
    "unauthenticated": errors.NotPermitted,
    "invalid-input": errors.InvalidInput,
    "bad-plan": errors.InvalidInput,
}


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

    # --- runs ------------------------------------------------------------------------------------------------

    async def overview(self) -> sd.OverviewInfo:
        """Everything that runs or waits now.

        Example::

            overview = await client.overview()
            print([run.id for run in overview.runs], len(overview.questions))
        """
        return await self._get("overview", sd.OverviewInfo)

    async def runs(self, *, status: str = "", limit: int = 50, cursor: str = "") -> d.RunPage:
        """A page of runs, open ones first, then the newest first.

        Example::

            page = await client.runs(status="running", limit=10)
            print([(run.id, run.progress) for run in page.runs])
        """
        return await self._get("runs", d.RunPage, status=status, limit=limit, cursor=cursor)

    async def run(self, id: str, *, at: str = "") -> d.RunDetails:
        """One run, now or at a point in time.

        Example::

            run = await client.run("r-1")
            print(run.status, run.cost_usd)
        """
        return await self._get(f"runs/{_part(id)}", d.RunDetails, at=at)

    async def tasks(self, id: str, *, limit: int = 200, cursor: str = "") -> d.TaskPage:
        """A page of the tasks of a run.

        Example::

            page = await client.tasks("r-1")
            print([(task.name, task.status) for task in page.tasks])
        """
        return await self._get(f"runs/{_part(id)}/tasks", d.TaskPage, limit=limit, cursor=cursor)

    async def start_run(
        self, request: str = "", *, tasks: Sequence[r.NewTask] = (), key: str = "", **options: Any
    ) -> d.RunDetails:
        """Start a run of a request, or of tasks; `options` are the other fields of `NewRun`.

        Example::

            run = await client.start_run("Write tests for the parser", key="ticket-12")
            print(run.id)
        """
        body = r.NewRun(request=request, tasks=list(tasks), **options)
        return await self._post("runs", d.RunDetails, body, key=key or str(uuid.uuid4()))

    async def pause(self, id: str, *, expected: int | None = None) -> d.RunDetails:
        """Pause a run. With `expected`, here and below: only while the run is at that version, else Conflict.

        Example::

            run = await client.pause("r-1")
        """
        return await self._post(f"runs/{_part(id)}/pause", d.RunDetails, expected=expected)

    async def resume(self, id: str, *, expected: int | None = None) -> d.RunDetails:
        """Have the server resume a run.

        Example::

            await client.pause("r-1")
            run = await client.resume("r-1")
        """
        return await self._post(f"runs/{_part(id)}/resume", d.RunDetails, expected=expected)

    async def update(self, id: str, **limits: float) -> d.RunDetails:
        """Change limits of a run; `limits` are fields of `NewLimits`.

        Example::

            run = await client.update("r-1", cost_usd=5)
        """
        return await self._post(f"runs/{_part(id)}/limits", d.RunDetails, r.NewLimits(**limits))  # type: ignore[arg-type]  # the server checks

    async def cancel(self, id: str, *, task: str = "", why: str = "", expected: int | None = None) -> d.RunDetails:
        """Cancel a run, or one task of it.

        Example::

            run = await client.cancel("r-1", task="api", why="no longer needed")
        """
        path = f"runs/{_part(id)}/tasks/{_part(task)}/cancel" if task else f"runs/{_part(id)}/cancel"
        return await self._post(path, d.RunDetails, r.Reason(why=why), expected=expected)

    async def retry(self, id: str, *, tasks: Sequence[str] = (), expected: int | None = None) -> d.RunDetails:
        """Retry failed tasks of a run, all by default.

        Example::

            run = await client.retry("r-1", tasks=["deploy"])
        """
        body = r.RetryTasks(tasks=list(tasks))
        return await self._post(f"runs/{_part(id)}/retry", d.RunDetails, body, expected=expected)

    async def skip(self, id: str, task: str, *, why: str = "", expected: int | None = None) -> d.RunDetails:
        """Skip a task of a run.

        Example::

            run = await client.skip("r-1", "deploy", why="deployed by hand")
        """
        path = f"runs/{_part(id)}/tasks/{_part(task)}/skip"
        return await self._post(path, d.RunDetails, r.Reason(why=why), expected=expected)

    async def rollback(
        self, id: str, to: str = "", *, dry_run: bool = False, expected: int | None = None, **options: Any
    ) -> d.TravelInfo:
        """Roll a run back to a point in time, by default its newest checkpoint.

        Example::

            found = await client.rollback("r-1", "planned", dry_run=True)
            print(found)
        """
        body = r.Rollback(to=to, dry_run=dry_run, **options)
        return await self._post(f"runs/{_part(id)}/rollback", d.TravelInfo, body, expected=expected)

    async def fork(
        self, id: str, at: str = "", *, dry_run: bool = False, key: str = "", **options: Any
    ) -> d.TravelInfo:
        """Start a second run from a point in time of a run, by default now.

        Example::

            found = await client.fork("r-1", dry_run=True)
            print(found)
        """
        body = r.Fork(at=at, dry_run=dry_run, **options)
        return await self._post(f"runs/{_part(id)}/fork", d.TravelInfo, body, key=key or str(uuid.uuid4()))

    async def checkpoint(self, id: str, name: str) -> d.PointInfo:
        """Give the present state of a run a name.

        Example::

            point = await client.checkpoint("r-1", "before-release")
        """
        return await self._post(f"runs/{_part(id)}/checkpoints", d.PointInfo, r.NewCheckpoint(name=name))

    async def merge(
        self, id: str, *, branch: str = "", dry_run: bool = False, expected: int | None = None, **options: Any
    ) -> d.MergeInfo:
        """Merge what the tasks of a run have done into the branch that is checked out, or another one.

        `options` are the other fields of `NewMerge`.

        Example::

            found = await client.merge("r-1", branch="new-parser", dry_run=True)
            print(found.outcome, found.files)
        """
        body = r.NewMerge(branch=branch, dry_run=dry_run, **options)
        return await self._post(f"runs/{_part(id)}/merge", d.MergeInfo, body, expected=expected)

    # --- agents and questions --------------------------------------------------------------------------------

    async def agents(self, *, run: str = "", open: bool = False, limit: int = 50, cursor: str = "") -> d.AgentPage:
        """A page of agents, open ones first, then the newest first.

        Example::

            page = await client.agents(run="r-1", open=True)
            print([agent.agent for agent in page.agents])
        """
        return await self._get("agents", d.AgentPage, run=run, open=open, limit=limit, cursor=cursor)

    async def agent(self, name: str) -> d.AgentDetailsInfo:
        """One agent.

        Example::

            agent = await client.agent("r-1.api")
            print(agent.status)
        """
        return await self._get(f"agents/{_part(name)}", d.AgentDetailsInfo)

    async def output(self, agent: str, **window: int | None) -> d.OutputPage:
        """A window of what an agent did: `after` or `before` a version, of an `attempt`, at most `limit`.

        Example::

            page = await client.output("r-1.api", limit=50)
            print([event.type for event in page.events])
        """
        return await self._get(f"agents/{_part(agent)}/output", d.OutputPage, **window)

    async def send(self, agent: str, text: str, *, key: str = "") -> d.SentInfo:
        """Send a message to an agent.

        Example::

            sent = await client.send("fixer", "Use port 8080")
        """
        body = r.NewMessage(text=text)
        return await self._post(f"agents/{_part(agent)}/messages", d.SentInfo, body, key=key or str(uuid.uuid4()))

    async def stop(self, agent: str) -> AgentStatus:
        """Stop an agent.

        Example::

            agent = await client.stop("r-1.api")
        """
        return await self._post(f"agents/{_part(agent)}/stop", AgentStatus)

    async def resume_agent(self, agent: str, text: str = "") -> AgentStatus:
        """Resume an agent that belongs to no run, and tell it something more.

        Example::

            agent = await client.resume_agent("fixer")
        """
        return await self._post(f"agents/{_part(agent)}/resume", AgentStatus, r.AgentResumption(text=text))

    async def messages(self, *, run: str = "", agent: str = "", limit: int = 50) -> d.MessageList:
        """The newest messages between agents.

        Example::

            found = await client.messages(run="r-1")
            print([message.text for message in found.messages])
        """
        return await self._get("messages", d.MessageList, run=run, agent=agent, limit=limit)

    async def questions(self) -> d.QuestionList:
        """Everything that waits for a person.

        Example::

            for question in (await client.questions()).questions:
                print(question.ref, question.text)
        """
        return await self._get("questions", d.QuestionList)

    async def answer(
        self, ref: str, answer: str, *, why: str = "", scope: Literal["", "agent", "run"] = "", pattern: str = ""
    ) -> d.AnswerInfo:
        """Answer a question; the first answer counts. To a permission, `always` and `never` make a rule.

        Example::

            given = await client.answer("r-1/gate/docs/0/1", "yes")
            print(given.by)
        """
        path = f"questions/{quote(ref, safe='/')}/answer"
        return await self._post(path, d.AnswerInfo, r.NewAnswer(answer=answer, why=why, scope=scope, pattern=pattern))

    async def signal(self, workflow: str, name: str, value: Any = None, *, key: str = "") -> sd.Accepted:
        """Send a workflow run a signal.

        Example::

            await client.signal("order-7", "paid", 7)
        """
        body, key = r.NewSignal(name=name, value=value), key or str(uuid.uuid4())
        return await self._post(f"workflows/{_part(workflow)}/signals", sd.Accepted, body, key=key)

    # --- access ----------------------------------------------------------------------------------------------

    async def grants(self, principal: str = "", *, at_us: int | None = None) -> sd.GrantList:
        """What principals, or one of them, may do: by their credentials, and by grants since; now or at a time.

        Example::

            print([(each.principal, each.on) for each in (await client.grants()).grants])
        """
        return await self._get("access", sd.GrantList, principal=principal, at_us=at_us)

    async def check_access(
        self, principal: str, verb: str, on: str = "store", *, at_us: int | None = None
    ) -> sd.AccessDecision:
        """Whether a principal may use a verb on something, and why.

        Example::

            print((await client.check_access("token:phone", "answer", "run/r-1")).why)
        """
        asked = {"principal": principal, "verb": verb, "on": on, "at_us": at_us}
        return await self._get("access/check", sd.AccessDecision, **asked)

    async def grant_access(
        self, principal: str, *, role: str = "", verbs: Sequence[str] = (), on: str = "store", expires_s: float = 0.0
    ) -> sd.GrantInfo:
        """Grant a token or an agent a role, or verbs, on something: of no more than the caller has.

        Example::

            given = await client.grant_access("agent:r-1.api", verbs=["read"], on="run/r-2")
            await client.revoke_access(given.id)
        """
        chosen: Any = {"role": role, "verbs": list(verbs)}  # the server checks
        body = r.NewGrant(principal=principal, on=on, expires_s=expires_s, **chosen)
        return await self._post("access", sd.GrantInfo, body)

    async def revoke_access(self, id: str) -> sd.GrantInfo:
        """Revoke a grant.

        Example::

            given = await client.grant_access("agent:r-1.api", role="viewer", on="run/r-2")
            await client.revoke_access(given.id)
        """
        return await self._request("DELETE", f"access/{_part(id)}", sd.GrantInfo)

    async def health(self) -> sd.HealthInfo:
        """How the server is.

        Example::

            print((await client.health()).version)
        """
        return await self._get("health", sd.HealthInfo)

    async def statistics(self, *, since_us: int = 0) -> JournalStatistics:
        """Figures of the last seven days, or from a time on: growth, agents and models compared, what is unusual.

        Example::

            figures = await client.statistics()
            print(figures.growth.events, [each.what for each in figures.anomalies])
        """
        return await self._get("statistics", JournalStatistics, since_us=since_us)

    # --- backups ---------------------------------------------------------------------------------------------

    async def backups(self) -> sd.BackupList:
        """The backups at the location of the server's settings, of all databases.

        Example::

            print([(each.place, each.position) for each in (await client.backups()).backups])
        """
        return await self._get("backups", sd.BackupList)

    async def backup_status(self) -> sd.BackupStatusInfo:
        """How far the backup of the server's database is, its last test, and the checks in progress.

        Example::

            status = await client.backup_status()
            print(status.missing, status.behind_s, status.tested)
        """
        return await self._get("backups/status", sd.BackupStatusInfo)

    async def test_backup(self) -> sd.BackupCheckInfo:
        """Have the server restore its backup to a temporary database; `backup_status` shows how far it is.

        Example::

            check = await client.test_backup()
            while not check.ended_us:
                check = next(each for each in (await client.backup_status()).checks if each.kind == "test")
            print(check.problem or "it can be restored")
        """
        return await self._post("backups/test", sd.BackupCheckInfo)

    async def verify_backup(self) -> sd.BackupCheckInfo:
        """Have the server read its whole backup and compare every event; `backup_status` shows how far it is.

        Example::

            check = await client.verify_backup()
            print(check.started_us)
        """
        return await self._post("backups/verify", sd.BackupCheckInfo)

    # --- events ----------------------------------------------------------------------------------------------

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

    async def _get(self, path: str, kind: type[T], **query: Any) -> T:
        return await self._request("GET", path, kind, query=query)

    async def _post(
        self, path: str, kind: type[T], body: r.Body | None = None, *, key: str = "", expected: int | None = None
    ) -> T:
        return await self._request("POST", path, kind, body=body, key=key, expected=expected)

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
    found = {name: value for name, value in given.items() if value not in ("", None) and value is not False}
    return {name: "true" if value is True else str(value) for name, value in found.items()}


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
