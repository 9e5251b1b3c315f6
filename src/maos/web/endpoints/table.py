"""All endpoints: method, path, name, the verb that each needs on what, and the classes of what goes in and out.

This is the only list: routes, what the guard checks and the OpenAPI document are made from it, and what is not here is
refused. Of two paths that both match, the first counts.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from maos.model.access import Verb
from maos.model.read_models import AgentStatus
from maos.ops.statistics import JournalStatistics
from maos.web import documents as d
from maos.web import openapi
from maos.web import page_documents as p
from maos.web import requests as r
from maos.web import system_documents as sd
from maos.web.api import API, Call, Endpoint
from maos.web.endpoints import agents, assets, backups, glance, pages, runs, stream, system
from maos.web.guard import Touches

READ, READ_OUTPUT, ANSWER, STEER, START = Verb.READ, Verb.READ_OUTPUT, Verb.ANSWER, Verb.STEER, Verb.START
STOP, ROLLBACK, GRANT = Verb.STOP, Verb.ROLLBACK, Verb.GRANT
NOTHING, CALLER, STORE, PARTS, RUN, AGENT = Touches
KEPT = frozenset({
    "showOverview", "showFleet", "listAllDecisions", "showTimeline", "getTask", "listDiscoveries", "listRuns", "getRun",
    "listTasks", "listRunEvents", "listDecisions", "listCheckpoints", "listAgents", "getAgent", "readOutput",
    "listMessages", "listQuestions", "listWorkflows", "getWorkflow", "listEffects", "showCost",
})  # fmt: skip
"""Reads that are computed from the journal, and from which processes are alive, for whichever caller."""
PLACES = {"runs": RUN, "workflows": RUN, "agents": AGENT, "state": AGENT}
"""What is touched by paths that begin so and continue with an id."""


def _touched(path: str) -> Touches:
    kind, _, rest = path.removeprefix("/").partition("/")
    return PLACES.get(kind, PARTS) if rest.startswith("{id") else PARTS


def _get(
    path: str, name: str, handle: Any, result: Any, query: Any = None, *, verb: Verb = READ, on: Touches | None = None
) -> Endpoint:
    return Endpoint(
        "GET", API + path, name, verb, on or _touched(path), handle, result, None, query, is_kept=name in KEPT
    )


def _post(
    path: str,
    name: str,
    verb: Verb,
    handle: Any,
    result: Any,
    body: Any = None,
    *,
    status: int = 200,
    on: Touches | None = None,
) -> Endpoint:
    return Endpoint("POST", API + path, name, verb, on or _touched(path), handle, result, body, None, status)


ENDPOINTS: tuple[Endpoint, ...] = (
    _get("/overview", "showOverview", system.show_overview, sd.OverviewInfo),
    # what the page shows at a glance
    _get("/fleet", "showFleet", glance.show_fleet, p.FleetInfo),
    _get("/decisions", "listAllDecisions", glance.list_all_decisions, d.DecisionList, r.DecisionsQuery),
    _get("/start-options", "showStartOptions", glance.show_start_options, p.StartChoices, verb=START),
    _get("/store", "showStore", glance.show_store, p.StoreInfo, on=STORE),
    _get("/runs/{id}/timeline", "showTimeline", glance.show_timeline, p.TimelineInfo),
    _get("/runs/{id}/tasks/{task}", "getTask", glance.show_task, d.TaskInfo),
    _get("/runs/{id}/discoveries", "listDiscoveries", glance.list_discoveries, p.DiscoveryList, verb=READ_OUTPUT),
    _get("/runs/{id}/moment", "showMoment", glance.show_moment, p.MomentInfo, r.AtQuery, verb=READ_OUTPUT),
    # runs
    _get("/runs", "listRuns", runs.list_runs, d.RunPage, r.RunsQuery),
    _post("/runs", "startRun", START, runs.start_run, d.RunDetails, r.NewRun, status=201),
    _get("/runs/{id}", "getRun", runs.get_run, d.RunDetails, r.AtQuery),
    _get("/runs/{id}/tasks", "listTasks", runs.list_tasks, d.TaskPage, r.TasksQuery),
    _post("/runs/{id}/tasks", "addTasks", STEER, runs.add_tasks, d.RunDetails, r.MoreTasks),
    _post("/runs/{id}/tasks/{task}/cancel", "cancelTask", STOP, runs.cancel_task, d.RunDetails, r.Reason),
    _post("/runs/{id}/tasks/{task}/skip", "skipTask", STEER, runs.skip_task, d.RunDetails, r.Reason),
    _get("/runs/{id}/events", "listRunEvents", runs.list_events, d.RunHistory, r.HistoryQuery),
    _get("/runs/{id}/decisions", "listDecisions", runs.list_decisions, d.DecisionList),
    _get("/runs/{id}/diff", "diffRun", runs.diff_run, d.DiffInfo, r.PatchQuery, verb=READ_OUTPUT),
    _get("/runs/{id}/files", "listTaskFiles", runs.list_task_files, d.TaskFilesList, r.PatchQuery, verb=READ_OUTPUT),
    _post("/runs/{id}/merge", "mergeRun", STEER, runs.merge_run, d.MergeInfo, r.NewMerge),
    _get("/runs/{id}/comparison", "compareRun", runs.compare_run, d.DifferenceInfo, r.DiffQuery, verb=READ_OUTPUT),
    _get("/runs/{id}/checkpoints", "listCheckpoints", runs.list_checkpoints, d.PointList),
    _post("/runs/{id}/checkpoints", "makeCheckpoint", STEER, runs.make_checkpoint, d.PointInfo, r.NewCheckpoint,
          status=201),
    _post("/runs/{id}/pause", "pauseRun", STOP, runs.pause_run, d.RunDetails),
    _post("/runs/{id}/resume", "resumeRun", STEER, runs.resume_run, d.RunDetails),
    _post("/runs/{id}/cancel", "cancelRun", STOP, runs.cancel_run, d.RunDetails, r.Reason),
    _post("/runs/{id}/limits", "updateRun", STEER, runs.update_run, d.RunDetails, r.NewLimits),
    _post("/runs/{id}/retry", "retryTasks", STEER, runs.retry_tasks, d.RunDetails, r.RetryTasks),
    _post("/runs/{id}/rollback", "rollBackRun", ROLLBACK, runs.roll_back, d.TravelInfo, r.Rollback),
    _post("/runs/{id}/fork", "forkRun", START, runs.fork_run, d.TravelInfo, r.Fork),
    # agents
    _get("/agents", "listAgents", agents.list_agents, d.AgentPage, r.AgentsQuery),
    _get("/agents/{id}", "getAgent", agents.get_agent, d.AgentDetailsInfo),
    _get("/agents/{id}/output", "readOutput", agents.read_output, d.OutputPage, r.OutputQuery, verb=READ_OUTPUT),
    _get("/agents/{id}/diff", "diffAgent", agents.diff_agent, d.DiffInfo, r.PatchQuery, verb=READ_OUTPUT),
    _post("/agents/{id}/messages", "sendMessage", STEER, agents.send_message, d.SentInfo, r.NewMessage, status=201),
    _post("/agents/{id}/stop", "stopAgent", STOP, agents.stop_agent, AgentStatus),
    _post("/agents/{id}/resume", "resumeAgent", STEER, agents.resume_agent, AgentStatus, r.AgentResumption),
    _get("/messages", "listMessages", agents.list_messages, d.MessageList, r.MessagesQuery, verb=READ_OUTPUT),
    # questions
    _get("/questions", "listQuestions", system.list_questions, d.QuestionList),
    _post("/questions/{id:path}/answer", "answerQuestion", ANSWER, system.answer_question, d.AnswerInfo, r.NewAnswer),
    _post("/questions/{id:path}/links", "createAnswerLink", ANSWER, system.create_answer_link, d.AnswerLink,
          r.NewAnswerLink, status=201),
    # state
    _get("/state", "listStates", agents.list_states, d.StateList, r.PageQuery),
    _get("/state/{id:path}/versions", "listVersions", agents.list_versions, d.StateHistoryInfo, r.PageQuery,
         verb=READ_OUTPUT),
    _get("/state/{id:path}/diff", "diffStates", agents.diff_states, d.StateDiffInfo, r.StateDiffQuery,
         verb=READ_OUTPUT),
    _get("/state/{id:path}", "getState", agents.get_state, d.StateInfo, r.StateQuery, verb=READ_OUTPUT),
    Endpoint("PATCH", f"{API}/state/{{id:path}}", "updateState", STEER, AGENT, agents.update_state, d.StateInfo,
             r.StateUpdate),
    # workflow runs
    _get("/workflows", "listWorkflows", system.list_workflows, d.WorkflowPage, r.RunsQuery),
    _get("/workflows/{id}", "getWorkflow", system.get_workflow, d.WorkflowDetails),
    _post("/workflows/{id}/signals", "signalWorkflow", STEER, system.signal_workflow, sd.Accepted, r.NewSignal,
          status=202),
    _post("/workflows/{id}/steps/{step}/resolution", "resolveStep", STEER, system.resolve_step, sd.Accepted,
          r.Resolution, status=202),
    _post("/workflows/{id}/pause", "pauseWorkflow", STOP, system.pause_workflow, sd.Accepted, r.Reason, status=202),
    _post("/workflows/{id}/cancel", "cancelWorkflow", STOP, system.cancel_workflow, sd.Accepted, r.Reason,
          status=202),
    _get("/schedules", "listSchedules", system.list_schedules, d.ScheduleList, on=STORE),
    # everything
    _get("/effects", "listEffects", system.list_effects, sd.EffectList, r.EffectsQuery),
    _get("/cost", "showCost", system.show_cost, sd.CostInfo),
    _get("/statistics", "showStatistics", system.show_statistics, JournalStatistics, r.StatisticsQuery, on=STORE),
    _get("/settings", "listSettings", system.list_settings, sd.SettingList, on=STORE),
    _get("/health", "showHealth", system.show_health, sd.HealthInfo),
    # backups; a restoration is a command on the machine that gets the database
    _get("/backups", "listBackups", backups.list_backups, sd.BackupList, on=STORE),
    _get("/backups/status", "showBackupStatus", backups.show_status, sd.BackupStatusInfo, on=STORE),
    _post("/backups/test", "testBackup", STEER, backups.test, sd.BackupCheckInfo, status=202, on=STORE),
    _post("/backups/verify", "verifyBackup", STEER, backups.verify, sd.BackupCheckInfo, status=202, on=STORE),
    _get("/events", "listEvents", stream.list_activity, sd.EventPage, r.EventsQuery, verb=READ_OUTPUT),
    _get("/stream", "stream", stream.follow, None, r.StreamQuery, verb=READ_OUTPUT),
    # credentials
    _get("/identity", "showIdentity", system.show_identity, sd.Identity, r.IdentityQuery, on=CALLER),
    _get("/credentials", "listCredentials", system.list_credentials, sd.CredentialList, verb=GRANT),
    _post("/credentials", "createToken", GRANT, system.create_token, sd.CreatedToken, r.NewToken, status=201),
    Endpoint("DELETE", f"{API}/credentials/{{id}}", "revokeCredential", GRANT, PARTS, system.revoke_credential,
             sd.CredentialInfo),
    # access
    _get("/access", "listGrants", system.list_grants, sd.GrantList, r.GrantsQuery, verb=GRANT),
    _get("/access/check", "checkAccess", system.check_access, sd.AccessDecision, r.AccessQuery, verb=GRANT),
    _post("/access", "grantAccess", GRANT, system.grant_access, sd.GrantInfo, r.NewGrant, status=201),
    Endpoint("DELETE", f"{API}/access/{{id}}", "revokeAccess", GRANT, PARTS, system.revoke_access, sd.GrantInfo),
    _get("/audit", "listAudit", system.list_audit, sd.AuditList, r.AuditQuery, verb=Verb.AUDIT, on=STORE),
    Endpoint("POST", f"{API}/session", "openSession", READ, NOTHING, pages.open_session, sd.Identity, r.SignIn),
)  # fmt: skip
"""The API."""


async def _show_openapi(_call: Call) -> Response:
    """The OpenAPI document of this API."""
    return Response(msgspec.json.encode(openapi.document(ENDPOINTS)), media_type="application/json")


PAGES: tuple[Endpoint, ...] = (
    Endpoint("GET", "/health", "publicHealth", READ, NOTHING, system.show_public_health, sd.PublicHealth),
    Endpoint("GET", "/metrics", "metrics", READ, PARTS, system.show_metrics, None),
    Endpoint("GET", f"{API}/openapi.json", "openapi", READ, CALLER, _show_openapi, None),
    Endpoint("GET", "/", "home", READ, NOTHING, assets.show_home, None),
    Endpoint("GET", "/page/{path:path}", "pageFile", READ, NOTHING, assets.show_file, None),
    Endpoint("GET", "/sign-in", "signInPage", READ, NOTHING, pages.show_sign_in, None, None, r.SignInQuery),
    Endpoint("POST", "/sign-in", "signIn", READ, NOTHING, pages.sign_in, None),
    Endpoint("POST", "/sign-out", "signOut", READ, CALLER, pages.sign_out, None),
    Endpoint("GET", pages.STYLE, "signInStyle", READ, NOTHING, pages.show_style, None),
    Endpoint("GET", "/answer", "answerPage", READ, NOTHING, pages.show_answer, None, None, r.CodeQuery),
    Endpoint("POST", "/answer", "giveAnswer", READ, NOTHING, pages.give_answer, None),
)
"""What a browser gets. Those that touch nothing need the code of a link, and tell nothing without one."""
