-- Made by make_database.py with maos-cli 0.9.3.
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
INSERT INTO "agents" VALUES('analyst-ff3eae6f','analyst-ff3eae6f','analyst','bc1b6514-d889-4850-85f9-ea733e4e845b',NULL,'paused','["analyst"]','2026-11-16 01:53:48','2026-11-16T01:53:51.248045','{"task": "Read the parser"}');
INSERT INTO "agents" VALUES('developer-14c9f7d6','developer-14c9f7d6','developer','de58d6cd-a873-4059-9554-c0625476b8d6',NULL,'paused','["developer"]','2026-11-16 01:53:48','2026-11-16T01:53:51.249613','{"task": "Mend the parser"}');
INSERT INTO "agents" VALUES('tester-61e98384','tester-61e98384','tester','07547dcb-809f-4fa6-af97-24b5e65fe491',NULL,'paused','["tester"]','2026-11-16 01:53:48','2026-11-16T01:53:51.253784','{"task": "Test the parser"}');
INSERT INTO "agents" VALUES('reviewer-10e09494','reviewer-10e09494','reviewer','31448c6b-4980-43bf-94d0-5c293035d14f',NULL,'paused','["reviewer"]','2026-11-16 01:53:48','2026-11-16T01:53:51.255142','{"task": "Review the parser"}');
INSERT INTO "agents" VALUES('analyst-360b8839','analyst-360b8839','analyst','b31a3abd-8216-4c1a-a7fd-9ad3e0f0f747',NULL,'paused','["analyst"]','2026-11-16 01:53:49','2026-11-16T01:53:51.256436','{"task": "Look at the lexer"}');
INSERT INTO "agents" VALUES('developer-a6bea742','developer-a6bea742','developer','c10af338-d9e6-451c-99bc-241a6b28b088',NULL,'paused','["developer"]','2026-11-16 01:53:49','2026-11-16T01:53:51.258109','{"task": "Break the lexer"}');
INSERT INTO "agents" VALUES('analyst-24a119bd','analyst-24a119bd','analyst',NULL,NULL,'paused','["analyst"]','2026-11-16 01:53:50','2026-11-16T01:53:51.259285','{"task": "Wait for the printer"}');
INSERT INTO "agents" VALUES('developer-40d6a1b7','developer-40d6a1b7','developer',NULL,NULL,'paused','["developer"]','2026-11-16 01:53:50','2026-11-16T01:53:51.260504','{"task": "Wait for the paper"}');
INSERT INTO "agents" VALUES('tester-72610173','tester-72610173','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:50','2026-11-16T01:53:51.263458','{"task": "Wait for the ink"}');
INSERT INTO "agents" VALUES('reviewer-a96dcc27','reviewer-a96dcc27','reviewer',NULL,NULL,'paused','["reviewer"]','2026-11-16 01:53:50','2026-11-16T01:53:51.268310','{"task": "Wait for the guard"}');
INSERT INTO "agents" VALUES('analyst-1100aaaa','analyst-1100aaaa','analyst','10000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 01:53:51','2026-11-16T01:53:51.244988','{"task": "Part 1 of what is running"}');
INSERT INTO "agents" VALUES('developer-1110aaaa','developer-1110aaaa','developer','10000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 01:53:51','2026-11-16T01:53:51.246644','{"task": "Part 2 of what is running"}');
INSERT INTO "agents" VALUES('tester-1120aaaa','tester-1120aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:51','2026-11-16T01:53:51.269803','{"task": "Part 3 of what is running"}');
INSERT INTO "agents" VALUES('analyst-2200aaaa','analyst-2200aaaa','analyst','20000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 01:53:51','2026-11-16T01:53:51.271341','{"task": "Part 1 of what is paused"}');
INSERT INTO "agents" VALUES('developer-2210aaaa','developer-2210aaaa','developer','20000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 01:53:51','2026-11-16T01:53:51.272650','{"task": "Part 2 of what is paused"}');
INSERT INTO "agents" VALUES('tester-2220aaaa','tester-2220aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:51','2026-11-16T01:53:51.274020','{"task": "Part 3 of what is paused"}');
INSERT INTO "agents" VALUES('analyst-3300aaaa','analyst-3300aaaa','analyst','30000000-0000-4000-8000-000000000001','4711','active','["analyst"]','2026-11-16 01:53:51','2026-11-16T01:53:51.322717','{"task": "Part 1 of what is failed"}');
INSERT INTO "agents" VALUES('developer-3310aaaa','developer-3310aaaa','developer','30000000-0000-4000-8000-000000000002','4712','active','["developer"]','2026-11-16 01:53:51','2026-11-16T01:53:51.331930','{"task": "Part 2 of what is failed"}');
INSERT INTO "agents" VALUES('tester-3320aaaa','tester-3320aaaa','tester',NULL,NULL,'inactive','["tester"]','2026-11-16 01:53:51','2026-11-16T01:53:51.293833','{"task": "Part 3 of what is failed"}');
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
INSERT INTO "checkpoints" VALUES('decomp-c50e7ed6','Decomposition: mend the parser','','{}','{}','{}','[]','2026-11-16 01:53:48');
INSERT INTO "checkpoints" VALUES('c7a0d2ff-b2e2-4408-8934-f978575ad4cf','orchestration_c7a0d2ff','','{}','{}','{}','[]','2026-11-16 01:53:49');
INSERT INTO "checkpoints" VALUES('decomp-eb38e033','Decomposition: a lexer which fails','','{}','{}','{}','[]','2026-11-16 01:53:49');
INSERT INTO "checkpoints" VALUES('321055a5-e97e-4a08-b83e-6113ac079053','orchestration_321055a5','','{}','{}','{}','[]','2026-11-16 01:53:49');
INSERT INTO "checkpoints" VALUES('decomp-b1937720','Decomposition: a printer which is killed','','{}','{}','{}','[]','2026-11-16 01:53:50');
INSERT INTO "checkpoints" VALUES('checkpoint-1','before-running','by hand','{"orchestration_id": "1111cccc-0000-4000-8000-000000000001"}','{}','{"task-analyst-1100aaaa": "completed"}','[]','2026-11-16 01:53:51');
INSERT INTO "checkpoints" VALUES('checkpoint-2','before-paused','by hand','{"orchestration_id": "2222cccc-0000-4000-8000-000000000002"}','{}','{"task-analyst-2200aaaa": "completed"}','[]','2026-11-16 01:53:51');
INSERT INTO "checkpoints" VALUES('checkpoint-3','before-failed','by hand','{"orchestration_id": "3333cccc-0000-4000-8000-000000000003"}','{}','{"task-analyst-3300aaaa": "completed"}','[]','2026-11-16 01:53:51');
CREATE TABLE key_value_store (
                    key TEXT PRIMARY KEY,
                    value TEXT,
                    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
                );
