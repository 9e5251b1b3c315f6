"""A token that is limited to a run, an agent or a project gets only those: in lists, in streams, in batches, in
metrics."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import maos
from maos.model.access import Verb
from maos.model.principal import Principal, PrincipalKind
from maos.settings.schema import ServeSettings
from maos.web.endpoints.table import ENDPOINTS, PAGES
from maos.web.server import MaosServer
from maos_testing.manual_clock import ManualClock

WAIT_S_MAX = 60


def plan_of(id: str) -> dict[str, Any]:
    """A task that prints what is not in its command, and then asks."""
    return {
        "tasks": [{"name": "api", "command": ["sh", "-c", f"echo prin''ted by {id}"], "gates": [{"person": "Ok?"}]}]
    }


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[maos.Maos, MaosServer]]:
    """A server with two runs in two projects, each of which asks a person and has a message and a state."""
    async with maos.open(folder / "maos.db", home=folder / "home") as m:
        executing = []
        for id in ("r-in", "r-out"):
            (folder / id).mkdir()
            await m.runs.start(plan_of(id), folder=folder / id, options={"in_place": True}, id=id)
            executing.append(asyncio.create_task(m.runs.execute(id)))
            await m.state.create(f"{id}.api", {"of": id})
        async with asyncio.timeout(WAIT_S_MAX):
            while len(await m.questions.open()) < 2:
                await asyncio.sleep(0.02)
        for id in ("r-in", "r-out"):
            await m.bus.send("person", f"{id}.api", f"a message to {id}")
        server = MaosServer(m, ServeSettings(port=6267), folder=folder, is_executing=False)
        try:
            yield m, server
        finally:
            await server.context.close()
            for id in ("r-in", "r-out"):
                await m.runs.pause_and_wait(id)
            await asyncio.gather(*executing)


@asynccontextmanager
async def limited(
    m: maos.Maos, server: MaosServer, role: str, *on: str, name: str = "limited"
) -> AsyncIterator[httpx2.AsyncClient]:
    """A program whose token is limited."""
    _token, secret = await m.access.create_token(name, role, on=on)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=server.app),
        base_url="http://127.0.0.1:6267",
        headers={"Authorization": f"Bearer {secret}"},
    ) as http:
        yield http


async def test_lists_have_only_what_a_token_is_limited_to(tmp_path: Path) -> None:
    """I40: each item of every list, whichever the scope, and of replies that are kept for other callers."""
    lists = [each for each in (*ENDPOINTS, *PAGES) if each.on == "parts" and each.method == "GET"]
    lists = [each for each in lists if each.name not in ("stream", "checkAccess", "listCredentials", "listGrants")]
    has_items = {"listRuns", "listAgents", "listQuestions", "showFleet", "showOverview", "listMessages", "listStates",
                 "showCost", "listEvents", "metrics", "listEffects"}  # fmt: skip
    async with world(tmp_path) as (m, server), limited(m, server, "operator", name="whole") as whole:
        for number, scope in enumerate(("run/r-in", f"project/{tmp_path / 'r-in'}", "agent/r-in.api")):
            async with limited(m, server, "operator", scope, name=f"only-{number}") as http:
                for each in lists:
                    everything, part = await whole.get(each.path), await http.get(each.path)
                    assert part.status_code == everything.status_code == 200, (each.name, part.text)
                    assert "r-out" not in part.text.replace(str(tmp_path), ""), (scope, each.name)
                    assert each.name not in has_items or "r-out" in everything.text, each.name
                    if scope != "agent/r-in.api":
                        assert each.name not in has_items or "r-in" in part.text, (scope, each.name)
                assert (await http.get("/api/v1/effects", params={"id": "r-out"})).json()["effects"] == []
                assert (await http.get("/api/v1/agents", params={"run": "r-out"})).json()["total"] == 0
                assert (await http.get("/api/v1/messages", params={"run": "r-out"})).json()["messages"] == []
        async with limited(m, server, "viewer", "run/r-in", name="counts") as http:
            assert (await http.get("/api/v1/runs")).json()["total"] == 1


async def test_a_question_of_another_run_cannot_be_answered(tmp_path: Path) -> None:
    """I40: by its whole id, its id in its run, the beginning of one, or a link."""
    async with world(tmp_path) as (m, server):
        ref = next(each.ref for each in await m.questions.open() if each.owner == "r-out")
        async with limited(m, server, "answerer", "run/r-in") as http:
            for given in (ref, "r-out", "r-o", "nothing"):
                for what in ("answer", "links"):
                    body = {"answer": "yes"} if what == "answer" else None
                    refused = await http.post(f"/api/v1/questions/{given}/{what}", json=body)
                    assert refused.status_code == 404, (given, refused.text)
            # Of two questions with the same id in two runs, the one that it may answer is meant.
            answered = await http.post(f"/api/v1/questions/{ref.partition('/')[2]}/answer", json={"answer": "yes"})
            assert answered.json()["ref"].startswith("r-in/"), answered.text
        assert [each.owner for each in await m.questions.open()] == ["r-out"]


async def test_a_stream_has_only_what_its_token_is_limited_to(tmp_path: Path) -> None:
    async with world(tmp_path) as (m, server):
        token, _secret = await m.access.create_token("follower", "viewer", on=["run/r-in"])
        from maos.views.activity import ActivityFilter
        from maos.web.endpoints.stream import EventStream

        found: list[dict[str, Any]] = []
        events = EventStream(server.context, token, 0, ActivityFilter(), 0)._events(0, ActivityFilter(), 0)
        await m.bus.send("person", "r-out.api", "to the other one")
        await m.bus.send("person", "r-in.api", "the last one")
        async with asyncio.timeout(WAIT_S_MAX):
            async for chunk in events:
                found += [json.loads(each[6:]) for each in chunk.split(b"\n") if each.startswith(b"data: {")]
                if b"the last one" in chunk:
                    break
        await events.aclose()
        assert {"run", "attempt", "inbox", "agent"} <= {each["kind"] for each in found if "kind" in each}
        assert "r-out" not in json.dumps(found).replace(str(tmp_path), "")


async def test_what_an_auditor_reads_has_no_output_in_it(tmp_path: Path) -> None:
    async with (
        world(tmp_path) as (m, server),
        limited(m, server, "viewer", name="reader") as viewer,
        limited(m, server, "auditor", name="auditor") as http,
    ):
        said = 0
        for each in ENDPOINTS:
            if each.method != "GET" or each.verb is not Verb.READ or each.result is None:
                continue
            path = each.path.replace("{task}", "api")
            path = path.replace("{id}", "r-in.api" if each.on == "agent" else "r-in")
            shown, all_of_it = await http.get(path), await viewer.get(path)
            assert "printed by" not in shown.text, (each.name, shown.text)
            said += "printed by" in all_of_it.text
        assert said > 2
        for path in ("agents/r-in.api/output", "messages", "events", "stream", "state/r-in.api", "runs/r-in/diff"):
            assert (await http.get(f"/api/v1/{path}")).status_code == 403


async def test_a_second_run_in_a_request_is_checked_too(tmp_path: Path) -> None:
    async with world(tmp_path) as (m, server), limited(m, server, "operator", "run/r-in") as http:
        assert (await http.get("/api/v1/runs/r-in/comparison", params={"other": "r-out"})).status_code == 403
        forked = await http.post("/api/v1/runs/r-in/fork", json={"dry_run": True})
        assert forked.status_code == 403, forked.text  # it would be another run
        started = await http.post("/api/v1/runs", json={"request": "x"})
        assert started.status_code in (403, 409), started.text
        project = f"project/{tmp_path / 'r-in'}"
        await m.access.grant("token:limited", verbs=["start"], on=project)
        assert (await http.post("/api/v1/runs/r-in/fork", json={"dry_run": True})).status_code != 403


async def test_no_principal_gives_more_than_it_has(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        await m.access.create_token("lead", "admin", on=["run/r-1"])
        lead = m.acting_for(Principal(PrincipalKind.TOKEN, "lead"))
        given, _secret = await lead.access.create_token("helper", "operator", on=["run/r-1"])
        await lead.access.grant("token:helper", verbs=["rollback"], on="agent/r-1.api")
        for act in (
            lead.access.create_token("wide", "viewer"),
            lead.access.create_token("other", "viewer", on=["run/r-2"]),
            lead.access.offer_sign_in("viewer"),
            lead.access.grant("token:helper", role="viewer", on="store"),
            lead.access.grant("token:lead", role="admin", on="run/r-2"),
            m.acting_for(given.principal).access.grant("token:helper", role="operator", on="run/r-1"),
        ):
            with pytest.raises(maos.NotPermitted, match="may not"):
                await act
        _token, _secret = await m.access.create_token("ci", "viewer")
        with pytest.raises(maos.NotPermitted):
            await lead.access.revoke("ci")
        with pytest.raises(maos.NotPermitted):
            agent = m.acting_for(Principal(PrincipalKind.AGENT, "r-1.fix", attempt="r-1.fix.1"))
            await agent.access.grant("agent:r-1.fix", role="admin", on="store")
        await lead.access.revoke("helper")


async def test_grants_end_with_their_time_with_their_token_and_when_they_are_revoked(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    async with maos.open(tmp_path / "maos.db", clock=clock) as m, maos.open(tmp_path / "maos.db", clock=clock) as other:

        async def allowed(verb: str, on: str) -> bool:
            return (await other.access.check("token:phone", verb, on)).allowed

        assert not await allowed("read", "run/r-1")
        await m.access.create_token("phone", "viewer", on=["run/r-1"])
        assert await allowed("read", "run/r-1")
        assert not await allowed("read", "run/r-10")
        assert not await allowed("read", "store")
        given = await m.access.grant("token:phone", verbs=["answer"], on="run/r-2", expires_s=60)
        assert await allowed("answer", "run/r-2")
        assert not await allowed("read", "run/r-2")
        clock.advance(61)
        assert not await allowed("answer", "run/r-2")
        then = given.created_us + 1_000_000
        assert (await m.access.check_at("token:phone", "answer", "run/r-2", then)).allowed
        assert not (await m.access.check_at("token:phone", "read", "run/r-1", 1_600_000_000_000_000)).allowed
        second = await m.access.grant("token:phone", role="operator", on="run/r-3")
        assert await allowed("steer", "agent/r-3.fix")
        await other.access.revoke_grant(second.id[:6])
        assert not await allowed("steer", "run/r-3")
        await m.access.grant("token:phone", role="operator", on="run/r-3")
        await m.access.revoke("phone")
        assert not await allowed("read", "run/r-1")
        await m.access.create_token("phone", "viewer", on=["run/r-1"])
        assert not await allowed("steer", "run/r-3")  # what an earlier token of that name was granted
        with pytest.raises(maos.NotFound, match="no token"):
            await m.access.grant("token:nobody", role="viewer")
        for wrong in ("runs/r-1", "run", "run/", "store/x", "", "agent/\x1b"):
            with pytest.raises(maos.InvalidInput):
                await m.access.grant("token:phone", role="viewer", on=wrong)
        for how in ({}, {"role": "viewer", "verbs": ["read"]}, {"verbs": ["fly"]}, {"role": "king"}):
            with pytest.raises(maos.InvalidInput):
                await m.access.grant("token:phone", **how)
        with pytest.raises(maos.InvalidInput, match="neither a token nor an agent"):
            await m.access.grant("alice@build-3", role="viewer")


async def test_an_agent_has_its_own_run_and_a_person_at_the_database_has_everything(tmp_path: Path) -> None:
    async with maos.open(tmp_path / "maos.db") as m:
        assert (await m.access.check(m.principal, "erase")).allowed
        for name, on, verb, allowed in (
            ("r-1.fix", "run/r-1", "read", True),
            ("r-1.fix", "agent/r-1.test", "steer", True),
            ("r-1.fix", "run/r-2", "read", False),
            ("r-1.fix", "run/r-1", "answer", False),
            ("r-1.fix", "store", "read", False),
            ("alone", "agent/alone", "steer", True),
            ("alone", "agent/other", "steer", False),
        ):
            assert (await m.access.check(f"agent:{name}", verb, on)).allowed is allowed, (name, on, verb)
