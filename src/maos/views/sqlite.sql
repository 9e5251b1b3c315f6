-- What the views are made of begins with maos_ and may change; the seven others stay, and may get more columns.
-- Bodies are bytes. The CAST is for SQLite before 3.45, which takes no bytes for JSON.

CREATE VIEW maos_plain AS
SELECT s.name AS stream, s.id AS stream_id, e.position, e.version, e.type, e.time_us,
       CASE WHEN substr(e.body, 1, 1) = x'7b' THEN CAST(e.body AS TEXT) END AS data
FROM streams AS s JOIN events AS e ON e.stream = s.id;

CREATE VIEW maos_run_events AS
SELECT substr(stream, 5) AS run, stream_id, version, type, time_us, data FROM maos_plain WHERE stream GLOB 'run/*';

-- Runs that were taken back, forked or joined: the newest event that has their whole state.
CREATE VIEW maos_restored AS
SELECT run, stream_id, max(version) AS version, time_us, json_extract(data, '$.at_us') AS at_us,
       json_extract(data, '$.state') AS state
FROM maos_run_events WHERE type IN ('run_rolled_back', 'run_forked', 'run_joined', 'run_changed') GROUP BY stream_id;

-- What counts of each run: its events, or the newest state told as events, and what came after it.
CREATE VIEW maos_runs AS
SELECT e.run, e.stream_id, e.version, e.type, e.time_us, e.data
FROM maos_run_events AS e LEFT JOIN maos_restored AS r ON r.stream_id = e.stream_id
WHERE r.version IS NULL OR e.version > r.version OR e.type = 'run_created'
UNION ALL
SELECT run, stream_id, version - 1, 'run_planned', time_us,
       json_object('at_us', at_us, 'tasks',
                   (SELECT json_group_array(json_set(json_extract(t.value, '$.plan'), '$.done_by', json_extract(t.value, '$.agent')))
                    FROM json_each(state, '$.tasks') AS t))
FROM maos_restored
UNION ALL
SELECT r.run, r.stream_id, r.version - 1, 'task_started', r.time_us,
       json_object('task', t.key, 'number', json_extract(t.value, '$.attempts'),
                   'cost_usd', json_extract(t.value, '$.cost_usd'), 'at_us', json_extract(t.value, '$.started_us'))
FROM maos_restored AS r, json_each(r.state, '$.tasks') AS t WHERE json_extract(t.value, '$.attempts') > 0
UNION ALL
SELECT r.run, r.stream_id, r.version,
       CASE json_extract(t.value, '$.status') WHEN 'done' THEN 'task_finished' WHEN 'failed' THEN 'task_failed'
            WHEN 'gated' THEN 'task_gated' WHEN 'skipped' THEN 'task_skipped' ELSE 'task_released' END,
       r.time_us,
       json_object('task', t.key, 'result', json_extract(t.value, '$.result'), 'why', json_extract(t.value, '$.why'),
                   'failure', nullif(json_extract(t.value, '$.failure'), ''),
                   'commit', json_extract(t.value, '$.commit'), 'at_us', json_extract(t.value, '$.ended_us'))
FROM maos_restored AS r, json_each(r.state, '$.tasks') AS t
WHERE (json_extract(t.value, '$.attempts') > 0 AND json_extract(t.value, '$.status') <> 'running')
   OR json_extract(t.value, '$.status') IN ('failed', 'skipped')
UNION ALL
SELECT run, stream_id, version,
       CASE WHEN json_extract(state, '$.status') = 'paused' THEN 'run_paused' ELSE 'run_ended' END, time_us,
       json_object('status', json_extract(state, '$.status'), 'why', json_extract(state, '$.why'),
                   'summary', json_extract(state, '$.summary'),
                   'at_us', coalesce(nullif(json_extract(state, '$.ended_us'), 0), at_us))
FROM maos_restored;

