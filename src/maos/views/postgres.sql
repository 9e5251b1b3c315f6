-- The views of sqlite.sql in PostgreSQL's words: the same names, columns and rows. Times are timestamps, JSON is jsonb,
-- yes and no are booleans. A NUL, which jsonb cannot hold, is shown as the sign for what cannot be shown.

CREATE VIEW maos_plain AS
SELECT s.name AS stream, s.id AS stream_id, e.position, e.version, e.type, e.time_us,
       CASE WHEN substr(e.body, 1, 1) = '\x7b'::bytea
            THEN replace(convert_from(e.body, 'UTF8'), '\u0000', '\ufffd')::jsonb END AS data
FROM streams AS s JOIN events AS e ON e.stream = s.id;

CREATE VIEW maos_run_events AS
SELECT substr(stream, 5) AS run, stream_id, version, type, time_us, data, (data ->> 'at_us')::bigint AS at_us,
       data ->> 'task' AS task
FROM maos_plain WHERE stream LIKE 'run/%';

CREATE VIEW maos_restored AS
SELECT DISTINCT ON (stream_id) run, stream_id, version, time_us, at_us, data -> 'state' AS state
FROM maos_run_events WHERE type IN ('run_rolled_back', 'run_forked', 'run_joined', 'run_changed') ORDER BY stream_id, version DESC;

CREATE VIEW maos_runs AS
SELECT e.run, e.stream_id, e.version, e.type, e.time_us, e.data, e.at_us, e.task
FROM maos_run_events AS e LEFT JOIN maos_restored AS r ON r.stream_id = e.stream_id
WHERE r.version IS NULL OR e.version > r.version OR e.type = 'run_created'
UNION ALL
SELECT run, stream_id, version - 1, 'run_planned', time_us,
       jsonb_build_object('at_us', at_us, 'tasks',
                          (SELECT coalesce(jsonb_agg((t.value -> 'plan') || jsonb_build_object('done_by', t.value -> 'agent')
                                                     ORDER BY t.key COLLATE "C"), '[]')
                           FROM jsonb_each(state -> 'tasks') AS t)), at_us, NULL
FROM maos_restored
UNION ALL
SELECT r.run, r.stream_id, r.version - 1, 'task_started', r.time_us,
       jsonb_build_object('task', t.key, 'number', t.value -> 'attempts', 'cost_usd', t.value -> 'cost_usd',
                          'at_us', t.value -> 'started_us'), (t.value ->> 'started_us')::bigint, t.key
FROM maos_restored AS r, jsonb_each(r.state -> 'tasks') AS t WHERE (t.value ->> 'attempts')::bigint > 0
UNION ALL
SELECT r.run, r.stream_id, r.version,
       CASE t.value ->> 'status' WHEN 'done' THEN 'task_finished' WHEN 'failed' THEN 'task_failed'
            WHEN 'gated' THEN 'task_gated' WHEN 'skipped' THEN 'task_skipped' ELSE 'task_released' END,
       r.time_us,
       jsonb_build_object('task', t.key, 'result', t.value -> 'result', 'why', t.value -> 'why',
                          'failure', nullif(t.value ->> 'failure', ''), 'commit', t.value -> 'commit',
                          'at_us', t.value -> 'ended_us'), (t.value ->> 'ended_us')::bigint, t.key
FROM maos_restored AS r, jsonb_each(r.state -> 'tasks') AS t
WHERE ((t.value ->> 'attempts')::bigint > 0 AND t.value ->> 'status' <> 'running')
   OR t.value ->> 'status' IN ('failed', 'skipped')
UNION ALL
SELECT run, stream_id, version, CASE WHEN state ->> 'status' = 'paused' THEN 'run_paused' ELSE 'run_ended' END, time_us,
       jsonb_build_object('status', state -> 'status', 'why', state -> 'why', 'summary', state -> 'summary'),
       coalesce(nullif((state ->> 'ended_us')::bigint, 0), at_us), NULL
FROM maos_restored;

