"""The API: what it shows and does is what the services do, with versions, keys, pages and problems."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import requests
import schemathesis
import uvicorn
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import maos
from maos.cli.program import program
from maos.model.access import Role
from maos.settings.schema import ServeSettings
from maos.web import openapi, report
from maos.web.endpoints.table import ENDPOINTS
from maos.web.server import MaosServer
from tests.runs.test_scheduler import Hands
from tests.web.conftest import ServerProcess, write_plan

CONFORMS = [status_code_conformance, content_type_conformance, response_schema_conformance]
GATED = {"tasks": [{"name": "api", "command": ["sh", "-c", "echo made"], "gates": [{"person": "Is it good?"}]}]}


@asynccontextmanager
async def served(folder: Path, values: ServeSettings | None = None) -> AsyncIterator[tuple[maos.Maos, MaosServer]]:
    """A server in this process."""
    async with maos.open(folder / "maos.db", home=folder / "home") as m:
        server = MaosServer(m, values or ServeSettings(port=0), folder=folder)
        stop, ready = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(server.serve(stop, lambda _url: ready.set()))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        try:
            yield m, server
        finally:
            waiting.cancel()
            stop.set()
            await serving


@asynccontextmanager
async def caller(m: maos.Maos, server: MaosServer, role: str, name: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    """A program with a token."""
    _token, secret = await m.access.create_token(name or f"a-{role}", role)
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(
        base_url=f"{server.url}/api/v1", headers=headers, timeout=60, trust_env=False
    ) as http:
        yield http


async def test_a_question_is_answered_over_http_and_the_run_continues(tmp_path: Path) -> None:
    async with served(tmp_path, ServeSettings(port=0)) as (m, server), caller(m, server, "answerer", "phone") as http:
        run = await m.runs.start(GATED, folder=tmp_path, options={"in_place": True}, is_claimed=False)
        async with asyncio.timeout(60):
            while not (asked := (await http.get("/questions")).json()["questions"]):
                await asyncio.sleep(0.05)
        assert (asked[0]["kind"], asked[0]["text"]) == ("gate", "Is it good?")
        path = f"/questions/{asked[0]['ref']}/answer"
        refused = await http.post(path, json={"answer": "perhaps"})
        assert refused.status_code == 400
        assert refused.headers["content-type"] == "application/problem+json"
        assert "neither yes nor no" in refused.json()["detail"]
        link = (await http.post(f"/questions/{asked[0]['ref']}/links")).json()
        given = await http.post(path, json={"answer": "yes"})
        assert given.json() == {"ref": asked[0]["ref"], "answer": "yes", "by": "token:phone", "running": True}
        async with asyncio.timeout(60):
            while (shown := (await http.get(f"/runs/{run.id}")).json())["status"] != "completed":
                await asyncio.sleep(0.05)
        assert shown["tasks"] == {"done": 1}
        decisions = (await http.get(f"/runs/{run.id}/decisions")).json()["decisions"]
        assert [(each["answer"], each["by"]) for each in decisions] == [("yes", "token:phone")]
        again = await http.post(path, json={"answer": "no"})
        assert again.status_code == 409
        gone = await http.get(f"{server.url}{link['url']}", headers={"Authorization": ""})
        assert gone.status_code == 410  # its question was answered


async def test_a_link_answers_one_question_once_after_asking_once_more(tmp_path: Path) -> None:
    async with served(tmp_path) as (m, server), caller(m, server, "operator") as http:
        plan = {"tasks": [{**GATED["tasks"][0], "name": name} for name in ("one", "two")]}
        run = await m.runs.start(plan, folder=tmp_path, options={"in_place": True}, is_claimed=False)
        async with asyncio.timeout(60):
            while len(asked := (await http.get("/questions")).json()["questions"]) < 2:
                await asyncio.sleep(0.05)
        link = (await http.post(f"/questions/{asked[0]['ref']}/links")).json()["url"]
        async with httpx2.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as browser:
            for _ in range(2):  # looking at it uses nothing up
                page = await browser.get(link)
                assert "Is it good?" in page.text
            assert len(await m.questions.open()) == 2
            form = f"{link.partition('?')[2]}&answer=yes"
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.url}
            unclear = await browser.post("/answer", content=form.replace("=yes", "=perhaps"), headers=headers)
            assert (unclear.status_code, "neither yes nor no" in unclear.text) == (400, True)  # it can be used still
            statuses = [(await browser.post("/answer", content=form, headers=headers)).status_code for _ in range(2)]
        assert statuses == [200, 410]
        assert [each.ref for each in await m.questions.open()] == [asked[1]["ref"]]
        await m.runs.cancel(run.id)


async def test_commands_make_a_link_that_expires(tmp_path: Path) -> None:
    """On the database and through the server; the first is used, the others expire or are refused."""
    async with served(tmp_path) as (m, server), caller(m, server, "answerer") as http:
        run = await m.runs.start(GATED, folder=tmp_path, options={"in_place": True}, is_claimed=False)
        async with asyncio.timeout(60):
            while not (asked := (await http.get("/questions")).json()["questions"]):
                await asyncio.sleep(0.05)
        ref, token = asked[0]["ref"], http.headers["Authorization"].removeprefix("Bearer ")

        async def maos_(*arguments: str, **environment: str) -> Result:
            return await asyncio.to_thread(CliRunner(env=environment).invoke, program, arguments, prog_name="maos")

        short = await maos_("answer", ref, "--link", "--expires", "0.001s", MAOS_URL=server.url, MAOS_TOKEN=token)
        local = await maos_("--db", str(tmp_path / "maos.db"), "answer", ref, "--link", "--json")
        both = await maos_("answer", ref, "yes", "--link", MAOS_URL=server.url, MAOS_TOKEN=token)
        assert (short.exit_code, local.exit_code, both.exit_code) == (0, 0, 2), (short.output, local.output)
        link = json.loads(local.stdout)
        assert (link["ref"], link["url"].partition("?")[0]) == (ref, f"{server.url}/answer")
        async with httpx2.AsyncClient(timeout=60, trust_env=False) as browser:
            assert (await browser.get(link["url"])).status_code == 200
            async with asyncio.timeout(60):
                while (late := await browser.get(short.stdout.strip())).status_code == 200:
                    await asyncio.sleep(0.01)
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": server.url}
            expired, used, again = [
                (await browser.post(f"{server.url}/answer", content=f"{code}&answer=yes", headers=headers)).status_code
                for code in (short.stdout.strip().partition("?")[2], *[link["url"].partition("?")[2]] * 2)
            ]
        assert late.status_code == expired == 410
        assert (used, again) == (200, 410)
        async with asyncio.timeout(60):
            while (await m.runs.get(run.id)).is_open:
                await asyncio.sleep(0.05)


async def test_runs_are_steered_and_versions_are_checked(tmp_path: Path) -> None:
    slow = {"tasks": [{"name": "wait", "command": ["sh", "-c", "sleep 60"]}]}
    async with served(tmp_path) as (m, server), caller(m, server, "operator", "op") as http:
        run = await m.runs.start(slow, folder=tmp_path, options={"in_place": True}, is_claimed=False)
        async with asyncio.timeout(60):
            while (shown := await http.get(f"/runs/{run.id}")).json()["agents_at_work"] != 1:
                await asyncio.sleep(0.05)
        etag = shown.headers["etag"]
        late = await http.post(f"/runs/{run.id}/pause", headers={"If-Match": '"1"'})
        assert (late.status_code, late.json()["title"]) == (412, "It has changed since")
        now = (await http.get(f"/runs/{run.id}")).headers["etag"]
        paused = await http.post(f"/runs/{run.id}/pause", headers={"If-Match": now})
        assert paused.json()["status"] == "paused", paused.text
        assert paused.json()["stopped_by"] == "token:op"
        assert paused.headers["etag"] != etag
        wrong = await http.post(f"/runs/{run.id}/limits", json={})
        assert (wrong.status_code, wrong.json()["detail"]) == (400, "nothing is to be changed"), wrong.text
        limited = await http.post(f"/runs/{run.id}/limits", json={"tokens": 5_000, "concurrency": 3})
        assert limited.json()["options"]["budget"] == {"tokens": 5_000}, limited.text
        assert (limited.json()["options"]["concurrency"], limited.json()["limit"]) == (3, "")
        resumed = await http.post(f"/runs/{run.id}/resume")
        assert resumed.json()["status"] == "running", resumed.text
        async with asyncio.timeout(60):
            while (await http.get(f"/runs/{run.id}")).json()["agents_at_work"] != 1:
                await asyncio.sleep(0.05)
        cancelled = await http.post(f"/runs/{run.id}/cancel", json={"why": "enough"})
        assert cancelled.json()["status"] == "cancelled", cancelled.text
        history = (await http.get(f"/runs/{run.id}/events", params={"limit": 2})).json()
        assert [each["version"] for each in history["events"]] == [1, 2]
        more = (await http.get(f"/runs/{run.id}/events", params={"cursor": history["next"], "limit": 500})).json()
        assert [each["version"] for each in more["events"]] == list(range(3, 3 + len(more["events"])))
        travel = await http.post(f"/runs/{run.id}/fork", json={"at": "2", "without_files": True, "dry_run": True})
        assert travel.json()["dry_run"], travel.text
        key = {"Idempotency-Key": "fork-1"}
        forks = [
            await http.post(f"/runs/{run.id}/fork", json={"at": "2", "without_files": True}, headers=key) for _ in "ab"
        ]
        assert forks[0].json()["run"] == forks[1].json()["run"]
        assert (await http.get("/runs")).json()["total"] == 2


async def test_a_run_that_has_used_up_its_budget_says_so_and_is_resumed_with_more(tmp_path: Path) -> None:
    steps = {"tasks": [{"name": "a", "command": ["true"]}, {"name": "b", "command": ["true"], "needs": ["a"]}]}
    options = {"in_place": True, "budget": {"tokens": 2}}
    async with served(tmp_path) as (m, server), caller(m, server, "operator") as http:
        run = await m.runs.start(steps, folder=tmp_path, options=options)
        run = await m.runs.execute(run.id, worker=Hands())  # type: ignore[arg-type]
        paused = (await http.get(f"/runs/{run.id}")).json()
        assert (paused["status"], paused["limit"], paused["resumable"]) == ("paused", "tokens", True), paused
        more = (await http.post(f"/runs/{run.id}/limits", json={"tokens": 100})).json()
        assert (more["status"], more["limit"], more["options"]["budget"]) == ("paused", "", {"tokens": 100})
        await http.post(f"/runs/{run.id}/resume")
        async with asyncio.timeout(60):
            while (now := (await http.get(f"/runs/{run.id}")).json())["status"] != "completed":
                await asyncio.sleep(0.05)
        assert now["tasks"] == {"done": 2}


async def test_what_is_started_over_http_names_no_command(tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    write_plan(plans, {"name": "hello", "command": ["echo", "hello"]})
    (tmp_path / "plan.json").write_text((plans / "plan.json").read_text())
    values = ServeSettings(port=0, plans=(str(plans),))
    async with served(tmp_path, values) as (m, server), caller(m, server, "operator") as http:
        for body in (
            {"tasks": [{"name": "a", "task": "x", "command": ["id"]}]},
            {"tasks": [{"name": "a", "task": "x", "gates": [{"command": ["id"]}]}]},
            {"tasks": [{"name": "a", "task": "x", "tools": ["Bash"]}]},
            {"request": "x", "kind": "shell"},
            {"request": "x", "kind": "acp:/bin/sh -c id"},
            {"tasks": [{"name": "a", "task": "id"}], "kind": "shell"},
            {"tasks": [{"name": "a", "task": "id"}], "kind": "python"},
            {"request": "x", "folder": "/"},
            {"request": "x", "folder": str(tmp_path / "..")},
            {"request": "x", "tasks": [{"name": "a", "task": "id"}]},
            {"plan": "../plan.json"},
            {"plan": str(tmp_path / "plan.json")},
            {"plan": "nothing.json"},
            {},
        ):
            response = await http.post("/runs", json=body)
            assert response.status_code in (400, 403, 404), (body, response.text)
        assert not [run async for run in m.runs.all()]
        key = {"Idempotency-Key": "start-1"}
        started = [await http.post("/runs", json={"plan": "plan.json"}, headers=key) for _ in "ab"]
        assert [each.status_code for each in started] == [201, 201], started[0].text
        assert started[0].json()["id"] == started[1].json()["id"]
        assert started[0].json()["created_by"] == "token:a-operator"
        other = await http.post("/runs", json={"request": "something else"}, headers=key)
        assert (other.status_code, other.json()["type"]) == (422, "urn:maos:key-reused")
        async with asyncio.timeout(60):
            while (await http.get(f"/runs/{started[0].json()['id']}")).json()["status"] != "completed":
                await asyncio.sleep(0.05)
        assert len([run async for run in m.runs.all()]) == 1


async def test_texts_that_are_no_paths_and_no_times_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (m, server), caller(m, server, "operator") as http:
        folder = await http.post("/runs", json={"request": "x", "folder": f"{tmp_path}/\0"})
        assert folder.status_code == 400, folder.text
        run = await m.runs.start(GATED, folder=tmp_path, options={"in_place": True}, is_claimed=False)
        for at in ("0001-01-01", "9999-12-31T23:59:59-23:59", "-9999999999999999999", "²"):
            found = await http.get(f"/runs/{run.id}", params={"at": at})
            assert found.status_code in (400, 404), (at, found.text)
        async with asyncio.timeout(60):  # a run that is being claimed at this moment cannot be cancelled
            while not await m.questions.open():
                await asyncio.sleep(0.05)
        await m.runs.cancel(run.id)


async def test_a_server_that_cannot_serve_says_so_and_is_not_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no.pem").write_text("this is no certificate")
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        broken = ServeSettings(port=0, tls_certificate=str(tmp_path / "no.pem"), tls_key=str(tmp_path / "no.pem"))
        with pytest.raises(maos.InvalidInput, match=r"no\.pem"):
            MaosServer(m, broken, folder=tmp_path)

        def fail(_config: Any) -> None:
            raise OSError("no more files can be opened")

        server, told = MaosServer(m, ServeSettings(port=0), folder=tmp_path), list[str]()
        monkeypatch.setattr(uvicorn.Config, "load", fail)
        with pytest.raises(OSError, match="no more files"):
            await server.serve(asyncio.Event(), told.append)
        assert not told
        assert not [each async for each in m.journal.read("servers")]


async def test_a_report_leaves_out_nothing_that_cannot_be_read(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        plan = {"tasks": [{"name": "hello", "command": ["echo", "hello"]}]}
        await m.runs.start(plan, folder=tmp_path, options={"in_place": True}, id="r-1")
        await m.runs.execute("r-1")
        assert "r-1.hello" in (await report._Reader(m, "r-1").read())["outputs"]
    async with maos.open(tmp_path / "maos.db", types=[maos.EventType("from_elsewhere", 1)]) as newer:
        await newer.journal.append("attempt/r-1.hello.1", maos.Event("from_elsewhere", {}))
    async with maos.open(tmp_path / "maos.db", home=tmp_path / "home") as m:
        with pytest.raises(maos.UnknownFormat):
            await report._Reader(m, "r-1").read()


async def test_output_comes_in_windows_and_states_with_history(tmp_path: Path) -> None:
    async with served(tmp_path) as (m, server), caller(m, server, "operator") as http:
        running = await m.agents.start(kind="shell", argv=["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done"],
                                       cwd=tmp_path, in_place=True, name="worker")  # fmt: skip
        await running.wait()
        newest = (await http.get("/agents/worker/output", params={"limit": 2})).json()
        assert (newest["last"], len(newest["events"])) == (newest["newest"], 2)
        older = (await http.get("/agents/worker/output", params={"before": newest["first"], "limit": 500})).json()
        assert [each["version"] for each in older["events"]] == list(range(1, newest["first"]))
        newer = (await http.get("/agents/worker/output", params={"after": older["last"]})).json()
        assert newer["events"] == newest["events"]
        assert (await http.get("/agents/worker/output", params={"after": 1, "before": 2})).status_code == 400
        await m.state.create("notes", {"n": 1})
        state = await http.get("/state/notes")
        assert (state.json()["data"], state.headers["etag"]) == ({"n": 1}, '"1"')
        body: dict[str, Any] = {"changes": {"n": 2}}
        for expected in (200, 200):  # the second repeats the first
            headers = {"Idempotency-Key": "k", "If-Match": '"1"'}
            changed = await http.patch("/state/notes", json=body, headers=headers)
            assert changed.status_code == expected, changed.text
        assert changed.headers["etag"] == '"2"'
        late = await http.patch("/state/notes", json={"changes": {"n": 3}}, headers={"If-Match": '"1"'})
        assert late.status_code == 412
        diff = (await http.get("/state/notes/diff", params={"first": 1, "second": 2})).json()["changes"]
        assert [(each["path"], each["before"], each["after"]) for each in diff] == [("/n", 1, 2)]
        versions = (await http.get("/state/notes/versions", params={"limit": 1})).json()
        assert (versions["versions"][0]["version"], versions["next"]) == (1, "1")


def test_every_get_endpoint_returns_a_document_of_its_class(server: ServerProcess, tokens: dict[str, str]) -> None:
    ids = {"/runs/{id}": "r-done", "/agents/{id}": "r-done.hello", "/state/{id:path}": "reviewer"}
    with server.client(tokens["admin"]) as http:
        for each in ENDPOINTS:
            if each.method != "GET" or each.result is None or "/workflows/{id}" in each.path:
                continue
            path = each.path
            for template, id in ids.items():
                path = path.replace(template, template.replace("{id}", id).replace("{id:path}", id))
            path = path.replace("{task}", "hello")
            asked = {"diffStates": {"first": 1, "second": 2}, "checkAccess": {"principal": "token:x", "verb": "read"}}
            response = http.get(path, params=asked.get(each.name))
            if each.name in ("diffAgent", "listTaskFiles"):
                assert response.status_code == 400  # it worked in the folder itself
                continue
            assert response.status_code == 200, (path, response.text)
            if each.name != "listEvents":
                msgspec.json.decode(response.content, type=each.result)


def test_the_openapi_document_has_every_endpoint_and_its_need(server: ServerProcess, tokens: dict[str, str]) -> None:
    with server.client(tokens["viewer"]) as http:
        found = http.get("/api/v1/openapi.json").json()
    assert found == json.loads(msgspec.json.encode(openapi.document(ENDPOINTS)))
    operations = [each for path in found["paths"].values() for each in path.values()]
    assert {(each["operationId"], each["x-on"]) for each in operations} == {(each.name, each.on) for each in ENDPOINTS}
    assert {each["operationId"] for each in operations if each["x-verb"] == "none"} == {"openSession"}
    assert all(each["summary"] and each["responses"] for each in operations)


def test_errors_are_problems_with_the_hints_of_the_command_line(server: ServerProcess, tokens: dict[str, str]) -> None:
    with server.client(tokens["operator"]) as http:
        missing = http.get("/api/v1/runs/r-none")
        assert missing.status_code == 404
        assert missing.json() == {
            "type": "urn:maos:not-found", "title": "Not found", "status": 404, "detail": "there is no run 'r-none'",
            "hint": "`maos ps --all` lists runs", "problems": [],
        }  # fmt: skip
        assert http.delete("/api/v1/runs").status_code == 405
        plan = http.post("/api/v1/runs", json={"tasks": [{"name": "a", "task": "x", "needs": ["b"]}]})
        assert plan.status_code in (400, 422)
        assert "needs" in plan.text


EXAMPLES = 3
LEFT_OUT = {
    "stream": "it does not end; tests/web/test_stream.py reads it",
    "openSession": "wrong codes count as failed sign-ins, which lock this address out for the other tests (A23)",
}
"""Operations that are not tried with made-up requests, and why."""
OF_ADMINS = {"createToken", "revokeCredential"}
"""Operations that would change whom the server of the other tests admits; an admin tries them on another server."""


@cache
def operations() -> dict[str, tuple[Any, Any]]:
    """Every operation with the strategy that makes up requests of it; that takes longer than most requests."""
    schema = schemathesis.openapi.from_dict(openapi.document(ENDPOINTS))
    found = [each.ok() for each in schema.get_all_operations()]
    return {each.definition.raw["operationId"]: (each, each.as_strategy()) for each in found}


def check(url: str, token: str, names: Collection[str], examples: int = EXAMPLES) -> int:
    """Send made-up requests of operations, and compare the responses with the document; how many were sent."""
    count = 0
    with requests.Session() as session:  # a connection for each request would take as long as the request
        for name in names:

            @settings(
                max_examples=examples, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
            )
            @given(case=operations()[name][1])
            def holds(case: Any) -> None:
                nonlocal count
                headers = {"Authorization": f"Bearer {token}"}
                while (response := case.call(base_url=url, headers=headers, session=session)).status_code == 429:
                    time.sleep(float(response.headers["Retry-After"][0]))  # the limit of this caller
                assert response.status_code < 500, (case.method, case.formatted_path, response.text)
                case.validate_response(response, checks=CONFORMS)
                count += 1

            holds()
    return count


@pytest.mark.parametrize("role", list(Role))
def test_the_server_holds_what_the_openapi_document_says_for_each_role(
    server: ServerProcess, tokens: dict[str, str], role: Role
) -> None:
    left_out = LEFT_OUT.keys() | (OF_ADMINS if role is Role.ADMIN else set())
    names = [name for name in operations() if name not in left_out]
    assert check(server.url, tokens[role], names) >= len(names)


def test_the_server_holds_what_the_openapi_document_says_of_credentials(
    new_server: Callable[[], ServerProcess],
) -> None:
    server = new_server()
    server.start("--no-resume")
    assert check(server.url, server.tokens()["admin"], OF_ADMINS, 3 * EXAMPLES) >= len(OF_ADMINS)


def test_prometheus_scrapes_it_with_a_viewers_token(server: ServerProcess, tokens: dict[str, str]) -> None:
    with server.client() as stranger:
        assert stranger.get("/metrics").status_code == 401
    with server.client(tokens["viewer"]) as http:
        reply = http.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    printed = server.maos("stats", "--prometheus").stdout
    names = [line for line in reply.text.splitlines() if line.startswith("#")]
    assert names == [line for line in printed.splitlines() if line.startswith("#")]
    assert "\nmaos_questions_open 0\n" in reply.text