CREATE VIEW maos_attempts AS
SELECT p.id, p.stream_id,
       json_extract(p.data, '$.agent') AS agent,
       json_extract(p.data, '$.number') AS number,
       json_extract(p.data, '$.agent_kind') AS kind,
       json_extract(p.data, '$.task') AS task,
       json_extract(p.data, '$.order') AS asked,
       coalesce(nullif(json_extract(p.fold, '$.fold.session'), ''), json_extract(p.data, '$.session')) AS session,
       json_extract(p.data, '$.at_us') AS planned_us,
       (SELECT e.time_us FROM events AS e WHERE e.stream = p.stream_id ORDER BY e.version DESC LIMIT 1) AS active_us,
       (SELECT json_extract(m.data, '$.pid') FROM maos_plain AS m
        WHERE m.stream_id = p.stream_id AND m.type = 'attempt_started' ORDER BY m.version DESC LIMIT 1) AS pid,
       (SELECT CASE m.type WHEN 'attempt_planned' THEN 'planned' WHEN 'attempt_started' THEN 'running'
                           WHEN 'attempt_stopping' THEN 'stopping' ELSE json_extract(m.data, '$.status') END
        FROM maos_plain AS m
        WHERE m.stream_id = p.stream_id
          AND m.type IN ('attempt_planned', 'attempt_started', 'attempt_stopping', 'attempt_ended')
        ORDER BY m.version DESC LIMIT 1) AS status,
       coalesce(json_extract(p.fold, '$.fold.turns'), 0) AS turns,
       coalesce(json_extract(p.fold, '$.fold.cost_usd'), 0.0) AS cost_usd,
       json_extract(p.fold, '$.fold.activity') AS activity,
       coalesce(nullif(json_extract(p.fold, '$.fold.result'), ''), json_extract(p.fold, '$.fold.last_text')) AS result
FROM (SELECT substr(m.stream, 9) AS id, m.stream_id, m.data,
             (SELECT CASE WHEN substr(d.body, 1, 1) = x'7b' THEN CAST(d.body AS TEXT) END
              FROM documents AS d WHERE d.kind = 'attempt' AND d.key = substr(m.stream, 9)) AS fold
      FROM maos_plain AS m WHERE m.stream GLOB 'attempt/*' AND m.type = 'attempt_planned') AS p;

-- Names on which an engine holds a lease now. A killed engine holds its leases until they run out.
CREATE VIEW maos_held AS
SELECT name FROM leases WHERE expires_us > (julianday('now') - 2440587.5) * 86400000000;