CREATE VIEW maos_attempts AS
SELECT p.id, p.stream_id,
       p.data ->> 'agent' AS agent,
       (p.data ->> 'number')::bigint AS number,
       p.data ->> 'agent_kind' AS kind,
       p.data ->> 'task' AS task,
       p.data -> 'order' AS asked,
       coalesce(nullif(p.fold ->> 'session', ''), p.data ->> 'session') AS session,
       (p.data ->> 'at_us')::bigint AS planned_us,
       (SELECT e.time_us FROM events AS e WHERE e.stream = p.stream_id ORDER BY e.version DESC LIMIT 1) AS active_us,
       (SELECT m.data ->> 'pid' FROM maos_plain AS m
        WHERE m.stream_id = p.stream_id AND m.type = 'attempt_started' ORDER BY m.version DESC LIMIT 1) AS pid,
       (SELECT CASE m.type WHEN 'attempt_planned' THEN 'planned' WHEN 'attempt_started' THEN 'running'
                           WHEN 'attempt_stopping' THEN 'stopping' ELSE m.data ->> 'status' END
        FROM maos_plain AS m
        WHERE m.stream_id = p.stream_id
          AND m.type IN ('attempt_planned', 'attempt_started', 'attempt_stopping', 'attempt_ended')
        ORDER BY m.version DESC LIMIT 1) AS status,
       coalesce((p.fold ->> 'turns')::bigint, 0) AS turns,
       coalesce((p.fold ->> 'cost_usd')::float, 0.0) AS cost_usd,
       p.fold ->> 'activity' AS activity,
       coalesce(nullif(p.fold ->> 'result', ''), p.fold ->> 'last_text') AS result
FROM (SELECT substr(m.stream, 9) AS id, m.stream_id, m.data,
             (SELECT CASE WHEN substr(d.body, 1, 1) = '\x7b'::bytea
                          THEN replace(convert_from(d.body, 'UTF8'), '\u0000', '\ufffd')::jsonb -> 'fold' END
              FROM documents AS d WHERE d.kind = 'attempt' AND d.key = substr(m.stream, 9)) AS fold
      FROM maos_plain AS m WHERE m.stream LIKE 'attempt/%' AND m.type = 'attempt_planned') AS p;

CREATE VIEW maos_held AS
SELECT name FROM leases WHERE expires_us > now_us();

CREATE VIEW tasks AS
WITH planned AS (
    SELECT r.run, r.stream_id, r.version, r.at_us, t.plan ->> 'name' AS name, t.plan
    FROM maos_runs AS r, jsonb_array_elements(r.data -> 'tasks') AS t (plan) WHERE r.type = 'run_planned'
), happened AS (
    SELECT DISTINCT ON (stream_id, task) stream_id, task AS name, type, data, at_us, version
    FROM maos_runs WHERE type LIKE 'task\_%' AND type <> 'task_stopping' ORDER BY stream_id, task, version DESC
), counted AS (
    SELECT stream_id, task AS name, min(at_us) FILTER (WHERE type = 'task_started') AS begun_us,
           sum((data ->> 'cost_usd')::float) AS cost_usd
    FROM maos_runs WHERE type LIKE 'task\_%' GROUP BY 1, 2
), resumed AS (
    SELECT stream_id, max(version) AS version FROM maos_runs WHERE type = 'run_resumed' AND coalesce((data ->> 'retries')::boolean, true) GROUP BY 1
)
SELECT p.run || '.' || p.name AS id,
       NULL::text AS parent_task_id,
       coalesce(nullif(p.plan ->> 'task', ''), p.plan ->> 'command', '') AS description,
       CASE WHEN h.type IS NULL OR h.type IN ('task_released', 'task_retried') THEN 'waiting'
            WHEN h.type = 'task_failed' AND h.version < coalesce(r.version, 0)
                 AND coalesce(h.data ->> 'failure', '') <> 'cancelled' THEN 'waiting'
            WHEN h.type = 'task_started' THEN 'running'
            WHEN h.type = 'task_gated' THEN 'gated'
            WHEN h.type = 'task_finished' THEN 'done'
            WHEN h.type = 'task_skipped' THEN 'skipped' ELSE 'failed' END AS status,
       jsonb_build_array(coalesce(p.plan ->> 'done_by', p.run || '.' || p.name)) AS assigned_agents,
       '[]'::jsonb AS subtasks,
       CASE WHEN h.type IN ('task_finished', 'task_skipped') THEN 100.0 ELSE 0.0 END::float AS progress,
       CASE WHEN h.type IN ('task_finished', 'task_failed', 'task_gated') THEN
            jsonb_build_object('text', h.data -> 'result', 'failure', h.data -> 'failure', 'why', h.data -> 'why',
                               'commit', h.data -> 'commit') END AS result,
       to_timestamp(p.at_us / 1000000) AS created_at,
       to_timestamp(c.begun_us / 1000000) AS started_at,
       CASE WHEN h.type IN ('task_finished', 'task_failed', 'task_skipped') THEN to_timestamp(h.at_us / 1000000) END AS completed_at,
       p.run AS orchestration_id,
       p.name AS name,
       coalesce(p.plan -> 'needs', '[]') AS needs,
       coalesce(c.cost_usd, 0.0) AS total_cost