INSERT INTO "key_value_store" VALUES('settings','{"theme": "dark"}','2026-11-16T01:53:51.345819');
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
INSERT INTO "messages" VALUES(1,'developer-14c9f7d6',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(2,'tester-61e98384',NULL,'Agent tester-tester-6 has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(3,'reviewer-10e09494',NULL,'Agent reviewer-reviewer has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(4,'developer-14c9f7d6',NULL,'{"type": "result", "session_id": "de58d6cd-a873-4059-9554-c0625476b8d6", "result": "found: Mend the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(5,'analyst-ff3eae6f',NULL,'{"type": "result", "session_id": "bc1b6514-d889-4850-85f9-ea733e4e845b", "result": "found: Read the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(6,'tester-61e98384',NULL,'{"type": "result", "session_id": "07547dcb-809f-4fa6-af97-24b5e65fe491", "result": "found: Test the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(7,'reviewer-10e09494',NULL,'{"type": "result", "session_id": "31448c6b-4980-43bf-94d0-5c293035d14f", "result": "found: Review the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(8,'analyst-ff3eae6f',NULL,'Working in parallel with agents: developer-14c9f7d6, tester-61e98384','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(9,'developer-14c9f7d6',NULL,'Working in parallel with agents: analyst-ff3eae6f, tester-61e98384','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(10,'tester-61e98384',NULL,'Working in parallel with agents: analyst-ff3eae6f, developer-14c9f7d6','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(11,'analyst-360b8839',NULL,'Agent analyst-analyst- has joined','info','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(12,'developer-a6bea742',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(13,'analyst-360b8839',NULL,'{"type": "result", "session_id": "b31a3abd-8216-4c1a-a7fd-9ad3e0f0f747", "result": "found: Look at the lexer", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(14,'developer-a6bea742',NULL,'{"type": "result", "session_id": "c10af338-d9e6-451c-99bc-241a6b28b088", "result": "found: Break the lexer", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": true}
','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(15,'analyst-360b8839',NULL,'Working in parallel with agents: developer-a6bea742','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(16,'developer-a6bea742',NULL,'Working in parallel with agents: analyst-360b8839','discovery','2026-11-16 01:53:49',0);
INSERT INTO "messages" VALUES(17,'analyst-24a119bd',NULL,'Agent analyst-analyst- has joined','info','2026-11-16 01:53:50',0);
INSERT INTO "messages" VALUES(18,'developer-40d6a1b7',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:50',0);
INSERT INTO "messages" VALUES(19,'tester-72610173',NULL,'Agent tester-tester-7 has joined','info','2026-11-16 01:53:50',0);
INSERT INTO "messages" VALUES(20,'reviewer-a96dcc27',NULL,'Agent reviewer-reviewer has joined','info','2026-11-16 01:53:50',0);
INSERT INTO "messages" VALUES(21,'analyst-24a119bd',NULL,'discovery: Wait for the printer has begun
','discovery','2026-11-16 01:53:50',0);
INSERT INTO "messages" VALUES(22,'tester-72610173',NULL,'discovery: Wait for the ink has begun
','discovery','2026-11-16 01:53:50',0);
INSERT INTO "messages" VALUES(23,'developer-40d6a1b7',NULL,'discovery: Wait for the paper has begun
','discovery','2026-11-16 01:53:50',0);
INSERT INTO "messages" VALUES(24,'analyst-1100aaaa',NULL,'Agent analyst-1100aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(25,'developer-1110aaaa',NULL,'Agent developer-1110aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(26,'tester-1120aaaa',NULL,'Agent tester-1120aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(27,'analyst-1100aaaa','developer-1110aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:51',1);
INSERT INTO "messages" VALUES(28,'analyst-1100aaaa','developer-1110aaaa','mind the empty line','request','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(29,'developer-1110aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(30,'analyst-2200aaaa',NULL,'Agent analyst-2200aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(31,'developer-2210aaaa',NULL,'Agent developer-2210aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(32,'tester-2220aaaa',NULL,'Agent tester-2220aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(33,'analyst-2200aaaa','developer-2210aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:51',1);
INSERT INTO "messages" VALUES(34,'analyst-2200aaaa','developer-2210aaaa','mind the empty line','request','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(35,'developer-2210aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(36,'analyst-3300aaaa',NULL,'Agent analyst-3300aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(37,'developer-3310aaaa',NULL,'Agent developer-3310aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(38,'tester-3320aaaa',NULL,'Agent tester-3320aaaa has joined','info','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(39,'analyst-3300aaaa','developer-3310aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:51',1);
INSERT INTO "messages" VALUES(40,'analyst-3300aaaa','developer-3310aaaa','mind the empty line','request','2026-11-16 01:53:51',0);
INSERT INTO "messages" VALUES(41,'developer-3310aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:51',0);
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
INSERT INTO "orchestrations" VALUES('c7a0d2ff-b2e2-4408-8934-f978575ad4cf','mend the parser','completed','["analyst-ff3eae6f", "developer-14c9f7d6", "tester-61e98384", "reviewer-10e09494"]','[["analyst-ff3eae6f", "developer-14c9f7d6", "tester-61e98384"], ["reviewer-10e09494"]]',1.0,4800,4,4,'2026-11-16T01:53:49.109428','2026-11-16T01:53:49.116469',NULL,NULL,NULL,'
Orchestration Complete!
━━━━━━━━━━━━━━━━━━━━━
• Orchestration ID: c7a0d2ff
• Agents: 4/4 successful
• Total Cost: $1.0000
• Total Duration: 4800ms
• Batches Executed: 2

To resume this entire orchestration:
  resume-all c7a0d2ff

To resume specific agents:
  resume bc1b6514 # analyst-ff3eae6f
  resume de58d6cd # developer-14c9f7d6
  resume 07547dcb # tester-61e98384
  ...
','{}');
INSERT INTO "orchestrations" VALUES('321055a5-e97e-4a08-b83e-6113ac079053','a lexer which fails','completed','["analyst-360b8839", "developer-a6bea742"]','[["analyst-360b8839", "developer-a6bea742"]]',0.5,2400,1,2,'2026-11-16T01:53:49.826465','2026-11-16T01:53:49.848731',NULL,NULL,NULL,'
Orchestration Complete!
━━━━━━━━━━━━━━━━━━━━━
• Orchestration ID: 321055a5
• Agents: 1/2 successful
• Total Cost: $0.5000
• Total Duration: 2400ms
• Batches Executed: 1

To resume this entire orchestration:
  resume-all 321055a5

To resume specific agents:
  resume b31a3abd # analyst-360b8839
','{}');
INSERT INTO "orchestrations" VALUES('1111cccc-0000-4000-8000-000000000001','What is running','running','["analyst-1100aaaa", "developer-1110aaaa", "tester-1120aaaa"]','[["analyst-1100aaaa", "developer-1110aaaa"], ["tester-1120aaaa"]]',0.0,0,0,0,'2026-11-16T01:53:51.195168',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('2222cccc-0000-4000-8000-000000000002','What is paused','paused','["analyst-2200aaaa", "developer-2210aaaa", "tester-2220aaaa"]','[["analyst-2200aaaa", "developer-2210aaaa"], ["tester-2220aaaa"]]',0.625,90000,0,0,'2026-11-16T01:53:51.236008',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('3333cccc-0000-4000-8000-000000000003','What is failed','failed','["analyst-3300aaaa", "developer-3310aaaa", "tester-3320aaaa"]','[["analyst-3300aaaa", "developer-3310aaaa"], ["tester-3320aaaa"]]',0.625,90000,0,0,'2026-11-16T01:53:51.337708',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
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
INSERT INTO "sessions" VALUES('session-analyst-ff3eae6f-pending','analyst-ff3eae6f','Read the parser',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.965623');
INSERT INTO "sessions" VALUES('session-developer-14c9f7d6-pending','developer-14c9f7d6','Mend the parser',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.969081');
INSERT INTO "sessions" VALUES('session-tester-61e98384-pending','tester-61e98384','Test the parser',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.976235');
INSERT INTO "sessions" VALUES('session-reviewer-10e09494-pending','reviewer-10e09494','Review the parser',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.981615');
INSERT INTO "sessions" VALUES('session-analyst-ff3eae6f-1794794029','analyst-ff3eae6f','Read the parser',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.002247');
INSERT INTO "sessions" VALUES('session-developer-14c9f7d6-1794794029','developer-14c9f7d6','Mend the parser',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.002328');
INSERT INTO "sessions" VALUES('session-tester-61e98384-1794794029','tester-61e98384','Test the parser',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.002418');
INSERT INTO "sessions" VALUES('session-reviewer-10e09494-1794794029','reviewer-10e09494','Review the parser',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.067037');
INSERT INTO "sessions" VALUES('session-analyst-360b8839-pending','analyst-360b8839','Look at the lexer',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.733882');
INSERT INTO "sessions" VALUES('session-developer-a6bea742-pending','developer-a6bea742','Break the lexer',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.742504');
INSERT INTO "sessions" VALUES('session-analyst-360b8839-1794794029','analyst-360b8839','Look at the lexer',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.754483');
INSERT INTO "sessions" VALUES('session-developer-a6bea742-1794794029','developer-a6bea742','Break the lexer',NULL,0,0.0,'active','2026-11-16 01:53:49','2026-11-16T01:53:49.754584');
INSERT INTO "sessions" VALUES('session-analyst-24a119bd-pending','analyst-24a119bd','Wait for the printer',NULL,0,0.0,'active','2026-11-16 01:53:50','2026-11-16T01:53:50.562993');
INSERT INTO "sessions" VALUES('session-developer-40d6a1b7-pending','developer-40d6a1b7','Wait for the paper',NULL,0,0.0,'active','2026-11-16 01:53:50','2026-11-16T01:53:50.573621');
INSERT INTO "sessions" VALUES('session-tester-72610173-pending','tester-72610173','Wait for the ink',NULL,0,0.0,'active','2026-11-16 01:53:50','2026-11-16T01:53:50.579165');
INSERT INTO "sessions" VALUES('session-reviewer-a96dcc27-pending','reviewer-a96dcc27','Wait for the guard',NULL,0,0.0,'active','2026-11-16 01:53:50','2026-11-16T01:53:50.584910');
INSERT INTO "sessions" VALUES('session-analyst-24a119bd-1794794030','analyst-24a119bd','Wait for the printer',NULL,0,0.0,'active','2026-11-16 01:53:50','2026-11-16T01:53:50.616278');
INSERT INTO "sessions" VALUES('session-developer-40d6a1b7-1794794030','developer-40d6a1b7','Wait for the paper',NULL,0,0.0,'active','2026-11-16 01:53:50','2026-11-16T01:53:50.616400');
INSERT INTO "sessions" VALUES('session-tester-72610173-1794794030','tester-72610173','Wait for the ink',NULL,0,0.0,'active','2026-11-16 01:53:50','2026-11-16T01:53:50.616452');
INSERT INTO "sessions" VALUES('session-analyst-1100aaaa-pending','analyst-1100aaaa','Part 1 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.146208');
INSERT INTO "sessions" VALUES('session-developer-1110aaaa-pending','developer-1110aaaa','Part 2 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.155259');
INSERT INTO "sessions" VALUES('session-tester-1120aaaa-pending','tester-1120aaaa','Part 3 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.161801');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000001','analyst-1100aaaa','Part 1 of what is running','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.169475');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000002','developer-1110aaaa','Part 2 of what is running','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.181718');
INSERT INTO "sessions" VALUES('session-analyst-2200aaaa-pending','analyst-2200aaaa','Part 1 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.204137');
INSERT INTO "sessions" VALUES('session-developer-2210aaaa-pending','developer-2210aaaa','Part 2 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.208542');
INSERT INTO "sessions" VALUES('session-tester-2220aaaa-pending','tester-2220aaaa','Part 3 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.215231');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000001','analyst-2200aaaa','Part 1 of what is paused','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.218939');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000002','developer-2210aaaa','Part 2 of what is paused','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.225871');
INSERT INTO "sessions" VALUES('session-analyst-3300aaaa-pending','analyst-3300aaaa','Part 1 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.282707');
INSERT INTO "sessions" VALUES('session-developer-3310aaaa-pending','developer-3310aaaa','Part 2 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.288406');
INSERT INTO "sessions" VALUES('session-tester-3320aaaa-pending','tester-3320aaaa','Part 3 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.310833');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000001','analyst-3300aaaa','Part 1 of what is failed','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.317329');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000002','developer-3310aaaa','Part 2 of what is failed','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:51','2026-11-16T01:53:51.327243');
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
INSERT INTO "tasks" VALUES('task-analyst-ff3eae6f',NULL,'Read the parser','completed','["analyst-ff3eae6f"]',NULL,100.0,'{"success": true, "output": "found: Read the parser"}','2026-11-16 01:53:48',NULL,'2026-11-16T01:53:49.098758');
INSERT INTO "tasks" VALUES('task-developer-14c9f7d6',NULL,'Mend the parser','completed','["developer-14c9f7d6"]',NULL,100.0,'{"success": true, "output": "found: Mend the parser"}','2026-11-16 01:53:48',NULL,'2026-11-16T01:53:49.101110');
INSERT INTO "tasks" VALUES('task-tester-61e98384',NULL,'Test the parser','completed','["tester-61e98384"]',NULL,100.0,'{"success": true, "output": "found: Test the parser"}','2026-11-16 01:53:48',NULL,'2026-11-16T01:53:49.103555');
INSERT INTO "tasks" VALUES('task-reviewer-10e09494',NULL,'Review the parser','completed','["reviewer-10e09494"]',NULL,100.0,'{"success": true, "output": "found: Review the parser"}','2026-11-16 01:53:48',NULL,'2026-11-16T01:53:49.105934');
INSERT INTO "tasks" VALUES('task-analyst-360b8839',NULL,'Look at the lexer','completed','["analyst-360b8839"]',NULL,100.0,'{"success": true, "output": "found: Look at the lexer"}','2026-11-16 01:53:49',NULL,'2026-11-16T01:53:49.817988');
INSERT INTO "tasks" VALUES('task-developer-a6bea742',NULL,'Break the lexer','failed','["developer-a6bea742"]',NULL,0.0,NULL,'2026-11-16 01:53:49',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-24a119bd',NULL,'Wait for the printer','pending','["analyst-24a119bd"]',NULL,0.0,NULL,'2026-11-16 01:53:50',NULL,NULL);
INSERT INTO "tasks" VALUES('task-developer-40d6a1b7',NULL,'Wait for the paper','pending','["developer-40d6a1b7"]',NULL,0.0,NULL,'2026-11-16 01:53:50',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-72610173',NULL,'Wait for the ink','pending','["tester-72610173"]',NULL,0.0,NULL,'2026-11-16 01:53:50',NULL,NULL);
INSERT INTO "tasks" VALUES('task-reviewer-a96dcc27',NULL,'Wait for the guard','pending','["reviewer-a96dcc27"]',NULL,0.0,NULL,'2026-11-16 01:53:50',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-1100aaaa',NULL,'Part 1 of what is running','completed','["analyst-1100aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:51',NULL,'2026-11-16T01:53:51.175689');
INSERT INTO "tasks" VALUES('task-developer-1110aaaa',NULL,'Part 2 of what is running','running','["developer-1110aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:51',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-1120aaaa',NULL,'Part 3 of what is running','pending','["tester-1120aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:51',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-2200aaaa',NULL,'Part 1 of what is paused','completed','["analyst-2200aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:51',NULL,'2026-11-16T01:53:51.221004');
INSERT INTO "tasks" VALUES('task-developer-2210aaaa',NULL,'Part 2 of what is paused','running','["developer-2210aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:51',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-2220aaaa',NULL,'Part 3 of what is paused','pending','["tester-2220aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:51',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-3300aaaa',NULL,'Part 1 of what is failed','completed','["analyst-3300aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:51',NULL,'2026-11-16T01:53:51.324060');
INSERT INTO "tasks" VALUES('task-developer-3310aaaa',NULL,'Part 2 of what is failed','failed','["developer-3310aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:51',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-3320aaaa',NULL,'Part 3 of what is failed','pending','["tester-3320aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:51',NULL,NULL);
CREATE INDEX idx_agents_status ON agents(status);
CREATE INDEX idx_sessions_agent ON sessions(agent_id);
CREATE INDEX idx_tasks_status ON tasks(status);
CREATE INDEX idx_messages_timestamp ON messages(timestamp);
CREATE INDEX idx_checkpoints_name ON checkpoints(name);
CREATE INDEX idx_orchestrations_status ON orchestrations(status);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('messages',41);
COMMIT;
