"""Every route × role × scope is denied unless it is listed here; the routes are those of the application itself (I40,
A2, A11)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

import maos
from maos.model.access import Role, Verb
from maos.settings.schema import ServeSettings
from maos.web.endpoints.table import ENDPOINTS, PAGES
from maos.web.server import MaosServer
from tests.web.conftest import ServerProcess

FILES = {"/", "/page/app.js"}
"""Files of the page, which are the same for everybody and have no data; without the page's packages there are none."""
PUBLIC = {"/health", "/sign-in", "/sign-in.css", "/answer", "/api/v1/session", *FILES}
UNKNOWN = "maos_00000000_" + "x" * 43

VERBS = {
    "viewer": "read read_output",
    "answerer": "read read_output answer",
    "operator": "read read_output answer steer start stop rollback export",
    "admin": "read read_output answer steer start stop rollback erase export grant audit",
    "auditor": "read audit",
}
"""What each role allows."""
ALLOWED = {
    "nothing": {
        "read": "answerPage giveAnswer home openSession pageFile publicHealth signIn signInPage signInStyle",
    },
    "caller": {"read": "openapi showIdentity signOut"},
    "store": {
        "read": "listBackups listSchedules listSettings showBackupStatus showStatistics showStore",
        "steer": "testBackup verifyBackup",
        "audit": "listAudit",
    },
    "parts": {
        "read": "listAgents listAllDecisions listEffects listQuestions listRuns listStates listWorkflows metrics"
        " showCost showFleet showHealth showOverview",
        "read_output": "listEvents listMessages stream",
        "answer": "answerQuestion createAnswerLink",
        "start": "showStartOptions startRun",
        "grant": "checkAccess createToken grantAccess listCredentials listGrants revokeAccess revokeCredential",
    },
    "run": {
        "read": "getRun getTask getWorkflow listCheckpoints listDecisions listRunEvents listTasks showTimeline",
        "read_output": "compareRun diffRun listDiscoveries listTaskFiles showMoment",
        "steer": "addTasks makeCheckpoint mergeRun resolveStep resumeRun retryTasks signalWorkflow skipTask updateRun",
        "start": "forkRun",
        "stop": "cancelRun cancelTask cancelWorkflow pauseRun pauseWorkflow",
        "rollback": "rollBackRun",
    },
    "agent": {
        "read": "getAgent",
        "read_output": "diffAgent diffStates getState listVersions readOutput",
        "steer": "resumeAgent sendMessage updateState",
        "stop": "stopAgent",
    },
}
"""What each endpoint touches, and the verb that its caller needs on that. The tests fail until a new one is here."""
LISTED = {name: (on, verb) for on, verbs in ALLOWED.items() for verb, names in verbs.items() for name in names.split()}
INSIDE, OUTSIDE = {"run": "r-in", "agent": "r-in.api"}, {"run": "r-out", "agent": "r-out.api"}
SCOPES = {"store": None, "run/r-in": ("run", "agent"), "agent/r-in.api": ("agent",), "run/r-i": (), "agent/r-in": ()}
"""What a token is limited to, and what it has of things that are inside of `r-in`: none for the beginning of a name, or
for an agent with the name of a run."""


def url_of(path: str, id: str = "nothing") -> str:
    """A path with an id; other parts of it do not exist."""
    path = path.replace("{path:path}", "app.js").replace("{id:path}", id).replace("{id}", id)
    return path.replace("{task}", "nothing").replace("{step}", "nothing")


