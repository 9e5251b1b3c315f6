-- Made by make_database.py with maos-cli 0.9.0.
BEGIN TRANSACTION;
CREATE TABLE agents (
                id TEXT PRIMARY KEY,
                name TEXT NOT NULL,
                type TEXT,
                session_id TEXT,
                process_id TEXT,
                status TEXT DEFAULT 'inactive',
                capabilities TEXT,  -- JSON array
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                last_active TIMESTAMP,
                metadata TEXT  -- JSON object
            );
INSERT INTO "agents" VALUES('developer-ad0c47a7','developer-ad0c47a7','developer','3d6abfd4-3247-48de-bf96-6a5c140792ea',NULL,'paused','["developer"]','2026-11-16 02:01:12','2026-11-16T02:01:17.417994','{"task": "mend the parser"}');
INSERT INTO "agents" VALUES('analyst-1100aaaa','analyst-1100aaaa','analyst','10000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 02:01:17','2026-11-16T02:01:17.412053','{"task": "Part 1 of what is running"}');
INSERT INTO "agents" VALUES('developer-1110aaaa','developer-1110aaaa','developer','10000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 02:01:17','2026-11-16T02:01:17.415459','{"task": "Part 2 of what is running"}');
INSERT INTO "agents" VALUES('tester-1120aaaa','tester-1120aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 02:01:17','2026-11-16T02:01:17.421121','{"task": "Part 3 of what is running"}');
INSERT INTO "agents" VALUES('analyst-2200aaaa','analyst-2200aaaa','analyst','20000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 02:01:17','2026-11-16T02:01:17.423981','{"task": "Part 1 of what is paused"}');
INSERT INTO "agents" VALUES('developer-2210aaaa','developer-2210aaaa','developer','20000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 02:01:17','2026-11-16T02:01:17.427569','{"task": "Part 2 of what is paused"}');
INSERT INTO "agents" VALUES('tester-2220aaaa','tester-2220aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 02:01:17','2026-11-16T02:01:17.431023','{"task": "Part 3 of what is paused"}');
INSERT INTO "agents" VALUES('analyst-3300aaaa','analyst-3300aaaa','analyst','30000000-0000-4000-8000-000000000001','4711','active','["analyst"]','2026-11-16 02:01:17','2026-11-16T02:01:17.496735','{"task": "Part 1 of what is failed"}');
INSERT INTO "agents" VALUES('developer-3310aaaa','developer-3310aaaa','developer','30000000-0000-4000-8000-000000000002','4712','active','["developer"]','2026-11-16 02:01:17','2026-11-16T02:01:17.523635','{"task": "Part 2 of what is failed"}');
INSERT INTO "agents" VALUES('tester-3320aaaa','tester-3320aaaa','tester',NULL,NULL,'inactive','["tester"]','2026-11-16 02:01:17','2026-11-16T02:01:17.462432','{"task": "Part 3 of what is failed"}');
CREATE TABLE checkpoints (
                id TEXT PRIMARY KEY,
                name TEXT NOT NULL UNIQUE,
                description TEXT,
                orchestrator_state TEXT,  -- JSON object
                agent_sessions TEXT,  -- JSON object mapping agent_id -> session_id
                task_states TEXT,  -- JSON object
                message_history TEXT,  -- JSON array
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "checkpoints" VALUES('1c00a2aa-e4fc-4dc3-b5c2-c6d1c79122da','orchestration_1c00a2aa','','{}','{}','{}','[]','2026-11-16 02:01:13');
INSERT INTO "checkpoints" VALUES('checkpoint-1','before-running','by hand','{"orchestration_id": "1111cccc-0000-4000-8000-000000000001"}','{}','{"task-analyst-1100aaaa": "completed"}','[]','2026-11-16 02:01:17');
INSERT INTO "checkpoints" VALUES('checkpoint-2','before-paused','by hand','{"orchestration_id": "2222cccc-0000-4000-8000-000000000002"}','{}','{"task-analyst-2200aaaa": "completed"}','[]','2026-11-16 02:01:17');
INSERT INTO "checkpoints" VALUES('checkpoint-3','before-failed','by hand','{"orchestration_id": "3333cccc-0000-4000-8000-000000000003"}','{}','{"task-analyst-3300aaaa": "completed"}','[]','2026-11-16 02:01:17');
CREATE TABLE key_value_store (
                    key TEXT PRIMARY KEY,
                    value TEXT,
                    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
                );
INSERT INTO "key_value_store" VALUES('settings','{"theme": "dark"}','2026-11-16T02:01:17.575267');
CREATE TABLE messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                from_agent TEXT NOT NULL,
                to_agent TEXT,  -- NULL for broadcasts
                message TEXT NOT NULL,
                message_type TEXT DEFAULT 'info',
                timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                acknowledged BOOLEAN DEFAULT 0,
                FOREIGN KEY (from_agent) REFERENCES agents(id) ON DELETE CASCADE,
                FOREIGN KEY (to_agent) REFERENCES agents(id) ON DELETE CASCADE
            );
