-- Made by make_database.py with maos-cli 0.9.2.
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
INSERT INTO "agents" VALUES('analyst-a1c138fd','analyst-a1c138fd','analyst','876f00ac-fb37-4e3c-a46c-9b6856addf95',NULL,'paused','["analyst"]','2026-11-16 01:53:45','2026-11-16T01:53:48.029693','{"task": "Read the parser"}');
INSERT INTO "agents" VALUES('developer-ec6c1a9f','developer-ec6c1a9f','developer','bc50c07b-0fa7-413a-9853-6b93e9a19e7e',NULL,'paused','["developer"]','2026-11-16 01:53:45','2026-11-16T01:53:48.030784','{"task": "Mend the parser"}');
INSERT INTO "agents" VALUES('tester-3ae71476','tester-3ae71476','tester','92c3d263-9fb8-41c4-957f-d1c4983f5572',NULL,'paused','["tester"]','2026-11-16 01:53:46','2026-11-16T01:53:48.031973','{"task": "Test the parser"}');
INSERT INTO "agents" VALUES('reviewer-e1368dcf','reviewer-e1368dcf','reviewer','649683ec-e4fb-4cb1-bd79-ca44292f0448',NULL,'paused','["reviewer"]','2026-11-16 01:53:46','2026-11-16T01:53:48.033018','{"task": "Review the parser"}');
INSERT INTO "agents" VALUES('analyst-47c9967d','analyst-47c9967d','analyst','9277a90a-200e-424c-b4d9-c1f801abb6a2',NULL,'paused','["analyst"]','2026-11-16 01:53:46','2026-11-16T01:53:48.034126','{"task": "Look at the lexer"}');
INSERT INTO "agents" VALUES('developer-7dea1f25','developer-7dea1f25','developer','961accc9-1f71-42d3-ae84-d4e74fc67b1d',NULL,'paused','["developer"]','2026-11-16 01:53:46','2026-11-16T01:53:48.035379','{"task": "Break the lexer"}');
INSERT INTO "agents" VALUES('analyst-4f989832','analyst-4f989832','analyst',NULL,NULL,'paused','["analyst"]','2026-11-16 01:53:47','2026-11-16T01:53:48.036650','{"task": "Wait for the printer"}');
INSERT INTO "agents" VALUES('developer-3157a68d','developer-3157a68d','developer',NULL,NULL,'paused','["developer"]','2026-11-16 01:53:47','2026-11-16T01:53:48.038083','{"task": "Wait for the paper"}');
INSERT INTO "agents" VALUES('tester-8d8ccbba','tester-8d8ccbba','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:47','2026-11-16T01:53:48.039209','{"task": "Wait for the ink"}');
INSERT INTO "agents" VALUES('reviewer-a93cfd20','reviewer-a93cfd20','reviewer',NULL,NULL,'paused','["reviewer"]','2026-11-16 01:53:47','2026-11-16T01:53:48.040541','{"task": "Wait for the guard"}');
INSERT INTO "agents" VALUES('analyst-1100aaaa','analyst-1100aaaa','analyst','10000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 01:53:47','2026-11-16T01:53:48.027127','{"task": "Part 1 of what is running"}');
INSERT INTO "agents" VALUES('developer-1110aaaa','developer-1110aaaa','developer','10000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 01:53:47','2026-11-16T01:53:48.028507','{"task": "Part 2 of what is running"}');
INSERT INTO "agents" VALUES('tester-1120aaaa','tester-1120aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:47','2026-11-16T01:53:48.041827','{"task": "Part 3 of what is running"}');
INSERT INTO "agents" VALUES('analyst-2200aaaa','analyst-2200aaaa','analyst','20000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 01:53:47','2026-11-16T01:53:48.043113','{"task": "Part 1 of what is paused"}');
INSERT INTO "agents" VALUES('developer-2210aaaa','developer-2210aaaa','developer','20000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 01:53:47','2026-11-16T01:53:48.045640','{"task": "Part 2 of what is paused"}');
INSERT INTO "agents" VALUES('tester-2220aaaa','tester-2220aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:48','2026-11-16T01:53:48.047406','{"task": "Part 3 of what is paused"}');
INSERT INTO "agents" VALUES('analyst-3300aaaa','analyst-3300aaaa','analyst','30000000-0000-4000-8000-000000000001','4711','active','["analyst"]','2026-11-16 01:53:48','2026-11-16T01:53:48.072126','{"task": "Part 1 of what is failed"}');
INSERT INTO "agents" VALUES('developer-3310aaaa','developer-3310aaaa','developer','30000000-0000-4000-8000-000000000002','4712','active','["developer"]','2026-11-16 01:53:48','2026-11-16T01:53:48.076405','{"task": "Part 2 of what is failed"}');
INSERT INTO "agents" VALUES('tester-3320aaaa','tester-3320aaaa','tester',NULL,NULL,'inactive','["tester"]','2026-11-16 01:53:48','2026-11-16T01:53:48.065895','{"task": "Part 3 of what is failed"}');
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
INSERT INTO "checkpoints" VALUES('decomp-c449e4ec','Decomposition: mend the parser','','{}','{}','{}','[]','2026-11-16 01:53:45');
INSERT INTO "checkpoints" VALUES('316e897a-9e73-4817-a26f-ca18e9dcf7ab','orchestration_316e897a','','{}','{}','{}','[]','2026-11-16 01:53:46');
INSERT INTO "checkpoints" VALUES('decomp-3bdcf195','Decomposition: a lexer which fails','','{}','{}','{}','[]','2026-11-16 01:53:46');
INSERT INTO "checkpoints" VALUES('98f4c794-4f18-48d5-b423-e8f2bc017ad4','orchestration_98f4c794','','{}','{}','{}','[]','2026-11-16 01:53:46');
INSERT INTO "checkpoints" VALUES('decomp-f4725351','Decomposition: a printer which is killed','','{}','{}','{}','[]','2026-11-16 01:53:47');
INSERT INTO "checkpoints" VALUES('checkpoint-1','before-running','by hand','{"orchestration_id": "1111cccc-0000-4000-8000-000000000001"}','{}','{"task-analyst-1100aaaa": "completed"}','[]','2026-11-16 01:53:47');
INSERT INTO "checkpoints" VALUES('checkpoint-2','before-paused','by hand','{"orchestration_id": "2222cccc-0000-4000-8000-000000000002"}','{}','{"task-analyst-2200aaaa": "completed"}','[]','2026-11-16 01:53:48');
INSERT INTO "checkpoints" VALUES('checkpoint-3','before-failed','by hand','{"orchestration_id": "3333cccc-0000-4000-8000-000000000003"}','{}','{"task-analyst-3300aaaa": "completed"}','[]','2026-11-16 01:53:48');
CREATE TABLE key_value_store (
                    key TEXT PRIMARY KEY,
                    value TEXT,
                    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
                );