FROM planned AS p
LEFT JOIN happened AS h ON h.stream_id = p.stream_id AND h.name = p.name
LEFT JOIN counted AS c ON c.stream_id = p.stream_id AND c.name = p.name
LEFT JOIN resumed AS r ON r.stream_id = p.stream_id;

CREATE VIEW orchestrations AS
WITH happened AS (
    SELECT DISTINCT ON (stream_id) stream_id, type, data, at_us FROM maos_runs
    WHERE type IN ('run_created', 'run_planned', 'run_resumed', 'run_paused', 'run_ended')
    ORDER BY stream_id, version DESC
), counted AS (
    SELECT orchestration_id, count(*) AS total, count(*) FILTER (WHERE status = 'done') AS done,
           count(*) FILTER (WHERE status = 'running') AS running, sum(total_cost) AS cost
    FROM tasks GROUP BY 1
), beside AS (
    SELECT run, sum(cost_usd) AS cost
    FROM (SELECT DISTINCT ON (run, data ->> 'agent') run, (data ->> 'cost_usd')::float AS cost_usd
          FROM maos_run_events WHERE type = 'run_charged' ORDER BY run, data ->> 'agent', version DESC) AS newest
    GROUP BY 1
), allowed AS (
    SELECT DISTINCT ON (stream_id) stream_id, usd FROM (
        SELECT stream_id, version,
               CASE WHEN type = 'run_updated' THEN (data -> 'limits' ->> 'cost_usd')::float
                    WHEN data ? 'state' THEN coalesce((data #>> '{state,options,budget,cost_usd}')::float, 0.0)
                    WHEN data -> 'options' ? 'budget'
                    THEN coalesce((data #>> '{options,budget,cost_usd}')::float, 0.0) END AS usd
        FROM maos_run_events
        WHERE type IN ('run_created', 'run_claimed', 'run_planned', 'run_updated', 'run_rolled_back', 'run_forked',
                       'run_joined', 'run_changed')) AS said
    WHERE usd IS NOT NULL ORDER BY stream_id, version DESC
)
SELECT c.run AS id,
       c.data ->> 'request' AS request,
       CASE h.type WHEN 'run_created' THEN 'planning' WHEN 'run_paused' THEN 'paused'
                   WHEN 'run_ended' THEN h.data ->> 'status'
                   ELSE CASE WHEN 'run/' || c.run IN (SELECT name FROM maos_held) THEN 'running' ELSE 'interrupted' END
                   END AS status,
       coalesce((SELECT jsonb_agg(c.run || '.' || (j.plan ->> 'name') ORDER BY m.version, j.place)
                 FROM maos_runs AS m, jsonb_array_elements(m.data -> 'tasks') WITH ORDINALITY AS j (plan, place)
                 WHERE m.stream_id = c.stream_id AND m.type = 'run_planned'), '[]') AS agents,
       CASE WHEN t.total <= 1000 THEN
       (WITH RECURSIVE task AS (
            SELECT j.plan ->> 'name' AS name, coalesce(j.plan -> 'needs', '[]') AS needs
            FROM maos_runs AS m, jsonb_array_elements(m.data -> 'tasks') AS j (plan)
            WHERE m.stream_id = c.stream_id AND m.type = 'run_planned'
        ), need AS (
            SELECT task.name, j.needed FROM task, jsonb_array_elements_text(task.needs) AS j (needed)
        ), level (name, number) AS (
            SELECT name, 0 FROM task WHERE needs = '[]'
            UNION
            SELECT need.name, level.number + 1 FROM level JOIN need ON need.needed = level.name
        )
        SELECT coalesce(jsonb_agg(batch.names ORDER BY batch.number), '[]') FROM (
            SELECT number, jsonb_agg(name ORDER BY name COLLATE "C") AS names FROM (
                SELECT name, max(number) AS number FROM level GROUP BY name) AS deepest
            GROUP BY number) AS batch) END AS batches,
       coalesce(t.cost, 0.0) + coalesce(b.cost, 0.0) AS total_cost,
       (coalesce(CASE WHEN h.type = 'run_ended' THEN h.at_us END, c.active_us) - c.at_us) / 1000 AS total_duration_ms,
       coalesce(t.done, 0) AS successful_agents,
       coalesce(t.total, 0) AS total_agents,
       to_timestamp(c.at_us / 1000000) AS created_at,
       CASE WHEN h.type = 'run_ended' THEN to_timestamp(h.at_us / 1000000) END AS completed_at,
       to_timestamp(c.active_us / 1000000) AS last_updated,
       coalesce(t.running, 0) AS active_agents,
       (SELECT count(*) FROM streams AS s JOIN events AS e ON e.stream = s.id WHERE s.name = 'messages/' || c.run)
           AS message_count,
       CASE WHEN h.type = 'run_ended' THEN h.data ->> 'summary' END AS summary,
       c.data -> 'options' AS metadata,
       c.data ->> 'folder' AS folder,
       CASE WHEN a.usd > 0 THEN a.usd END AS budget_usd,
       CASE WHEN a.usd > 0 THEN greatest(0.0, a.usd - coalesce(t.cost, 0.0) - coalesce(b.cost, 0.0)) END AS left_usd,
       (SELECT to_timestamp(m.at_us / 1000000) FROM maos_run_events AS m
        WHERE m.stream_id = c.stream_id AND m.type = 'run_removed' LIMIT 1) AS removed_at
FROM (SELECT m.*, (SELECT e.time_us FROM events AS e WHERE e.stream = m.stream_id ORDER BY e.version DESC LIMIT 1)
                  AS active_us
      FROM maos_runs AS m WHERE m.type = 'run_created') AS c
LEFT JOIN happened AS h ON h.stream_id = c.stream_id
LEFT JOIN counted AS t ON t.orchestration_id = c.run
LEFT JOIN beside AS b ON b.run = c.run
LEFT JOIN allowed AS a ON a.stream_id = c.stream_id;

CREATE VIEW agents AS
SELECT agent AS id, agent AS name, kind AS type, session AS session_id, pid AS process_id, status,
       coalesce(asked -> 'tools_allowed', '[]') AS capabilities,
       to_timestamp(began_us / 1000000) AS created_at,
       to_timestamp(active_us / 1000000) AS last_active,
       jsonb_build_object('attempt', number, 'activity', activity, 'model', asked -> 'model', 'cwd', asked -> 'cwd')
           AS metadata,
       'attempt/' || agent IN (SELECT name FROM maos_held) AS attached
FROM (SELECT *, max(number) OVER (PARTITION BY agent) AS newest, min(planned_us) OVER (PARTITION BY agent) AS began_us
      FROM maos_attempts) AS a
WHERE number = newest;

CREATE VIEW sessions AS
SELECT session AS session_id, agent AS agent_id, task,
       jsonb_build_array(jsonb_build_object('role', 'user', 'content', task),
                         jsonb_build_object('role', 'assistant', 'content', result)) AS conversation_history,
       all_turns AS turn_count, all_cost_usd AS total_cost, status,
       to_timestamp(planned_us / 1000000) AS created_at,
       to_timestamp(active_us / 1000000) AS updated_at
FROM (SELECT DISTINCT ON (agent, session) session, agent, task, result, status, planned_us, active_us,
             (sum(turns) OVER (PARTITION BY agent, session))::bigint AS all_turns,
             sum(cost_usd) OVER (PARTITION BY agent, session) AS all_cost_usd
      FROM maos_attempts ORDER BY agent, session, number DESC) AS a;

CREATE VIEW messages AS
WITH received AS (
    SELECT substr(stream, 7) AS name, version, data ->> 'id' AS message, data ->> 'text' AS text,
           data -> 'metadata' AS metadata
    FROM maos_plain WHERE stream LIKE 'inbox/%' AND type = 'message_sent'
), receipt AS (
    SELECT substr(m.stream, 6) AS name, j.version::bigint AS version,
           bool_or(m.type = 'message_acknowledged') AS acknowledged
    FROM maos_plain AS m, jsonb_array_elements(m.data -> 'versions') AS j (version)
    WHERE m.stream LIKE 'acks/%' AND m.type IN ('message_delivered', 'message_acknowledged') GROUP BY 1, 2
), outcome AS (
    SELECT r.message, bool_and(coalesce(t.acknowledged, false)) AS acknowledged,
           bool_and(t.name IS NOT NULL) AS delivered, max(r.text) AS text,
           (array_agg(r.metadata))[1] AS metadata
    FROM received AS r LEFT JOIN receipt AS t ON t.name = r.name AND t.version = r.version GROUP BY 1
)
SELECT m.position AS id,
       coalesce(m.data ->> 'sender', 'person') AS from_agent,
       CASE WHEN jsonb_array_length(m.data -> 'to') = 1 THEN m.data -> 'to' ->> 0 END AS to_agent,
       coalesce(m.data ->> 'text', o.text) AS message,
       coalesce(m.data ->> 'type', 'info') AS message_type,
       to_timestamp((m.data ->> 'at_us')::bigint / 1000000) AS timestamp,
       coalesce(o.acknowledged, false) AS acknowledged,
       coalesce(o.delivered, false) AS delivered,
       coalesce(m.data -> 'metadata', o.metadata, '{}') AS metadata,
       nullif(substr(m.stream, 10), '-') AS orchestration_id,
       coalesce(m.data -> 'to', '[]') AS recipients,
       m.data ->> 'topic' AS topic
FROM maos_plain AS m LEFT JOIN outcome AS o ON o.message = m.data ->> 'id'
WHERE m.stream LIKE 'messages/%' AND m.type IN ('message_sent', 'message_routed');

CREATE VIEW checkpoints AS
SELECT 'run/' || c.run || '@' || c.version AS id,
       c.data ->> 'name' AS name,
       c.data ->> 'trigger' AS description,
       jsonb_build_object('orchestration', c.run, 'version', c.version, 'commit', c.data -> 'commit')
           AS orchestrator_state,
       (SELECT coalesce(jsonb_object_agg(a.agent, a.session), '{}') FROM maos_attempts AS a
        WHERE starts_with(a.agent, c.run || '.')) AS agent_sessions,
       (SELECT coalesce(jsonb_object_agg(name, substr(type, 6)), '{}') FROM (
            SELECT DISTINCT ON (m.task) m.task AS name, m.type FROM maos_run_events AS m
            WHERE m.stream_id = c.stream_id AND m.version <= c.version AND m.type LIKE 'task\_%'
            ORDER BY m.task, m.version DESC) AS newest) AS task_states,
       NULL::text AS message_history,
       to_timestamp(c.at_us / 1000000) AS created_at
FROM maos_run_events AS c WHERE c.type = 'run_checkpointed'
UNION ALL
SELECT m.stream || '@' || m.version,
       m.data ->> 'name',
       m.data ->> 'trigger',
       jsonb_build_object('attempt', substr(m.stream, 9), 'version', m.version, 'commit', m.data -> 'commit'),
       jsonb_build_object(substr(m.stream, 9), m.data -> 'session'),
       '{}'::jsonb,
       NULL::text,
       to_timestamp((m.data ->> 'at_us')::bigint / 1000000)
FROM maos_plain AS m WHERE m.stream LIKE 'attempt/%' AND m.type = 'attempt_checkpointed';

CREATE VIEW workflow_runs AS
WITH recorded AS (
    SELECT substr(stream, 10) AS id, stream_id, version, type, time_us, data, (data ->> 'at_us')::bigint AS at_us
    FROM maos_plain WHERE stream LIKE 'workflow/%' AND type LIKE 'workflow\_%'
), happened AS (
    SELECT DISTINCT ON (stream_id) stream_id, type, data, at_us FROM recorded
    WHERE type IN ('workflow_started', 'workflow_claimed', 'workflow_paused', 'workflow_changed', 'workflow_ended',
                   'workflow_retried') ORDER BY stream_id, version DESC
)
SELECT s.id AS id,
       s.data ->> 'name' AS workflow,
       coalesce(s.data ->> 'definition', '') AS version,
       CASE h.type WHEN 'workflow_ended' THEN h.data ->> 'status' WHEN 'workflow_changed' THEN 'changed'
                   WHEN 'workflow_paused' THEN 'paused' WHEN 'workflow_retried' THEN 'paused'
                   ELSE CASE WHEN 'workflow/' || s.id IN (SELECT name FROM maos_held) THEN 'running' ELSE 'interrupted' END
                   END AS status,
       CASE h.type WHEN 'workflow_retried' THEN 'retry'
                   ELSE coalesce(h.data -> 'error' ->> 'message', nullif(h.data ->> 'why', '')) END AS why,
       s.data ->> 'parent' AS parent_id,
       s.data -> 'arguments' AS arguments,
       CASE h.type WHEN 'workflow_ended' THEN h.data -> 'result' END AS result,
       to_timestamp(s.at_us / 1000000) AS created_at,
       CASE h.type WHEN 'workflow_ended' THEN to_timestamp(h.at_us / 1000000) END AS completed_at,
       (SELECT to_timestamp(e.time_us / 1000000) FROM events AS e WHERE e.stream = s.stream_id
        ORDER BY e.version DESC LIMIT 1) AS last_updated,
       (SELECT to_timestamp(r.at_us / 1000000) FROM recorded AS r
        WHERE r.stream_id = s.stream_id AND r.type = 'workflow_removed' LIMIT 1) AS removed_at
FROM recorded AS s JOIN happened AS h ON h.stream_id = s.stream_id
WHERE s.type = 'workflow_started';