@asynccontextmanager
async def callers(folder: Path, *scopes: str) -> AsyncIterator[dict[tuple[str, str], httpx2.AsyncClient]]:
    """A client for each role and scope, of an application without a socket."""
    async with maos.open(folder / "maos.db", home=folder / "home") as m:
        server = MaosServer(m, ServeSettings(port=6267), folder=folder, is_executing=False)
        transport, clients = httpx2.ASGITransport(app=server.app), dict[tuple[str, str], httpx2.AsyncClient]()
        try:
            for scope in scopes:
                for role in Role:
                    name = f"{role}-{len(clients)}"
                    _token, secret = await m.access.create_token(name, role, on=[scope] if scope != "store" else [])
                    headers = {"Authorization": f"Bearer {secret}"}
                    clients[role, scope] = httpx2.AsyncClient(
                        transport=transport, base_url="http://127.0.0.1:6267", headers=headers
                    )
            yield clients
        finally:
            for each in clients.values():
                await each.aclose()
            await server.context.close()


async def test_every_route_of_the_application_is_in_the_tables(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        served = MaosServer(m, ServeSettings(), folder=tmp_path)
        routes = {(method, route.path) for route in served.routes for method in route.methods or () if method != "HEAD"}
    every = (*ENDPOINTS, *PAGES)
    assert routes == {(each.method, each.path) for each in every}
    assert {each.name: (str(each.on), str(each.verb)) for each in every} == LISTED
    assert len(LISTED) == len(every)
    assert {url_of(each.path) for each in every if each.on == "nothing"} == PUBLIC
    assert {role: set(names.split()) for role, names in VERBS.items()} == {each: set(each.verbs) for each in Role}
    assert set().union(*(names.split() for names in VERBS.values())) == set(Verb)


def test_without_a_credential_every_route_but_the_public_ones_is_refused(server: ServerProcess) -> None:
    """A2."""
    given = [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {UNKNOWN}"},
             {"Authorization": "Basic bWFvczptYW9z"}, {"Cookie": "maos_session="}, {"Authorization": "Bearer null"},
             {"Cookie": f"maos_session={UNKNOWN}"}]  # fmt: skip
    known = [(each.method, url_of(each.path), each.on == "nothing") for each in (*ENDPOINTS, *PAGES)]
    with server.client() as http:
        for method, path, is_public in [*known, ("GET", "/no/such/path", False), ("GET", "/docs", False)]:
            for headers in given if path.endswith(("runs", "stream", "/")) else given[:1]:
                status = http.request(method, path, headers=headers).status_code
                if is_public:
                    assert status not in (403, 500), (method, path)
                    assert status != 404 or path in FILES, (method, path)
                else:
                    assert status in (401, 429), (method, path, headers, status)


@pytest.mark.parametrize("scope", SCOPES)
async def test_every_route_is_denied_to_each_role_and_scope_unless_it_is_listed(tmp_path: Path, scope: str) -> None:
    """I40, A11: on what is touched, also where another part of the path is inside of the scope."""
    inside = SCOPES[scope]
    async with callers(tmp_path, scope) as clients:
        for (role, _scope), http in clients.items():
            for each in (*ENDPOINTS, *PAGES):
                on, verb = LISTED[each.name]
                if on == "nothing" or each.name in ("stream", "signOut"):
                    continue
                for where, ids in (("in", INSIDE), ("out", OUTSIDE)):
                    if where == "out" and on not in OUTSIDE:
                        continue
                    has_verb = verb in VERBS[role].split() or on == "caller"
                    is_inside = inside is None or on in ("caller", "parts") or (where == "in" and on in inside)
                    path = url_of(each.path, ids.get(on, "nothing"))
                    response = await http.request(each.method, path, json={} if each.method != "GET" else None)
                    about = (role, scope, each.method, path, response.status_code, response.text[:200])
                    if not has_verb or not is_inside:
                        assert response.status_code == 403, about
                        assert "may not" in response.json()["detail"], about
                    else:
                        assert response.status_code not in (401, 403, 405, 429, 500), about


def test_a_token_that_was_revoked_counts_no_more_at_once(server: ServerProcess) -> None:
    made = server.maos("token", "create", "short-lived", "--role", "viewer")
    with server.client(made.stdout.strip()) as http:
        assert http.get("/api/v1/overview").status_code == 200
        assert server.maos("token", "revoke", "short-lived").returncode == 0
        assert http.get("/api/v1/overview").status_code == 401
