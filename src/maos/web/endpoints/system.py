"""Questions, workflow runs, the overview, costs, settings, health and credentials over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

import maos
from maos.clock import to_us
from maos.errors import NotFound
from maos.model.access import Verb
from maos.ops.access import parse_object
from maos.settings import loader as settings_loader
from maos.settings import schema as settings_schema
from maos.web import documents as d
from maos.web import requests as r
from maos.web import system_documents as sd
from maos.web.api import Call, page_of
from maos.web.conversion import agent_info, answer_info, identity_of, question_infos, run_entry

if TYPE_CHECKING:
    from maos.model.access import Grant
    from maos.model.workflow import WorkflowRun
    from maos.ops.statistics import JournalStatistics

GIVEN_CHARS_MAX = 400


# --- questions ---------------------------------------------------------------------------------------------------


async def list_questions(call: Call) -> d.QuestionList:
    """List everything that waits for a person: questions, gates, permissions, plans, unknown outcomes; oldest first."""
    return d.QuestionList(questions=await question_infos(call.m, await call.m.questions.open(seen=call.seen)))


async def answer_question(call: Call) -> d.AnswerInfo:
    """Answer a question; the first answer counts, and a repeated one is refused with 409."""
    body = call.body
    given = await call.m.questions.answer(
        call.id, body.answer, why=body.why, scope=body.scope, pattern=body.pattern, seen=call.seen
    )
    return answer_info(given)


async def create_answer_link(call: Call) -> d.AnswerLink:
    """Create a link that answers one question once: for a notification. It asks once more before it answers."""
    asked = [each for each in await call.m.questions.open(seen=call.seen) if each.ref == call.id]
    if not asked:
        raise NotFound(f"no open question is called {call.id!r:.200}", hint="it may have been answered already")
    link, code = await call.m.access.offer_answer(asked[0].ref, expires_s=call.body.expires_s)
    return d.AnswerLink(url=f"/answer?code={code}", expires_us=link.expires_us)


# --- workflow runs -----------------------------------------------------------------------------------------------


async def list_workflows(call: Call) -> d.WorkflowPage:
    """List workflow runs, of functions and of plan files, open ones first, then the newest first."""
    from maos.views import workflows as workflow_views  # loads the engine of workflows

    query: r.RunsQuery = call.query
    found = await workflow_views.list_all(call.m.runs, call.m.workflows, query.status)
    found = [each for each in found if await call.sees(run=each.id)]
    chosen, more = page_of(found, lambda each: each.id, query.cursor, query.limit)
    return d.WorkflowPage(workflows=chosen, total=len(found), next=more)


async def get_workflow(call: Call) -> d.WorkflowDetails:
    """Show a workflow run of a function with its steps."""
    return _workflow_details(await call.m.workflows.get(call.id))


def _workflow_details(run: WorkflowRun) -> d.WorkflowDetails:
    steps = [
        d.StepInfo(
            id=id,
            kind=step.kind,
            name=step.name,
            status=step.status,
            tries=step.tries,
            given=str(step.about.get("given") or step.about.get("task") or "")[:GIVEN_CHARS_MAX],
            result=step.result,
            error=step.error,
            at_us=step.at_us,
            ended_us=step.ended_us,
        )
        for id, step in run.steps.items()
    ]
    from maos.views.workflows import of_function

    return d.of(of_function(run), d.WorkflowDetails, result=run.result, step_list=steps)


async def signal_workflow(call: Call) -> sd.Accepted:
    """Send a workflow run a signal; with an Idempotency-Key, a repeated request sends nothing."""
    await call.m.workflows.signal(call.id, call.body.name, call.body.value, key=call.key or None)
    return sd.Accepted(id=call.id, done="signal sent")


async def resolve_step(call: Call) -> sd.Accepted:
    """Resolve a step whose outcome is unknown: done with its result, failed, or again."""
    body = call.body
    await call.m.workflows.resolve(call.id, call.params["step"], body.outcome, value=body.value, why=body.why)
    return sd.Accepted(id=call.id, done=f"step {call.params['step']} resolved: {body.outcome}")


async def pause_workflow(call: Call) -> sd.Accepted:
    """Pause a workflow run after its current steps finish."""
    await call.m.workflows.pause(call.id, why=call.body.why)
    return sd.Accepted(id=call.id, done="pause requested")


async def cancel_workflow(call: Call) -> sd.Accepted:
    """Cancel a workflow run after its current steps finish."""
    await call.m.workflows.cancel(call.id, why=call.body.why)
    return sd.Accepted(id=call.id, done="cancel requested")


async def list_schedules(call: Call) -> d.ScheduleList:
    """List schedules, and when each starts a workflow next."""
    found = [
        d.ScheduleInfo(
            name=known.name,
            cron=known.cron,
            zone=known.zone,
            workflow=known.workflow,
            next_us=to_us(due) if due is not None else 0,
        )
        for known, due in await call.m.workflows.upcoming()
    ]
    return d.ScheduleList(schedules=found)


# --- everything --------------------------------------------------------------------------------------------------


async def show_overview(call: Call) -> sd.OverviewInfo:
    """Show everything that runs or waits now, and the position of the journal to follow the stream from."""
    position = await call.m.activity.head()
    found = await call.m.overview(seen=call.seen)
    return sd.OverviewInfo(
        position=position,
        runs=[run_entry(each) for each in found.runs],
        agents=[agent_info(each) for each in found.agents],
        questions=await question_infos(call.m, found.questions),
        workflows=list(found.flows),
        unknown=list(found.unknown),
    )


async def list_effects(call: Call) -> sd.EffectList:
    """List side effects of a run, a workflow run or an agent, or all; the newest of more than the limit."""
    query: r.EffectsQuery = call.query
    found = await call.m.effects(query.id, unknown=query.unknown)
    found = [each for each in found if await call.sees(agent=each.by)]
    return sd.EffectList(effects=found[-query.limit :])


async def show_cost(call: Call) -> sd.CostInfo:
    """Show what all runs took, the most expensive first, and everything together."""
    rows = []
    async for run in call.m.runs.views():
        if not await call.sees(run=run.id):
            continue
        spent = (await call.m.runs.status_of(run)).spent
        rows.append(d.of(spent, sd.CostRow, id=run.id))
    rows.sort(key=lambda each: (-each.cost_usd, each.id))
    return sd.CostInfo(
        cost_usd=sum(each.cost_usd for each in rows),
        estimated_usd=sum(each.estimated_usd for each in rows),
        tokens=sum(each.tokens for each in rows),
        unpriced_tokens=sum(each.unpriced_tokens for each in rows),
        runs=rows,
    )


async def show_statistics(call: Call) -> JournalStatistics:
    """Show figures: growth, storage by kind, agents and models compared, the cache, and what is unusual.

    They are read from all events of the time, so a reply is given again for some seconds.
    """
    return await call.server.statistics.read(call.query.since_us)


async def list_settings(call: Call) -> sd.SettingList:
    """List all settings and where each comes from; addresses that may have a key in them are hidden."""
    fields = settings_schema.fields()
    found = [
        sd.SettingInfo(
            name=each["name"],
            value=each["value"],
            default=each["default"],
            source=each["source"],
            live=each["live"],
            description=fields[each["name"]].description if each["name"] in fields else "",
        )
        for each in settings_loader.entries(call.m.settings.loaded)
    ]
    return sd.SettingList(settings=found)


async def show_health(call: Call) -> sd.HealthInfo:
    """Show how the server is: what it executes, and what it cannot execute."""
    supervisor = call.server.m.supervisor
    return sd.HealthInfo(
        status="stopping" if call.server.closing.is_set() else "ok",
        version=maos.__version__,
        position=await call.m.activity.head(),
        executing=[each for each in supervisor.executing if await call.sees(agent=each)],
        problems=[each for id, each in supervisor.problems.items() if await call.sees(agent=id)],
        streams=sum(call.server.streams.values()),
        started_us=call.server.started_us,
    )


async def show_public_health(call: Call) -> sd.PublicHealth:
    """Say whether the server is alive; the only endpoint that reads anything without a credential."""
    return sd.PublicHealth(status="stopping" if call.server.closing.is_set() else "ok")


async def show_metrics(call: Call) -> Response:
    """The figures of what runs now, in the text format of Prometheus."""
    return Response(await call.server.m.metrics(seen=call.seen), media_type="text/plain; version=0.0.4; charset=utf-8")


# --- credentials -------------------------------------------------------------------------------------------------


async def list_credentials(call: Call) -> sd.CredentialList:
    """List tokens, sessions and links that count; their secrets are not known."""
    assert call.sight is not None
    known = [each for each in await call.m.access.all() if await call.sight.covers(each.on)]
    return sd.CredentialList(credentials=[d.of(each, sd.CredentialInfo, on=list(each.on)) for each in known])


async def create_token(call: Call) -> sd.CreatedToken:
    """Create a token for a program; its secret is shown once."""
    body: r.NewToken = call.body
    token, secret = await call.m.access.create_token(body.name, body.role, on=body.on, expires_s=body.expires_s)
    return sd.CreatedToken(id=token.id, name=token.name, role=token.role, on=list(token.on), secret=secret)


async def revoke_credential(call: Call) -> sd.CredentialInfo:
    """Revoke a token, a session or a link; it does not count from now on."""
    gone = await call.m.access.revoke(call.id)
    return d.of(gone, sd.CredentialInfo, on=list(gone.on))


async def show_identity(call: Call) -> sd.Identity:
    """Show who the server takes the caller for, and what the caller may do: with something, or with anything."""
    assert call.credential is not None
    return identity_of(call.credential, await call.m.access.verbs(call.credential.principal, call.query.on or None))


# --- access ------------------------------------------------------------------------------------------------------


async def list_grants(call: Call) -> sd.GrantList:
    """List what principals may do: by their credentials, and by grants since; with `at_us`, at a time."""
    assert call.sight is not None
    query: r.GrantsQuery = call.query
    found = await call.m.access.grants(query.principal, at_us=query.at_us)
    return sd.GrantList(grants=[_grant_info(each) for each in found if await call.sight.covers([each.on])])


async def check_access(call: Call) -> sd.AccessDecision:
    """Say whether a principal may use a verb on something, and why; with `at_us`, at a time."""
    query: r.AccessQuery = call.query
    await call.require(Verb.GRANT, parse_object(query.on))
    who, verb, on = query.principal, query.verb, query.on
    found = await (
        call.m.access.check(who, verb, on)
        if query.at_us is None
        else call.m.access.check_at(who, verb, on, query.at_us)
    )
    return sd.AccessDecision(allowed=found.allowed, why=found.why)


async def grant_access(call: Call) -> sd.GrantInfo:
    """Grant a token or an agent a role, or verbs, on something; of no more than the caller has."""
    body: r.NewGrant = call.body
    given = await call.m.access.grant(
        body.principal, role=body.role, verbs=body.verbs, on=body.on, expires_s=body.expires_s
    )
    return _grant_info(given)


async def revoke_access(call: Call) -> sd.GrantInfo:
    """Revoke a grant; it does not count from now on."""
    return _grant_info(await call.m.access.revoke_grant(call.id))


async def list_audit(call: Call) -> sd.AuditList:
    """List who read or did what over HTTP, from where, and with what result; the newest, the oldest of them first."""
    query: r.AuditQuery = call.query
    await call.server.m.audit.flush()
    found = await call.m.audit.entries(
        principal=query.principal, on=query.on, outcome=query.outcome, since_us=query.since_us, last=query.limit
    )
    return sd.AuditList(entries=found)


def _grant_info(grant: Grant) -> sd.GrantInfo:
    return d.of(grant, sd.GrantInfo, verbs=sorted(grant.verbs))