CREATE VIEW tasks AS
WITH planned AS (
    SELECT r.run, r.stream_id, r.version, json_extract(r.data, '$.at_us') AS at_us,
           json_extract(t.value, '$.name') AS name, t.value AS plan
    FROM maos_runs AS r, json_each(r.data, '$.tasks') AS t WHERE r.type = 'run_planned'
), happened AS (
    SELECT stream_id, json_extract(data, '$.task') AS name, type, data, max(version) AS version
    FROM maos_runs WHERE type GLOB 'task_*' AND type <> 'task_stopping' GROUP BY 1, 2
), begun AS (
    SELECT stream_id, json_extract(data, '$.task') AS name, min(json_extract(data, '$.at_us')) AS at_us
    FROM maos_runs WHERE type = 'task_started' GROUP BY 1, 2
), spent AS (
    SELECT stream_id, json_extract(data, '$.task') AS name, sum(json_extract(data, '$.cost_usd')) AS cost_usd
    FROM maos_runs WHERE type GLOB 'task_*' GROUP BY 1, 2
), resumed AS (
    SELECT stream_id, max(version) AS version FROM maos_runs WHERE type = 'run_resumed' AND coalesce(json_extract(data, '$.retries'), 1) GROUP BY 1
)
SELECT p.run || '.' || p.name AS id,
       NULL AS parent_task_id,
       coalesce(nullif(json_extract(p.plan, '$.task'), ''), json_extract(p.plan, '$.command'), '') AS description,
       CASE WHEN h.type IS NULL OR h.type IN ('task_released', 'task_retried') THEN 'waiting'
            WHEN h.type = 'task_failed' AND h.version < coalesce(r.version, 0)
                 AND coalesce(json_extract(h.data, '$.failure'), '') <> 'cancelled' THEN 'waiting'
            WHEN h.type = 'task_started' THEN 'running'
            WHEN h.type = 'task_gated' THEN 'gated'
            WHEN h.type = 'task_finished' THEN 'done'
            WHEN h.type = 'task_skipped' THEN 'skipped' ELSE 'failed' END AS status,
       json_array(coalesce(json_extract(p.plan, '$.done_by'), p.run || '.' || p.name)) AS assigned_agents,
       '[]' AS subtasks,
       CASE WHEN h.type IN ('task_finished', 'task_skipped') THEN 100.0 ELSE 0.0 END AS progress,
       CASE WHEN h.type IN ('task_finished', 'task_failed', 'task_gated') THEN
            json_object('text', json_extract(h.data, '$.result'), 'failure', json_extract(h.data, '$.failure'),
                        'why', json_extract(h.data, '$.why'), 'commit', json_extract(h.data, '$.commit')) END AS result,
       datetime(p.at_us / 1000000, 'unixepoch') AS created_at,
       datetime(b.at_us / 1000000, 'unixepoch') AS started_at,
       CASE WHEN h.type IN ('task_finished', 'task_failed', 'task_skipped')
            THEN datetime(json_extract(h.data, '$.at_us') / 1000000, 'unixepoch') END AS completed_at,
       p.run AS orchestration_id,
       p.name AS name,
       coalesce(json_extract(p.plan, '$.needs'), '[]') AS needs,
       coalesce(s.cost_usd, 0.0) AS total_cost
FROM planned AS p
LEFT JOIN happened AS h ON h.stream_id = p.stream_id AND h.name = p.name
LEFT JOIN begun AS b ON b.stream_id = p.stream_id AND b.name = p.name
LEFT JOIN spent AS s ON s.stream_id = p.stream_id AND s.name = p.name
LEFT JOIN resumed AS r ON r.stream_id = p.stream_id;

