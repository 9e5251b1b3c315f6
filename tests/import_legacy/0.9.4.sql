-- Made by make_database.py with maos-cli 0.9.4.
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
INSERT INTO "agents" VALUES('analyst-c8d9b948','analyst-c8d9b948','analyst','6871f1aa-d081-43ae-a216-278b20c3f3e1',NULL,'paused','["analyst"]','2026-11-16 01:53:52','2026-11-16T01:53:54.819551','{"task": "Read the parser"}');
INSERT INTO "agents" VALUES('developer-2ffc26ef','developer-2ffc26ef','developer','0240dba5-319a-44aa-a68c-2885835a5e8d',NULL,'paused','["developer"]','2026-11-16 01:53:52','2026-11-16T01:53:54.822920','{"task": "Mend the parser"}');
INSERT INTO "agents" VALUES('tester-e0842488','tester-e0842488','tester','3bc681e5-9659-4e21-812e-1b301bed0501',NULL,'paused','["tester"]','2026-11-16 01:53:52','2026-11-16T01:53:54.826247','{"task": "Test the parser"}');
INSERT INTO "agents" VALUES('reviewer-9213a83b','reviewer-9213a83b','reviewer','d0aafb76-6818-433c-8698-41b936339422',NULL,'paused','["reviewer"]','2026-11-16 01:53:52','2026-11-16T01:53:54.830035','{"task": "Review the parser"}');
INSERT INTO "agents" VALUES('analyst-7a35af2d','analyst-7a35af2d','analyst','91558ab0-4250-438c-ad60-a8aeb0428218',NULL,'paused','["analyst"]','2026-11-16 01:53:52','2026-11-16T01:53:54.831519','{"task": "Look at the lexer"}');
INSERT INTO "agents" VALUES('developer-411bf6ca','developer-411bf6ca','developer','60a451d3-809a-464e-a83a-df7142875aa5',NULL,'paused','["developer"]','2026-11-16 01:53:52','2026-11-16T01:53:54.832720','{"task": "Break the lexer"}');
INSERT INTO "agents" VALUES('analyst-16c31d83','analyst-16c31d83','analyst',NULL,NULL,'paused','["analyst"]','2026-11-16 01:53:53','2026-11-16T01:53:54.833881','{"task": "Wait for the printer"}');
INSERT INTO "agents" VALUES('developer-9c8f27af','developer-9c8f27af','developer',NULL,NULL,'paused','["developer"]','2026-11-16 01:53:53','2026-11-16T01:53:54.835050','{"task": "Wait for the paper"}');
INSERT INTO "agents" VALUES('tester-bb4dcdd0','tester-bb4dcdd0','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:53','2026-11-16T01:53:54.838148','{"task": "Wait for the ink"}');
INSERT INTO "agents" VALUES('reviewer-c0bbd78c','reviewer-c0bbd78c','reviewer',NULL,NULL,'paused','["reviewer"]','2026-11-16 01:53:53','2026-11-16T01:53:54.840725','{"task": "Wait for the guard"}');
INSERT INTO "agents" VALUES('analyst-1100aaaa','analyst-1100aaaa','analyst','10000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 01:53:54','2026-11-16T01:53:54.810587','{"task": "Part 1 of what is running"}');
INSERT INTO "agents" VALUES('developer-1110aaaa','developer-1110aaaa','developer','10000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 01:53:54','2026-11-16T01:53:54.814885','{"task": "Part 2 of what is running"}');
INSERT INTO "agents" VALUES('tester-1120aaaa','tester-1120aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:54','2026-11-16T01:53:54.842275','{"task": "Part 3 of what is running"}');
INSERT INTO "agents" VALUES('analyst-2200aaaa','analyst-2200aaaa','analyst','20000000-0000-4000-8000-000000000001','4711','paused','["analyst"]','2026-11-16 01:53:54','2026-11-16T01:53:54.843972','{"task": "Part 1 of what is paused"}');
INSERT INTO "agents" VALUES('developer-2210aaaa','developer-2210aaaa','developer','20000000-0000-4000-8000-000000000002','4712','paused','["developer"]','2026-11-16 01:53:54','2026-11-16T01:53:54.845649','{"task": "Part 2 of what is paused"}');
INSERT INTO "agents" VALUES('tester-2220aaaa','tester-2220aaaa','tester',NULL,NULL,'paused','["tester"]','2026-11-16 01:53:54','2026-11-16T01:53:54.846676','{"task": "Part 3 of what is paused"}');
INSERT INTO "agents" VALUES('analyst-3300aaaa','analyst-3300aaaa','analyst','30000000-0000-4000-8000-000000000001','4711','active','["analyst"]','2026-11-16 01:53:54','2026-11-16T01:53:54.890505','{"task": "Part 1 of what is failed"}');
INSERT INTO "agents" VALUES('developer-3310aaaa','developer-3310aaaa','developer','30000000-0000-4000-8000-000000000002','4712','active','["developer"]','2026-11-16 01:53:54','2026-11-16T01:53:54.899295','{"task": "Part 2 of what is failed"}');
INSERT INTO "agents" VALUES('tester-3320aaaa','tester-3320aaaa','tester',NULL,NULL,'inactive','["tester"]','2026-11-16 01:53:54','2026-11-16T01:53:54.867416','{"task": "Part 3 of what is failed"}');
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
INSERT INTO "checkpoints" VALUES('decomp-d008537e','Decomposition: mend the parser','','{}','{}','{}','[]','2026-11-16 01:53:52');
INSERT INTO "checkpoints" VALUES('9b94b6b4-1aab-4b05-a5ea-1474989b2b5f','orchestration_9b94b6b4','','{}','{}','{}','[]','2026-11-16 01:53:52');
INSERT INTO "checkpoints" VALUES('decomp-2e1c5b97','Decomposition: a lexer which fails','','{}','{}','{}','[]','2026-11-16 01:53:52');
INSERT INTO "checkpoints" VALUES('25f37c0d-c54a-4f9a-a6b1-3cf1ed5c7feb','orchestration_25f37c0d','','{}','{}','{}','[]','2026-11-16 01:53:53');
INSERT INTO "checkpoints" VALUES('decomp-c34923bd','Decomposition: a printer which is killed','','{}','{}','{}','[]','2026-11-16 01:53:53');
INSERT INTO "checkpoints" VALUES('checkpoint-1','before-running','by hand','{"orchestration_id": "1111cccc-0000-4000-8000-000000000001"}','{}','{"task-analyst-1100aaaa": "completed"}','[]','2026-11-16 01:53:54');
INSERT INTO "checkpoints" VALUES('checkpoint-2','before-paused','by hand','{"orchestration_id": "2222cccc-0000-4000-8000-000000000002"}','{}','{"task-analyst-2200aaaa": "completed"}','[]','2026-11-16 01:53:54');
INSERT INTO "checkpoints" VALUES('checkpoint-3','before-failed','by hand','{"orchestration_id": "3333cccc-0000-4000-8000-000000000003"}','{}','{"task-analyst-3300aaaa": "completed"}','[]','2026-11-16 01:53:54');
CREATE TABLE key_value_store (
                    key TEXT PRIMARY KEY,
                    value TEXT,
                    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
                );