INSERT INTO "messages" VALUES(1,'developer-ad0c47a7',NULL,'{"type": "result", "session_id": "3d6abfd4-3247-48de-bf96-6a5c140792ea", "result": "found: mend the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 02:01:12',0);
INSERT INTO "messages" VALUES(2,'analyst-1100aaaa',NULL,'Agent analyst-1100aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(3,'developer-1110aaaa',NULL,'Agent developer-1110aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(4,'tester-1120aaaa',NULL,'Agent tester-1120aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(5,'analyst-1100aaaa','developer-1110aaaa','the grammar is in grammar.txt','discovery','2026-11-16 02:01:17',1);
INSERT INTO "messages" VALUES(6,'analyst-1100aaaa','developer-1110aaaa','mind the empty line','request','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(7,'developer-1110aaaa',NULL,'I begin','broadcast','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(8,'analyst-2200aaaa',NULL,'Agent analyst-2200aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(9,'developer-2210aaaa',NULL,'Agent developer-2210aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(10,'tester-2220aaaa',NULL,'Agent tester-2220aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(11,'analyst-2200aaaa','developer-2210aaaa','the grammar is in grammar.txt','discovery','2026-11-16 02:01:17',1);
INSERT INTO "messages" VALUES(12,'analyst-2200aaaa','developer-2210aaaa','mind the empty line','request','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(13,'developer-2210aaaa',NULL,'I begin','broadcast','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(14,'analyst-3300aaaa',NULL,'Agent analyst-3300aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(15,'developer-3310aaaa',NULL,'Agent developer-3310aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(16,'tester-3320aaaa',NULL,'Agent tester-3320aaaa has joined','info','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(17,'analyst-3300aaaa','developer-3310aaaa','the grammar is in grammar.txt','discovery','2026-11-16 02:01:17',1);
INSERT INTO "messages" VALUES(18,'analyst-3300aaaa','developer-3310aaaa','mind the empty line','request','2026-11-16 02:01:17',0);
INSERT INTO "messages" VALUES(19,'developer-3310aaaa',NULL,'I begin','broadcast','2026-11-16 02:01:17',0);
CREATE TABLE orchestrations (
                id TEXT PRIMARY KEY,
                request TEXT NOT NULL,
                status TEXT DEFAULT 'running',
                agents TEXT,  -- JSON array of agent IDs
                batches TEXT,  -- JSON array of batch structure
                total_cost REAL DEFAULT 0.0,
                total_duration_ms INTEGER DEFAULT 0,
                successful_agents INTEGER DEFAULT 0,
                total_agents INTEGER DEFAULT 0,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                completed_at TIMESTAMP,
                last_updated TIMESTAMP,  -- For auto-save tracking
                active_agents INTEGER,    -- Current active count
                message_count INTEGER,    -- Total messages
                summary TEXT,
                metadata TEXT  -- JSON object
            );
INSERT INTO "orchestrations" VALUES('1c00a2aa-e4fc-4dc3-b5c2-c6d1c79122da','mend the parser','completed','["developer-ad0c47a7"]','[["developer-ad0c47a7"]]',0.25,1200,1,1,'2026-11-16T02:01:13.022224','2026-11-16T02:01:13.038445',NULL,NULL,NULL,'
Orchestration Complete!
━━━━━━━━━━━━━━━━━━━━━
• Orchestration ID: 1c00a2aa
• Agents: 1/1 successful
• Total Cost: $0.2500
• Total Duration: 1200ms
• Batches Executed: 1

To resume this entire orchestration:
  resume-all 1c00a2aa

To resume specific agents:
  resume 3d6abfd4 # developer-ad0c47a7
','{}');
INSERT INTO "orchestrations" VALUES('1111cccc-0000-4000-8000-000000000001','What is running','running','["analyst-1100aaaa", "developer-1110aaaa", "tester-1120aaaa"]','[["analyst-1100aaaa", "developer-1110aaaa"], ["tester-1120aaaa"]]',0.0,0,0,0,'2026-11-16T02:01:17.301057',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('2222cccc-0000-4000-8000-000000000002','What is paused','paused','["analyst-2200aaaa", "developer-2210aaaa", "tester-2220aaaa"]','[["analyst-2200aaaa", "developer-2210aaaa"], ["tester-2220aaaa"]]',0.625,90000,0,0,'2026-11-16T02:01:17.401963',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('3333cccc-0000-4000-8000-000000000003','What is failed','failed','["analyst-3300aaaa", "developer-3310aaaa", "tester-3320aaaa"]','[["analyst-3300aaaa", "developer-3310aaaa"], ["tester-3320aaaa"]]',0.625,90000,0,0,'2026-11-16T02:01:17.551617',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
CREATE TABLE sessions (
                session_id TEXT PRIMARY KEY,
                agent_id TEXT NOT NULL,
                task TEXT,
                conversation_history TEXT,  -- JSON array
                turn_count INTEGER DEFAULT 0,
                total_cost REAL DEFAULT 0.0,
                status TEXT DEFAULT 'active',
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP,
                FOREIGN KEY (agent_id) REFERENCES agents(id) ON DELETE CASCADE
            );
INSERT INTO "sessions" VALUES('session-developer-ad0c47a7-pending','developer-ad0c47a7','mend the parser',NULL,0,0.0,'active','2026-11-16 02:01:12','2026-11-16T02:01:12.925888');
INSERT INTO "sessions" VALUES('session-developer-ad0c47a7-1794794472','developer-ad0c47a7','mend the parser',NULL,0,0.0,'active','2026-11-16 02:01:12','2026-11-16T02:01:12.958027');
INSERT INTO "sessions" VALUES('session-analyst-1100aaaa-pending','analyst-1100aaaa','Part 1 of what is running',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.055014');
INSERT INTO "sessions" VALUES('session-developer-1110aaaa-pending','developer-1110aaaa','Part 2 of what is running',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.101472');
INSERT INTO "sessions" VALUES('session-tester-1120aaaa-pending','tester-1120aaaa','Part 3 of what is running',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.132071');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000001','analyst-1100aaaa','Part 1 of what is running','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.157757');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000002','developer-1110aaaa','Part 2 of what is running','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.192718');
INSERT INTO "sessions" VALUES('session-analyst-2200aaaa-pending','analyst-2200aaaa','Part 1 of what is paused',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.326078');
INSERT INTO "sessions" VALUES('session-developer-2210aaaa-pending','developer-2210aaaa','Part 2 of what is paused',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.342132');
INSERT INTO "sessions" VALUES('session-tester-2220aaaa-pending','tester-2220aaaa','Part 3 of what is paused',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.353224');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000001','analyst-2200aaaa','Part 1 of what is paused','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.360690');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000002','developer-2210aaaa','Part 2 of what is paused','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.376142');
INSERT INTO "sessions" VALUES('session-analyst-3300aaaa-pending','analyst-3300aaaa','Part 1 of what is failed',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.443083');
INSERT INTO "sessions" VALUES('session-developer-3310aaaa-pending','developer-3310aaaa','Part 2 of what is failed',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.454870');
INSERT INTO "sessions" VALUES('session-tester-3320aaaa-pending','tester-3320aaaa','Part 3 of what is failed',NULL,0,0.0,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.468697');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000001','analyst-3300aaaa','Part 1 of what is failed','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.490663');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000002','developer-3310aaaa','Part 2 of what is failed','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 02:01:17','2026-11-16T02:01:17.514444');
CREATE TABLE tasks (
                id TEXT PRIMARY KEY,
                parent_task_id TEXT,
                description TEXT NOT NULL,
                status TEXT DEFAULT 'pending',
                assigned_agents TEXT,  -- JSON array of agent IDs
                subtasks TEXT,  -- JSON array
                progress REAL DEFAULT 0.0,
                result TEXT,  -- JSON object
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                started_at TIMESTAMP,
                completed_at TIMESTAMP,
                FOREIGN KEY (parent_task_id) REFERENCES tasks(id) ON DELETE CASCADE
            );
INSERT INTO "tasks" VALUES('938549da-ca22-4045-99a1-a248c6900bb0',NULL,'mend the parser','pending','[]',NULL,0.0,NULL,'2026-11-16 02:01:12',NULL,NULL);
INSERT INTO "tasks" VALUES('task-developer-ad0c47a7',NULL,'mend the parser','completed','["developer-ad0c47a7"]',NULL,100.0,'{"success": true, "output": "found: mend the parser"}','2026-11-16 02:01:12',NULL,'2026-11-16T02:01:13.017040');
INSERT INTO "tasks" VALUES('15cec300-75ab-4367-bdff-c9cf763fa8f9',NULL,'a lexer which fails','pending','[]',NULL,0.0,NULL,'2026-11-16 02:01:14',NULL,NULL);
INSERT INTO "tasks" VALUES('cf603f7d-c731-4d4b-a9a5-57474ca6afa1',NULL,'a printer which is killed','pending','[]',NULL,0.0,NULL,'2026-11-16 02:01:15',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-1100aaaa',NULL,'Part 1 of what is running','completed','["analyst-1100aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 02:01:17',NULL,'2026-11-16T02:01:17.172685');
INSERT INTO "tasks" VALUES('task-developer-1110aaaa',NULL,'Part 2 of what is running','running','["developer-1110aaaa"]',NULL,40.0,NULL,'2026-11-16 02:01:17',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-1120aaaa',NULL,'Part 3 of what is running','pending','["tester-1120aaaa"]',NULL,0.0,NULL,'2026-11-16 02:01:17',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-2200aaaa',NULL,'Part 1 of what is paused','completed','["analyst-2200aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 02:01:17',NULL,'2026-11-16T02:01:17.367953');
INSERT INTO "tasks" VALUES('task-developer-2210aaaa',NULL,'Part 2 of what is paused','running','["developer-2210aaaa"]',NULL,40.0,NULL,'2026-11-16 02:01:17',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-2220aaaa',NULL,'Part 3 of what is paused','pending','["tester-2220aaaa"]',NULL,0.0,NULL,'2026-11-16 02:01:17',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-3300aaaa',NULL,'Part 1 of what is failed','completed','["analyst-3300aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 02:01:17',NULL,'2026-11-16T02:01:17.502976');
INSERT INTO "tasks" VALUES('task-developer-3310aaaa',NULL,'Part 2 of what is failed','failed','["developer-3310aaaa"]',NULL,40.0,NULL,'2026-11-16 02:01:17',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-3320aaaa',NULL,'Part 3 of what is failed','pending','["tester-3320aaaa"]',NULL,0.0,NULL,'2026-11-16 02:01:17',NULL,NULL);
CREATE INDEX idx_agents_status ON agents(status);
CREATE INDEX idx_sessions_agent ON sessions(agent_id);
CREATE INDEX idx_tasks_status ON tasks(status);
CREATE INDEX idx_messages_timestamp ON messages(timestamp);
CREATE INDEX idx_checkpoints_name ON checkpoints(name);
CREATE INDEX idx_orchestrations_status ON orchestrations(status);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('messages',19);
COMMIT;