CREATE VIEW orchestrations AS
WITH happened AS (
    SELECT stream_id, type, data, max(version) AS version FROM maos_runs
    WHERE type IN ('run_created', 'run_planned', 'run_resumed', 'run_paused', 'run_ended') GROUP BY 1
), counted AS (
    SELECT orchestration_id, json_group_array(id) AS agents, count(*) AS total, sum(status = 'done') AS done,
           sum(status = 'running') AS running, sum(total_cost) AS cost
    FROM tasks GROUP BY 1
), beside AS (  -- agents that work for no task: the newest event of each counts
    SELECT run, sum(cost_usd) AS cost
    FROM (SELECT run, json_extract(data, '$.agent') AS agent, json_extract(data, '$.cost_usd') AS cost_usd, max(version)
          FROM maos_run_events WHERE type = 'run_charged' GROUP BY 1, 2)
    GROUP BY 1
), allowed AS (  -- the newest event that says what the run may cost; 0 is no limit
    SELECT stream_id, usd, max(version) FROM (
        SELECT stream_id, version,
               CASE WHEN type = 'run_updated' THEN json_extract(data, '$.limits.cost_usd')
                    WHEN json_type(data, '$.state') IS NOT NULL
                    THEN coalesce(json_extract(data, '$.state.options.budget.cost_usd'), 0.0)
                    WHEN json_type(data, '$.options.budget') IS NOT NULL
                    THEN coalesce(json_extract(data, '$.options.budget.cost_usd'), 0.0) END AS usd
        FROM maos_run_events
        WHERE type IN ('run_created', 'run_claimed', 'run_planned', 'run_updated', 'run_rolled_back', 'run_forked',
                       'run_joined', 'run_changed'))
    WHERE usd IS NOT NULL GROUP BY 1
)
SELECT c.run AS id,
       json_extract(c.data, '$.request') AS request,
       CASE h.type WHEN 'run_created' THEN 'planning' WHEN 'run_paused' THEN 'paused'
                   WHEN 'run_ended' THEN json_extract(h.data, '$.status')
                   ELSE CASE WHEN 'run/' || c.run IN (SELECT name FROM maos_held) THEN 'running' ELSE 'interrupted' END
                   END AS status,
       coalesce(t.agents, '[]') AS agents,
       CASE WHEN t.total <= 1000 THEN  -- each level reads the plan again, which takes too long in a large one
       (WITH RECURSIVE task AS (
            SELECT json_extract(j.value, '$.name') AS name, json_extract(j.value, '$.needs') AS needs
            FROM maos_runs AS m, json_each(m.data, '$.tasks') AS j
            WHERE m.stream_id = c.stream_id AND m.type = 'run_planned'
        ), need AS (
            SELECT task.name AS name, j.value AS needed FROM task, json_each(task.needs) AS j
        ), level(number, names) AS (
            SELECT 0, (SELECT json_group_array(name) FROM task WHERE coalesce(json_array_length(needs), 0) = 0)
            UNION ALL
            SELECT number + 1,
                   (SELECT json_group_array(DISTINCT need.name) FROM need
                    WHERE need.needed IN (SELECT value FROM json_each(level.names)))
            FROM level WHERE json_array_length(names) > 0
        )
        SELECT json_group_array(json(names)) FROM (
            SELECT json_group_array(name) AS names FROM (
                SELECT j.value AS name, max(number) AS number FROM level, json_each(level.names) AS j GROUP BY j.value)
            GROUP BY number ORDER BY number)) END AS batches,
       coalesce(t.cost, 0.0) + coalesce(b.cost, 0.0) AS total_cost,
       (coalesce(CASE WHEN h.type = 'run_ended' THEN json_extract(h.data, '$.at_us') END, c.active_us)
           - json_extract(c.data, '$.at_us')) / 1000 AS total_duration_ms,
       coalesce(t.done, 0) AS successful_agents,
       coalesce(t.total, 0) AS total_agents,
       datetime(json_extract(c.data, '$.at_us') / 1000000, 'unixepoch') AS created_at,
       CASE WHEN h.type = 'run_ended'
            THEN datetime(json_extract(h.data, '$.at_us') / 1000000, 'unixepoch') END AS completed_at,
       datetime(c.active_us / 1000000, 'unixepoch') AS last_updated,
       coalesce(t.running, 0) AS active_agents,
       (SELECT count(*) FROM streams AS s JOIN events AS e ON e.stream = s.id WHERE s.name = 'messages/' || c.run)
           AS message_count,
       CASE WHEN h.type = 'run_ended' THEN json_extract(h.data, '$.summary') END AS summary,
       json_extract(c.data, '$.options') AS metadata,
       json_extract(c.data, '$.folder') AS folder,
       CASE WHEN a.usd > 0 THEN a.usd * 1.0 END AS budget_usd,
       CASE WHEN a.usd > 0 THEN max(0.0, a.usd - coalesce(t.cost, 0.0) - coalesce(b.cost, 0.0)) END AS left_usd,
       (SELECT datetime(json_extract(m.data, '$.at_us') / 1000000, 'unixepoch') FROM maos_run_events AS m
        WHERE m.stream_id = c.stream_id AND m.type = 'run_removed') AS removed_at
FROM (SELECT m.*, (SELECT e.time_us FROM events AS e WHERE e.stream = m.stream_id ORDER BY e.version DESC LIMIT 1)
                  AS active_us
      FROM maos_runs AS m WHERE m.type = 'run_created') AS c
LEFT JOIN happened AS h ON h.stream_id = c.stream_id
LEFT JOIN counted AS t ON t.orchestration_id = c.run
LEFT JOIN beside AS b ON b.run = c.run
LEFT JOIN allowed AS a ON a.stream_id = c.stream_id;