INSERT INTO "key_value_store" VALUES('settings','{"theme": "dark"}','2026-11-16T01:53:54.920797');
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
INSERT INTO "messages" VALUES(1,'developer-2ffc26ef',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(2,'tester-e0842488',NULL,'Agent tester-tester-e has joined','info','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(3,'reviewer-9213a83b',NULL,'Agent reviewer-reviewer has joined','info','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(4,'analyst-c8d9b948',NULL,'{"type": "result", "session_id": "6871f1aa-d081-43ae-a216-278b20c3f3e1", "result": "found: Read the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(5,'developer-2ffc26ef',NULL,'{"type": "result", "session_id": "0240dba5-319a-44aa-a68c-2885835a5e8d", "result": "found: Mend the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(6,'tester-e0842488',NULL,'{"type": "result", "session_id": "3bc681e5-9659-4e21-812e-1b301bed0501", "result": "found: Test the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(7,'reviewer-9213a83b',NULL,'{"type": "result", "session_id": "d0aafb76-6818-433c-8698-41b936339422", "result": "found: Review the parser", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(8,'analyst-c8d9b948',NULL,'Working in parallel with agents: developer-2ffc26ef, tester-e0842488','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(9,'developer-2ffc26ef',NULL,'Working in parallel with agents: analyst-c8d9b948, tester-e0842488','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(10,'tester-e0842488',NULL,'Working in parallel with agents: analyst-c8d9b948, developer-2ffc26ef','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(11,'analyst-7a35af2d',NULL,'Agent analyst-analyst- has joined','info','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(12,'developer-411bf6ca',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(13,'analyst-7a35af2d',NULL,'{"type": "result", "session_id": "91558ab0-4250-438c-ad60-a8aeb0428218", "result": "found: Look at the lexer", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": false}
','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(14,'developer-411bf6ca',NULL,'{"type": "result", "session_id": "60a451d3-809a-464e-a83a-df7142875aa5", "result": "found: Break the lexer", "total_cost_usd": 0.25, "duration_ms": 1200, "num_turns": 3, "is_error": true}
','discovery','2026-11-16 01:53:52',0);
INSERT INTO "messages" VALUES(15,'analyst-7a35af2d',NULL,'Working in parallel with agents: developer-411bf6ca','discovery','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(16,'developer-411bf6ca',NULL,'Working in parallel with agents: analyst-7a35af2d','discovery','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(17,'analyst-16c31d83',NULL,'Agent analyst-analyst- has joined','info','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(18,'developer-9c8f27af',NULL,'Agent developer-develope has joined','info','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(19,'tester-bb4dcdd0',NULL,'Agent tester-tester-b has joined','info','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(20,'reviewer-c0bbd78c',NULL,'Agent reviewer-reviewer has joined','info','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(21,'analyst-16c31d83',NULL,'discovery: Wait for the printer has begun
','discovery','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(22,'tester-bb4dcdd0',NULL,'discovery: Wait for the ink has begun
','discovery','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(23,'developer-9c8f27af',NULL,'discovery: Wait for the paper has begun
','discovery','2026-11-16 01:53:53',0);
INSERT INTO "messages" VALUES(24,'analyst-1100aaaa',NULL,'Agent analyst-1100aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(25,'developer-1110aaaa',NULL,'Agent developer-1110aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(26,'tester-1120aaaa',NULL,'Agent tester-1120aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(27,'analyst-1100aaaa','developer-1110aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:54',1);
INSERT INTO "messages" VALUES(28,'analyst-1100aaaa','developer-1110aaaa','mind the empty line','request','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(29,'developer-1110aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(30,'analyst-2200aaaa',NULL,'Agent analyst-2200aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(31,'developer-2210aaaa',NULL,'Agent developer-2210aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(32,'tester-2220aaaa',NULL,'Agent tester-2220aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(33,'analyst-2200aaaa','developer-2210aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:54',1);
INSERT INTO "messages" VALUES(34,'analyst-2200aaaa','developer-2210aaaa','mind the empty line','request','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(35,'developer-2210aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(36,'analyst-3300aaaa',NULL,'Agent analyst-3300aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(37,'developer-3310aaaa',NULL,'Agent developer-3310aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(38,'tester-3320aaaa',NULL,'Agent tester-3320aaaa has joined','info','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(39,'analyst-3300aaaa','developer-3310aaaa','the grammar is in grammar.txt','discovery','2026-11-16 01:53:54',1);
INSERT INTO "messages" VALUES(40,'analyst-3300aaaa','developer-3310aaaa','mind the empty line','request','2026-11-16 01:53:54',0);
INSERT INTO "messages" VALUES(41,'developer-3310aaaa',NULL,'I begin','broadcast','2026-11-16 01:53:54',0);
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
INSERT INTO "orchestrations" VALUES('9b94b6b4-1aab-4b05-a5ea-1474989b2b5f','mend the parser','completed','["analyst-c8d9b948", "developer-2ffc26ef", "tester-e0842488", "reviewer-9213a83b"]','[["analyst-c8d9b948", "developer-2ffc26ef", "tester-e0842488"], ["reviewer-9213a83b"]]',1.0,4800,4,4,'2026-11-16T01:53:52.266362','2026-11-16T01:53:52.273031',NULL,NULL,NULL,'
Orchestration Complete!
━━━━━━━━━━━━━━━━━━━━━
• Orchestration ID: 9b94b6b4
• Agents: 4/4 successful
• Total Cost: $1.0000
• Total Duration: 4800ms
• Batches Executed: 2

To resume this entire orchestration:
  resume-all 9b94b6b4

To resume specific agents:
  resume 6871f1aa # analyst-c8d9b948
  resume 0240dba5 # developer-2ffc26ef
  resume 3bc681e5 # tester-e0842488
  ...
','{}');
INSERT INTO "orchestrations" VALUES('25f37c0d-c54a-4f9a-a6b1-3cf1ed5c7feb','a lexer which fails','completed','["analyst-7a35af2d", "developer-411bf6ca"]','[["analyst-7a35af2d", "developer-411bf6ca"]]',0.5,2400,1,2,'2026-11-16T01:53:53.018638','2026-11-16T01:53:53.029852',NULL,NULL,NULL,'
Orchestration Complete!
━━━━━━━━━━━━━━━━━━━━━
• Orchestration ID: 25f37c0d
• Agents: 1/2 successful
• Total Cost: $0.5000
• Total Duration: 2400ms
• Batches Executed: 1

To resume this entire orchestration:
  resume-all 25f37c0d

To resume specific agents:
  resume 91558ab0 # analyst-7a35af2d
','{}');
INSERT INTO "orchestrations" VALUES('1111cccc-0000-4000-8000-000000000001','What is running','running','["analyst-1100aaaa", "developer-1110aaaa", "tester-1120aaaa"]','[["analyst-1100aaaa", "developer-1110aaaa"], ["tester-1120aaaa"]]',0.0,0,0,0,'2026-11-16T01:53:54.609275',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('2222cccc-0000-4000-8000-000000000002','What is paused','paused','["analyst-2200aaaa", "developer-2210aaaa", "tester-2220aaaa"]','[["analyst-2200aaaa", "developer-2210aaaa"], ["tester-2220aaaa"]]',0.625,90000,0,0,'2026-11-16T01:53:54.792886',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
INSERT INTO "orchestrations" VALUES('3333cccc-0000-4000-8000-000000000003','What is failed','failed','["analyst-3300aaaa", "developer-3310aaaa", "tester-3320aaaa"]','[["analyst-3300aaaa", "developer-3310aaaa"], ["tester-3320aaaa"]]',0.625,90000,0,0,'2026-11-16T01:53:54.909658',NULL,NULL,NULL,NULL,NULL,'{"by": "test"}');
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
INSERT INTO "sessions" VALUES('session-analyst-c8d9b948-pending','analyst-c8d9b948','Read the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.109078');
INSERT INTO "sessions" VALUES('session-developer-2ffc26ef-pending','developer-2ffc26ef','Mend the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.113026');
INSERT INTO "sessions" VALUES('session-tester-e0842488-pending','tester-e0842488','Test the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.118840');
INSERT INTO "sessions" VALUES('session-reviewer-9213a83b-pending','reviewer-9213a83b','Review the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.124894');
INSERT INTO "sessions" VALUES('session-analyst-c8d9b948-1794794032','analyst-c8d9b948','Read the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.146020');
INSERT INTO "sessions" VALUES('session-developer-2ffc26ef-1794794032','developer-2ffc26ef','Mend the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.147066');
INSERT INTO "sessions" VALUES('session-tester-e0842488-1794794032','tester-e0842488','Test the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.147139');
INSERT INTO "sessions" VALUES('session-reviewer-9213a83b-1794794032','reviewer-9213a83b','Review the parser',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.218803');
INSERT INTO "sessions" VALUES('session-analyst-7a35af2d-pending','analyst-7a35af2d','Look at the lexer',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.835812');
INSERT INTO "sessions" VALUES('session-developer-411bf6ca-pending','developer-411bf6ca','Break the lexer',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.855592');
INSERT INTO "sessions" VALUES('session-analyst-7a35af2d-1794794032','analyst-7a35af2d','Look at the lexer',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.878952');
INSERT INTO "sessions" VALUES('session-developer-411bf6ca-1794794032','developer-411bf6ca','Break the lexer',NULL,0,0.0,'active','2026-11-16 01:53:52','2026-11-16T01:53:52.879031');
INSERT INTO "sessions" VALUES('session-analyst-16c31d83-pending','analyst-16c31d83','Wait for the printer',NULL,0,0.0,'active','2026-11-16 01:53:53','2026-11-16T01:53:53.642471');
INSERT INTO "sessions" VALUES('session-developer-9c8f27af-pending','developer-9c8f27af','Wait for the paper',NULL,0,0.0,'active','2026-11-16 01:53:53','2026-11-16T01:53:53.661757');
INSERT INTO "sessions" VALUES('session-tester-bb4dcdd0-pending','tester-bb4dcdd0','Wait for the ink',NULL,0,0.0,'active','2026-11-16 01:53:53','2026-11-16T01:53:53.694689');
INSERT INTO "sessions" VALUES('session-reviewer-c0bbd78c-pending','reviewer-c0bbd78c','Wait for the guard',NULL,0,0.0,'active','2026-11-16 01:53:53','2026-11-16T01:53:53.721440');
INSERT INTO "sessions" VALUES('session-analyst-16c31d83-1794794033','analyst-16c31d83','Wait for the printer',NULL,0,0.0,'active','2026-11-16 01:53:53','2026-11-16T01:53:53.778692');
INSERT INTO "sessions" VALUES('session-developer-9c8f27af-1794794033','developer-9c8f27af','Wait for the paper',NULL,0,0.0,'active','2026-11-16 01:53:53','2026-11-16T01:53:53.778798');
INSERT INTO "sessions" VALUES('session-tester-bb4dcdd0-1794794033','tester-bb4dcdd0','Wait for the ink',NULL,0,0.0,'active','2026-11-16 01:53:53','2026-11-16T01:53:53.778847');
INSERT INTO "sessions" VALUES('session-analyst-1100aaaa-pending','analyst-1100aaaa','Part 1 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.309439');
INSERT INTO "sessions" VALUES('session-developer-1110aaaa-pending','developer-1110aaaa','Part 2 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.355509');
INSERT INTO "sessions" VALUES('session-tester-1120aaaa-pending','tester-1120aaaa','Part 3 of what is running',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.426569');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000001','analyst-1100aaaa','Part 1 of what is running','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.466112');
INSERT INTO "sessions" VALUES('10000000-0000-4000-8000-000000000002','developer-1110aaaa','Part 2 of what is running','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.518234');
INSERT INTO "sessions" VALUES('session-analyst-2200aaaa-pending','analyst-2200aaaa','Part 1 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.628042');
INSERT INTO "sessions" VALUES('session-developer-2210aaaa-pending','developer-2210aaaa','Part 2 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.635723');
INSERT INTO "sessions" VALUES('session-tester-2220aaaa-pending','tester-2220aaaa','Part 3 of what is paused',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.641138');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000001','analyst-2200aaaa','Part 1 of what is paused','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.658634');
INSERT INTO "sessions" VALUES('20000000-0000-4000-8000-000000000002','developer-2210aaaa','Part 2 of what is paused','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.712787');
INSERT INTO "sessions" VALUES('session-analyst-3300aaaa-pending','analyst-3300aaaa','Part 1 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.854811');
INSERT INTO "sessions" VALUES('session-developer-3310aaaa-pending','developer-3310aaaa','Part 2 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.860799');
INSERT INTO "sessions" VALUES('session-tester-3320aaaa-pending','tester-3320aaaa','Part 3 of what is failed',NULL,0,0.0,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.873007');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000001','analyst-3300aaaa','Part 1 of what is failed','[{"role": "result", "content": "found: part 1"}]',1,0.5,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.883593');
INSERT INTO "sessions" VALUES('30000000-0000-4000-8000-000000000002','developer-3310aaaa','Part 2 of what is failed','[{"role": "partial", "content": "I am in the middle of it", "timestamp": "2025-09-01T10:00:00"}]',1,0.125,'active','2026-11-16 01:53:54','2026-11-16T01:53:54.898018');
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
INSERT INTO "tasks" VALUES('task-analyst-c8d9b948',NULL,'Read the parser','completed','["analyst-c8d9b948"]',NULL,100.0,'{"success": true, "output": "found: Read the parser"}','2026-11-16 01:53:52',NULL,'2026-11-16T01:53:52.251702');
INSERT INTO "tasks" VALUES('task-developer-2ffc26ef',NULL,'Mend the parser','completed','["developer-2ffc26ef"]',NULL,100.0,'{"success": true, "output": "found: Mend the parser"}','2026-11-16 01:53:52',NULL,'2026-11-16T01:53:52.254497');
INSERT INTO "tasks" VALUES('task-tester-e0842488',NULL,'Test the parser','completed','["tester-e0842488"]',NULL,100.0,'{"success": true, "output": "found: Test the parser"}','2026-11-16 01:53:52',NULL,'2026-11-16T01:53:52.260077');
INSERT INTO "tasks" VALUES('task-reviewer-9213a83b',NULL,'Review the parser','completed','["reviewer-9213a83b"]',NULL,100.0,'{"success": true, "output": "found: Review the parser"}','2026-11-16 01:53:52',NULL,'2026-11-16T01:53:52.264975');
INSERT INTO "tasks" VALUES('task-analyst-7a35af2d',NULL,'Look at the lexer','completed','["analyst-7a35af2d"]',NULL,100.0,'{"success": true, "output": "found: Look at the lexer"}','2026-11-16 01:53:52',NULL,'2026-11-16T01:53:53.003095');
INSERT INTO "tasks" VALUES('task-developer-411bf6ca',NULL,'Break the lexer','failed','["developer-411bf6ca"]',NULL,0.0,NULL,'2026-11-16 01:53:52',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-16c31d83',NULL,'Wait for the printer','pending','["analyst-16c31d83"]',NULL,0.0,NULL,'2026-11-16 01:53:53',NULL,NULL);
INSERT INTO "tasks" VALUES('task-developer-9c8f27af',NULL,'Wait for the paper','pending','["developer-9c8f27af"]',NULL,0.0,NULL,'2026-11-16 01:53:53',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-bb4dcdd0',NULL,'Wait for the ink','pending','["tester-bb4dcdd0"]',NULL,0.0,NULL,'2026-11-16 01:53:53',NULL,NULL);
INSERT INTO "tasks" VALUES('task-reviewer-c0bbd78c',NULL,'Wait for the guard','pending','["reviewer-c0bbd78c"]',NULL,0.0,NULL,'2026-11-16 01:53:53',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-1100aaaa',NULL,'Part 1 of what is running','completed','["analyst-1100aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:54',NULL,'2026-11-16T01:53:54.485028');
INSERT INTO "tasks" VALUES('task-developer-1110aaaa',NULL,'Part 2 of what is running','running','["developer-1110aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:54',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-1120aaaa',NULL,'Part 3 of what is running','pending','["tester-1120aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:54',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-2200aaaa',NULL,'Part 1 of what is paused','completed','["analyst-2200aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:54',NULL,'2026-11-16T01:53:54.674403');
INSERT INTO "tasks" VALUES('task-developer-2210aaaa',NULL,'Part 2 of what is paused','running','["developer-2210aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:54',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-2220aaaa',NULL,'Part 3 of what is paused','pending','["tester-2220aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:54',NULL,NULL);
INSERT INTO "tasks" VALUES('task-analyst-3300aaaa',NULL,'Part 1 of what is failed','completed','["analyst-3300aaaa"]',NULL,100.0,'{"success": true, "output": "found: part 1"}','2026-11-16 01:53:54',NULL,'2026-11-16T01:53:54.894104');
INSERT INTO "tasks" VALUES('task-developer-3310aaaa',NULL,'Part 2 of what is failed','failed','["developer-3310aaaa"]',NULL,40.0,NULL,'2026-11-16 01:53:54',NULL,NULL);
INSERT INTO "tasks" VALUES('task-tester-3320aaaa',NULL,'Part 3 of what is failed','pending','["tester-3320aaaa"]',NULL,0.0,NULL,'2026-11-16 01:53:54',NULL,NULL);
CREATE INDEX idx_agents_status ON agents(status);
CREATE INDEX idx_sessions_agent ON sessions(agent_id);
CREATE INDEX idx_tasks_status ON tasks(status);
CREATE INDEX idx_messages_timestamp ON messages(timestamp);
CREATE INDEX idx_checkpoints_name ON checkpoints(name);
CREATE INDEX idx_orchestrations_status ON orchestrations(status);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('messages',41);
COMMIT;