INSERT INTO "key_value_store" VALUES('settings','{"theme": "dark"}','2026-11-16T01:53:48.093212');
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
INSERT INTO "messages" VALUES(1,'developer-ec6c1a9f',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:45',0);
INSERT INTO "messages" VALUES(2,'tester-3ae71476',NULL,'Agent tester-tester-3 has joined','info','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(3,'reviewer-e1368dcf',NULL,'Agent reviewer-reviewer has joined','info','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(4,'developer-ec6c1a9f',NULL,'{"type": "result", "session_id": "bc50c07b-0fa7-413a-9853-6b93e9a19e7e", "result": "found: Mend the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(5,'analyst-a1c138fd',NULL,'{"type": "result", "session_id": "876f00ac-fb37-4e3c-a46c-9b6856addf95", "result": "found: Read the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(6,'tester-3ae71476',NULL,'{"type": "result", "session_id": "92c3d263-9fb8-41c4-957f-d1c4983f5572", "result": "found: Test the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(7,'reviewer-e1368dcf',NULL,'{"type": "result", "session_id": "649683ec-e4fb-4cb1-bd79-ca44292f0448", "result": "found: Review the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(8,'analyst-a1c138fd',NULL,'Working in parallel with agents: developer-ec6c1a9f, tester-3ae71476','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(9,'developer-ec6c1a9f',NULL,'Working in parallel with agents: analyst-a1c138fd, tester-3ae71476','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(10,'tester-3ae71476',NULL,'Working in parallel with agents: analyst-a1c138fd, developer-ec6c1a9f','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(11,'analyst-47c9967d',NULL,'Agent analyst-analyst- has joined','info','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(12,'developer-7dea1f25',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(13,'analyst-47c9967d',NULL,'{"type": "result", "session_id": "9277a90a-200e-424c-b4d9-c1f801abb6a2", "result": "found: Look at the lexer", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(14,'developer-7dea1f25',NULL,'{"type": "result", "session_id": "961accc9-1f71-42d3-ae84-d4e74fc67b1d", "result": "found: Break the lexer", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": true}
','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(15,'analyst-47c9967d',NULL,'Working in parallel with agents: developer-7dea1f25','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(16,'developer-7dea1f25',NULL,'Working in parallel with agents: analyst-47c9967d','discovery','2026-11-16 01:53:46',0);
INSERT INTO "messages" VALUES(17,'analyst-4f989832',NULL,'Agent analyst-analyst- has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(18,'developer-3157a68d',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(19,'tester-8d8ccbba',NULL,'Agent tester-tester-8 has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(20,'reviewer-a93cfd20',NULL,'Agent reviewer-reviewer has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(21,'analyst-4f989832',NULL,'discovery: Wait for the printer has begun
','discovery','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(22,'developer-3157a68d',NULL,'discovery: Wait for the paper has begun
','discovery','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(23,'tester-8d8ccbba',NULL,'discovery: Wait for the ink has begun
','discovery','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(24,'analyst-1100aaaa',NULL,'Agent analyst-1100aaaa has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(25,'developer-1110aaaa',NULL,'Agent developer-1110aaaa has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(26,'tester-1120aaaa',NULL,'Agent tester-1120aaaa has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(27,'analyst-1100aaaa','developer-1110aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:47',1);
INSERT INTO "messages" VALUES(28,'analyst-1100aaaa','developer-1110aaaa','mind the empty line','request','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(29,'developer-1110aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(30,'analyst-2200aaaa',NULL,'Agent analyst-2200aaaa has joined','info','2026-11-16 01:53:47',0);
INSERT INTO "messages" VALUES(31,'developer-2210aaaa',NULL,'Agent developer-2210aaaa has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(32,'tester-2220aaaa',NULL,'Agent tester-2220aaaa has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(33,'analyst-2200aaaa','developer-2210aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:48',1);
INSERT INTO "messages" VALUES(34,'analyst-2200aaaa','developer-2210aaaa','mind the empty line','request','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(35,'developer-2210aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(36,'analyst-3300aaaa',NULL,'Agent analyst-3300aaaa has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(37,'developer-3310aaaa',NULL,'Agent developer-3310aaaa has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(38,'tester-3320aaaa',NULL,'Agent tester-3320aaaa has joined','info','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(39,'analyst-3300aaaa','developer-3310aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:48',1);
INSERT INTO "messages" VALUES(40,'analyst-3300aaaa','developer-3310aaaa','mind the empty line','request','2026-11-16 01:53:48',0);
INSERT INTO "messages" VALUES(41,'developer-3310aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:48',0);
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
INSERT INTO "orchestrations" VALUES('316e897a-9e73-4817-a26f-ca18e9dcf7ab','mend the parser','completed','["analyst-a1c138fd", "developer-ec6c1a9f", "tester-3ae71476", "reviewer-e1368dcf"]','[["analyst-a1c138fd", "developer-ec6c1a9f", "tester-3ae71476"], ["reviewer-e1368dcf"]]',1.0,4800,4,4,'2026-11-16T01:53:46.179985','2026-11-16T01:53:46.188501',NULL,NULL,NULL,'
Orchestration Complete!
━━━━━━━━━━━━━━━━━━━━━
• Orchestration ID: 316e897a
• Agents: 4/4 successful
• Total Cost: $1.0000
• Total Duration: 4800ms
• Batches Executed: 2

To resume this entire orchestration:
  resume-all 316e897a

To resume specific agents:
  resume 876f00ac # analyst-a1c138fd
  resume bc50c07b # developer-ec6c1a9f
  resume 92c3d263 # tester-3ae71476
  ...
','{}');
INSERT INTO "orchestrations" VALUES('98f4c794-4f18-48d5-b423-e8f2bc017ad4','a lexer which fails','completed','["analyst-47c9967d", "developer-7dea1f25"]','[["analyst-47c9967d", "developer-7dea1f25"]]',0.5,2400,1,2,'2026-11-16T01:53:46.711734','2026-11-16T01:53:46.716582',NULL,NULL,NULL,'
Orchestration Complete!
━━━━━━━━━━━━━━━━━━━━━
• Orchestration ID: 98f4c794
• Agents: 1/2 successful
• Total Cost: $0.5000
• Total Duration: 2400ms
• Batches Executed: 1

To resume this entire orchestration:
  resume-all 98f4c794

To resume specific agents:
  resume 9277a90a # analyst-47c9967d
','{}');
INSERT INTO "orchestrations" VALUES('1111cccc-0000-4000-8000-000000000001','What is running','running','["analyst-1100aaaa", "developer-1110aaaa", "tester-1120aaaa"]','[["analyst-1100aaaa", "developer-1110aaaa"], ["tester-1120aaaa"]]',0.0,0,0,0,'2026-11-16T01:53:47.984890',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('2222cccc-0000-4000-8000-000000000002','What is paused','paused','["analyst-2200aaaa", "developer-2210aaaa", "tester-2220aaaa"]','[["analyst-2200aaaa", "developer-2210aaaa"], ["tester-2220aaaa"]]',0.625,90000,0,0,'2026-11-16T01:53:48.023697',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('3333cccc-0000-4000-8000-000000000003','What is failed','failed','["analyst-3300aaaa", "developer-3310aaaa", "tester-3320aaaa"]','[["analyst-3300aaaa", "developer-3310aaaa"], ["tester-3320aaaa"]]',0.625,90000,0,0,'2026-11-16T01:53:48.084793',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
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
INSERT INTO "sessions" VALUES('session-analyst-a1c138fd-pending','analyst-a1c138fd','Read the parser',NULL,0,0.0,'active','2026-11-16 01:53:45','2026-11-16T01:53:45.981143');
INSERT INTO "sessions" VALUES('session-developer-ec6c1a9f-pending','developer-ec6c1a9f','Mend the parser',NULL,0,0.0,'active','2026-11-16 01:53:45','2026-11-16T01:53:45.987395');
INSERT INTO "sessions" VALUES('session-tester-3ae71476-pending','tester-3ae71476','Test the parser',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.003827');
INSERT INTO "sessions" VALUES('session-reviewer-e1368dcf-pending','reviewer-e1368dcf','Review the parser',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.015193');
INSERT INTO "sessions" VALUES('session-analyst-a1c138fd-1794794026','analyst-a1c138fd','Read the parser',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.039626');
INSERT INTO "sessions" VALUES('session-developer-ec6c1a9f-1794794026','developer-ec6c1a9f','Mend the parser',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.041906');
INSERT INTO "sessions" VALUES('session-tester-3ae71476-1794794026','tester-3ae71476','Test the parser',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.042023');
INSERT INTO "sessions" VALUES('session-reviewer-e1368dcf-1794794026','reviewer-e1368dcf','Review the parser',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.121669');
INSERT INTO "sessions" VALUES('session-analyst-47c9967d-pending','analyst-47c9967d','Look at the lexer',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.641622');
INSERT INTO "sessions" VALUES('session-developer-7dea1f25-pending','developer-7dea1f25','Break the lexer',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.646689');
INSERT INTO "sessions" VALUES('session-analyst-47c9967d-1794794026','analyst-47c9967d','Look at the lexer',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.655069');
INSERT INTO "sessions" VALUES('session-developer-7dea1f25-1794794026','developer-7dea1f25','Break the lexer',NULL,0,0.0,'active','2026-11-16 01:53:46','2026-11-16T01:53:46.661924');
INSERT INTO "sessions" VALUES('session-analyst-4f989832-pending','analyst-4f989832','Wait for the printer',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.314521');
INSERT INTO "sessions" VALUES('session-developer-3157a68d-pending','developer-3157a68d','Wait for the paper',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.319603');
INSERT INTO "sessions" VALUES('session-tester-8d8ccbba-pending','tester-8d8ccbba','Wait for the ink',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.326773');
INSERT INTO "sessions" VALUES('session-reviewer-a93cfd20-pending','reviewer-a93cfd20','Wait for the guard',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.336911');
INSERT INTO "sessions" VALUES('session-analyst-4f989832-1794794027','analyst-4f989832','Wait for the printer',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.380425');
INSERT INTO "sessions" VALUES('session-developer-3157a68d-1794794027','developer-3157a68d','Wait for the paper',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.380489');
INSERT INTO "sessions" VALUES('session-tester-8d8ccbba-1794794027','tester-8d8ccbba','Wait for the ink',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.380519');
INSERT INTO "sessions" VALUES('session-analyst-1100aaaa-pending','analyst-1100aaaa','Part 1 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.957361');
INSERT INTO "sessions" VALUES('session-developer-1110aaaa-pending','developer-1110aaaa','Part 2 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.963139');
INSERT INTO "sessions" VALUES('session-tester-1120aaaa-pending','tester-1120aaaa','Part 3 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.968820');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000001','analyst-1100aaaa','Part 1 of what is running','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.972952');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000002','developer-1110aaaa','Part 2 of what is running','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.977683');
INSERT INTO "sessions" VALUES('session-analyst-2200aaaa-pending','analyst-2200aaaa','Part 1 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.993202');
INSERT INTO "sessions" VALUES('session-developer-2210aaaa-pending','developer-2210aaaa','Part 2 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:47','2026-11-16T01:53:47.999319');
INSERT INTO "sessions" VALUES('session-tester-2220aaaa-pending','tester-2220aaaa','Part 3 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.004461');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000001','analyst-2200aaaa','Part 1 of what is paused','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.008713');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000002','developer-2210aaaa','Part 2 of what is paused','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.014253');
INSERT INTO "sessions" VALUES('session-analyst-3300aaaa-pending','analyst-3300aaaa','Part 1 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.059797');
INSERT INTO "sessions" VALUES('session-developer-3310aaaa-pending','developer-3310aaaa','Part 2 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.063925');
INSERT INTO "sessions" VALUES('session-tester-3320aaaa-pending','tester-3320aaaa','Part 3 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.067785');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000001','analyst-3300aaaa','Part 1 of what is failed','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.071245');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000002','developer-3310aaaa','Part 2 of what is failed','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:48','2026-11-16T01:53:48.075406');
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
INSERT INTO "tasks" VALUES('task-analyst-a1c138fd',NULL,'Read the parser','completed','["analyst-a1c138fd"]',NULL,100.0,'{"success": true, "output": "found: Read the parser"}','2026-11-16 01:53:45',NULL,'2026-11-16T01:53:46.164078');
INSERT INTO "tasks" VALUES('task-developer-ec6c1a9f',NULL,'Mend the parser','completed','["developer-ec6c1a9f"]',NULL,100.0,'{"success": true, "output": "found: Mend the parser"}','2026-11-16 01:53:45',NULL,'2026-11-16T01:53:46.167608');
INSERT INTO "tasks" VALUES('task-tester-3ae71476',NULL,'Test the parser','completed','["tester-3ae71476"]',NULL,100.0,'{"success": true, "output": "found: Test the parser"}','2026-11-16 01:53:46',NULL,'2026-11-16T01:53:46.174062');
INSERT INTO "tasks" VALUES('task-reviewer-e1368dcf',NULL,'Review the parser','completed','["reviewer-e1368dcf"]',NULL,100.0,'{"success": true, "output": "found: Review the parser"}','2026-11-16 01:53:46',NULL,'2026-11-16T01:53:46.178460');
INSERT INTO "tasks" VALUES('task-analyst-47c9967d',NULL,'Look at the lexer','completed','["analyst-47c9967d"]',NULL,100.0,'{"success": true, "output": "found: Look at the lexer"}','2026-11-16 01:53:46',NULL,'2026-11-16T01:53:46.705962');
INSERT INTO "tasks" VALUES('task-developer-7dea1f25',NULL,'Break the lexer','failed','["developer-7dea1f25"]',NULL,0.0,NULL,'2026-11-16 01:53:46',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-4f989832',NULL,'Wait for the printer','pending','["analyst-4f989832"]',NULL,0.0,NULL,'2026-11-16 01:53:47',NULL,NULL);
INSERT INTO "tasks" VALUES('task-developer-3157a68d',NULL,'Wait for the paper','pending','["developer-3157a68d"]',NULL,0.0,NULL,'2026-11-16 01:53:47',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-8d8ccbba',NULL,'Wait for the ink','pending','["tester-8d8ccbba"]',NULL,0.0,NULL,'2026-11-16 01:53:47',NULL,NULL);
INSERT INTO "tasks" VALUES('task-reviewer-a93cfd20',NULL,'Wait for the guard','pending','["reviewer-a93cfd20"]',NULL,0.0,NULL,'2026-11-16 01:53:47',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-1100aaaa',NULL,'Part 1 of what is running','completed','["analyst-1100aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:47',NULL,'2026-11-16T01:53:47.975307');
INSERT INTO "tasks" VALUES('task-developer-1110aaaa',NULL,'Part 2 of what is running','running','["developer-1110aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:47',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-1120aaaa',NULL,'Part 3 of what is running','pending','["tester-1120aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:47',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-2200aaaa',NULL,'Part 1 of what is paused','completed','["analyst-2200aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:47',NULL,'2026-11-16T01:53:48.011178');
INSERT INTO "tasks" VALUES('task-developer-2210aaaa',NULL,'Part 2 of what is paused','running','["developer-2210aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:47',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-2220aaaa',NULL,'Part 3 of what is paused','pending','["tester-2220aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:48',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-3300aaaa',NULL,'Part 1 of what is failed','completed','["analyst-3300aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:48',NULL,'2026-11-16T01:53:48.073084');
INSERT INTO "tasks" VALUES('task-developer-3310aaaa',NULL,'Part 2 of what is failed','failed','["developer-3310aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:48',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-3320aaaa',NULL,'Part 3 of what is failed','pending','["tester-3320aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:48',NULL,NULL);
CREATE INDEX idx_agents_status ON agents(status);
CREATE INDEX idx_sessions_agent ON sessions(agent_id);
CREATE INDEX idx_tasks_status ON tasks(status);
CREATE INDEX idx_messages_timestamp ON messages(timestamp);
CREATE INDEX idx_checkpoints_name ON checkpoints(name);
CREATE INDEX idx_orchestrations_status ON orchestrations(status);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('messages',41);
COMMIT;