CREATE VIEW agents AS
SELECT agent AS id, agent AS name, kind AS type, session AS session_id, CAST(pid AS TEXT) AS process_id, status,
       coalesce(json_extract(asked, '$.tools_allowed'), '[]') AS capabilities,
       datetime(began_us / 1000000, 'unixepoch') AS created_at,
       datetime(active_us / 1000000, 'unixepoch') AS last_active,
       json_object('attempt', number, 'activity', activity, 'model', json_extract(asked, '$.model'),
                   'cwd', json_extract(asked, '$.cwd')) AS metadata,
       'attempt/' || agent IN (SELECT name FROM maos_held) AS attached
FROM (SELECT *, max(number) OVER agent AS newest, min(planned_us) OVER agent AS began_us
      FROM maos_attempts WINDOW agent AS (PARTITION BY agent))
WHERE number = newest;

CREATE VIEW sessions AS
SELECT session AS session_id, agent AS agent_id, task,
       json_array(json_object('role', 'user', 'content', task), json_object('role', 'assistant', 'content', result))
           AS conversation_history,
       turns AS turn_count, cost_usd AS total_cost, status,
       datetime(planned_us / 1000000, 'unixepoch') AS created_at,
       datetime(active_us / 1000000, 'unixepoch') AS updated_at
FROM (SELECT session, agent, task, result, status, max(number), sum(turns) AS turns, sum(cost_usd) AS cost_usd,
             planned_us, active_us
      FROM maos_attempts GROUP BY agent, session);

CREATE VIEW messages AS
WITH received AS (
    SELECT substr(stream, 7) AS name, version, json_extract(data, '$.id') AS message,
           json_extract(data, '$.text') AS text, json_extract(data, '$.metadata') AS metadata
    FROM maos_plain WHERE stream GLOB 'inbox/*' AND type = 'message_sent'
), receipt AS (
    SELECT substr(m.stream, 6) AS name, j.value AS version, max(m.type = 'message_acknowledged') AS acknowledged
    FROM maos_plain AS m, json_each(m.data, '$.versions') AS j
    WHERE m.stream GLOB 'acks/*' AND m.type IN ('message_delivered', 'message_acknowledged') GROUP BY 1, 2
), outcome AS (
    SELECT r.message, min(coalesce(t.acknowledged, 0)) AS acknowledged, min(t.name IS NOT NULL) AS delivered,
           max(r.text) AS text, max(r.metadata) AS metadata
    FROM received AS r LEFT JOIN receipt AS t ON t.name = r.name AND t.version = r.version GROUP BY 1
)
SELECT m.position AS id,
       coalesce(json_extract(m.data, '$.sender'), 'person') AS from_agent,
       CASE WHEN json_array_length(m.data, '$.to') = 1 THEN json_extract(m.data, '$.to[0]') END AS to_agent,
       coalesce(json_extract(m.data, '$.text'), o.text) AS message,
       coalesce(json_extract(m.data, '$.type'), 'info') AS message_type,
       datetime(json_extract(m.data, '$.at_us') / 1000000, 'unixepoch') AS timestamp,
       coalesce(o.acknowledged, 0) AS acknowledged,
       coalesce(o.delivered, 0) AS delivered,
       coalesce(json_extract(m.data, '$.metadata'), o.metadata, '{}') AS metadata,
       nullif(substr(m.stream, 10), '-') AS orchestration_id,
       coalesce(json_extract(m.data, '$.to'), '[]') AS recipients,
       json_extract(m.data, '$.topic') AS topic
FROM maos_plain AS m LEFT JOIN outcome AS o ON o.message = json_extract(m.data, '$.id')
WHERE m.stream GLOB 'messages/*' AND m.type IN ('message_sent', 'message_routed');

CREATE VIEW checkpoints AS
SELECT 'run/' || c.run || '@' || c.version AS id,
       json_extract(c.data, '$.name') AS name,
       json_extract(c.data, '$.trigger') AS description,
       json_object('orchestration', c.run, 'version', c.version, 'commit', json_extract(c.data, '$.commit'))
           AS orchestrator_state,
       (SELECT json_group_object(a.agent, a.session) FROM maos_attempts AS a WHERE a.agent GLOB c.run || '.*')
           AS agent_sessions,
       (SELECT json_group_object(name, substr(type, 6)) FROM (
            SELECT json_extract(m.data, '$.task') AS name, m.type AS type, max(m.version) FROM maos_run_events AS m
            WHERE m.stream_id = c.stream_id AND m.version <= c.version AND m.type GLOB 'task_*' GROUP BY 1))
           AS task_states,
       NULL AS message_history,
       datetime(json_extract(c.data, '$.at_us') / 1000000, 'unixepoch') AS created_at
FROM maos_run_events AS c WHERE c.type = 'run_checkpointed'
UNION ALL
SELECT m.stream || '@' || m.version,
       json_extract(m.data, '$.name'),
       json_extract(m.data, '$.trigger'),
       json_object('attempt', substr(m.stream, 9), 'version', m.version, 'commit', json_extract(m.data, '$.commit')),
       json_object(substr(m.stream, 9), json_extract(m.data, '$.session')),
       '{}',
       NULL,
       datetime(json_extract(m.data, '$.at_us') / 1000000, 'unixepoch')
FROM maos_plain AS m WHERE m.stream GLOB 'attempt/*' AND m.type = 'attempt_checkpointed';

-- Those of functions; the runs of plan files are orchestrations.
CREATE VIEW workflow_runs AS
WITH recorded AS (
    SELECT substr(stream, 10) AS id, stream_id, version, type, time_us, data, json_extract(data, '$.at_us') AS at_us
    FROM maos_plain WHERE stream GLOB 'workflow/*' AND type GLOB 'workflow_*'
), happened AS (
    SELECT stream_id, type, data, at_us, max(version) FROM recorded
    WHERE type IN ('workflow_started', 'workflow_claimed', 'workflow_paused', 'workflow_changed', 'workflow_ended',
                   'workflow_retried') GROUP BY 1
)
SELECT s.id AS id,
       json_extract(s.data, '$.name') AS workflow,
       coalesce(json_extract(s.data, '$.definition'), '') AS version,
       CASE h.type WHEN 'workflow_ended' THEN json_extract(h.data, '$.status') WHEN 'workflow_changed' THEN 'changed'
                   WHEN 'workflow_paused' THEN 'paused' WHEN 'workflow_retried' THEN 'paused'
                   ELSE CASE WHEN 'workflow/' || s.id IN (SELECT name FROM maos_held) THEN 'running' ELSE 'interrupted' END
                   END AS status,
       CASE h.type WHEN 'workflow_retried' THEN 'retry'
                   ELSE coalesce(json_extract(h.data, '$.error.message'), nullif(json_extract(h.data, '$.why'), '')) END
           AS why,
       json_extract(s.data, '$.parent') AS parent_id,
       json_extract(s.data, '$.arguments') AS arguments,
       CASE h.type WHEN 'workflow_ended' THEN json_extract(h.data, '$.result') END AS result,
       datetime(s.at_us / 1000000, 'unixepoch') AS created_at,
       CASE h.type WHEN 'workflow_ended' THEN datetime(h.at_us / 1000000, 'unixepoch') END AS completed_at,
       (SELECT datetime(e.time_us / 1000000, 'unixepoch') FROM events AS e WHERE e.stream = s.stream_id
        ORDER BY e.version DESC LIMIT 1) AS last_updated,
       (SELECT datetime(r.at_us / 1000000, 'unixepoch') FROM recorded AS r
        WHERE r.stream_id = s.stream_id AND r.type = 'workflow_removed') AS removed_at
FROM recorded AS s JOIN happened AS h ON h.stream_id = s.stream_id
WHERE s.type = 'workflow_started';
