-- Every statement both databases share, word for word. Rules that keep it so: times are integers of microseconds,
-- parameters are $1, $2 … (turned into ?1, ?2 … for SQLite when loaded), `now_us()` is the database's clock.

-- read_stream --
-- The next events of one stream.
SELECT e.position, s.name, e.version, e.spans, e.type, e.format, e.time_us, e.token, e.body, e.hash
  FROM streams s JOIN events e ON e.stream = s.id
 WHERE s.name = $1 AND e.version > $2 ORDER BY e.version LIMIT $3;

-- read_stream_backwards --
-- The events of one stream before a version, newest first.
SELECT e.position, s.name, e.version, e.spans, e.type, e.format, e.time_us, e.token, e.body, e.hash
  FROM streams s JOIN events e ON e.stream = s.id
 WHERE s.name = $1 AND e.version < $2 ORDER BY e.version DESC LIMIT $3;

-- read_log --
-- The next events of all streams, in the order they were written.
SELECT e.position, s.name, e.version, e.spans, e.type, e.format, e.time_us, e.token, e.body, e.hash
  FROM events e JOIN streams s ON s.id = e.stream
 WHERE e.position > $1 ORDER BY e.position LIMIT $2;

-- stream_version --
-- Where one stream ends; runs for each cached read, so it touches nothing but the index.
SELECT e.version FROM streams s JOIN events e ON e.stream = s.id
 WHERE s.name = $1 ORDER BY e.version DESC LIMIT 1;

-- stream_position --
-- The position of the last event of one stream.
SELECT e.position FROM streams s JOIN events e ON e.stream = s.id
 WHERE s.name = $1 ORDER BY e.version DESC LIMIT 1;

-- stream_head --
-- Where one stream ends, with what the next event needs.
SELECT s.id, e.version, e.hash FROM streams s JOIN events e ON e.stream = s.id
 WHERE s.name = $1 ORDER BY e.version DESC LIMIT 1;

-- log_head --
-- Where the journal ends.
SELECT position, time_us, hash FROM events ORDER BY position DESC LIMIT 1;

-- identity --
-- What tells this database from every other.
SELECT id FROM identity;

-- news --
-- What others wrote since the writer last looked.
SELECT s.name, s.id, e.version, e.hash FROM events e JOIN streams s ON s.id = e.stream
 WHERE e.position > $1 ORDER BY e.position LIMIT $2;

-- next_stream --
-- The id of the next new stream.
SELECT COALESCE(max(id), 0) + 1 FROM streams;

-- hash_at --
-- Finds out whether an append whose outcome is unknown was written: nothing else can have its hash. A later version
-- is of the event that compaction put in its place, or in that of another.
SELECT version, hash FROM events WHERE stream = $1 AND version >= $2 ORDER BY version LIMIT 1;

-- hash_at_position --
-- Compares the end of the journal with the mark kept outside.
SELECT hash FROM events WHERE position = $1;

-- stream_names --
-- Streams in order of their names. SQLite searches by the first bound alone, so that is the higher one.
SELECT name FROM streams WHERE name >= $2 AND name > $1 AND name < $3 ORDER BY name LIMIT $4;

-- open_streams --
-- Streams whose last event is not of the types in $5, a list with commas around each, or was recorded at $6 or later.
SELECT s.name FROM streams s
 WHERE s.name >= $2 AND s.name > $1 AND s.name < $3
   AND NOT EXISTS (SELECT 1 FROM events e
                    WHERE e.stream = s.id AND e.version = (SELECT max(version) FROM events WHERE stream = s.id)
                      AND e.time_us < $6 AND replace($5, ',' || e.type || ',', '') <> $5)
 ORDER BY s.name LIMIT $4;

-- newest_streams --
-- Streams in the order in which they were made, the newest first.
SELECT name FROM streams
 WHERE name >= $2 AND name < $3 AND id < COALESCE((SELECT id FROM streams WHERE name = $1), 9223372036854775807)
 ORDER BY id DESC LIMIT $4;

-- used_key --
-- The reply an idempotency key gave before.
SELECT id, fingerprint, position, versions FROM keys WHERE id = $1;

-- read_keys --
-- Used keys in the order of the journal, for a backup.
SELECT id, fingerprint, position, versions FROM keys WHERE position >= $1 AND position <= $2 ORDER BY position, id;

-- lease --
-- Checked inside the transaction that writes, never before it.
SELECT token, expires_us FROM leases WHERE name = $1;

-- acquire_lease --
-- Take a free or expired lease; the new token fences every earlier holder.
INSERT INTO leases (name, owner, token, expires_us)
SELECT $1, $2, COALESCE(max(token_floor), 0) + 1, now_us() + $3 FROM identity WHERE true
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, token = leases.token + 1, expires_us = excluded.expires_us
 WHERE leases.expires_us <= now_us()
RETURNING token, expires_us;

-- renew_lease --
-- Only the newest holder, and only while it still holds.
UPDATE leases SET expires_us = now_us() + $4
 WHERE name = $1 AND owner = $2 AND token = $3 AND expires_us > now_us()
RETURNING token, expires_us;

-- release_lease --
-- The row stays, so that the token keeps growing.
UPDATE leases SET expires_us = 0 WHERE name = $1 AND owner = $2 AND token = $3
RETURNING token, expires_us;

-- insert_stream --
INSERT INTO streams (id, name) VALUES ($1, $2);

-- restore_event --
-- An event as another database recorded it.
INSERT INTO events (position, stream, version, spans, type, format, time_us, token, body, hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- restore_key --
INSERT INTO keys (id, fingerprint, position, versions) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING;

-- raise_token_floor --
-- Every lease that is acquired from now on has a larger token.
UPDATE identity SET token_floor = $1 WHERE token_floor < $1;

-- insert_key --
INSERT INTO keys (id, fingerprint, position, versions) VALUES ($1, $2, $3, $4);

-- save_document --
-- Disposable, so a late writer with an older version simply loses.
INSERT INTO documents (kind, key, version, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, key) DO UPDATE SET version = excluded.version, body = excluded.body
 WHERE documents.version <= excluded.version;

-- delete_document --
DELETE FROM documents WHERE kind = $1 AND key = $2 AND version <= $3;

-- load_document --
SELECT kind, key, version, body FROM documents WHERE kind = $1 AND key = $2;

-- scan_documents --
SELECT kind, key, version, body FROM documents
 WHERE kind = $1 AND key >= $3 AND key > $2 AND key < $4 ORDER BY key LIMIT $5;

-- replace_last --
-- Compaction: the last event of the range stays in its place and now stands for all of them. Only whole events: one
-- that was merged before is either inside the range or outside, else versions would be lost or counted twice.
UPDATE events SET spans = $3, type = $4, format = $5, body = $6
 WHERE stream = $1 AND version = $2
   AND $3 = (SELECT CAST(sum(e.spans) AS bigint) FROM events e
              WHERE e.stream = $1 AND e.version > $2 - $3 AND e.version <= $2);

-- delete_replaced --
DELETE FROM events WHERE stream = $1 AND version >= $2 AND version < $3;

-- count_versions --
-- Equals the head of the journal unless rows were lost; events of a stream without a name cannot be read.
SELECT COALESCE(sum(e.spans), 0) FROM events e JOIN streams s ON s.id = e.stream;

-- keyring --
-- The keys that wrap data keys: one, or several while they are rotated. The newest comes first.
SELECT id, store, source, wrapped, made_us FROM keyring ORDER BY made_us DESC, id;

-- insert_keyring --
INSERT INTO keyring (id, store, source, wrapped, made_us) VALUES ($1, $2, $3, $4, $5);

-- supersede_keyring --
-- From now on a key is wrapped by the newest one, and by nothing from outside.
UPDATE keyring SET source = 'rotated', wrapped = $2 WHERE id = $1;

-- remove_keyring --
-- When no data key is wrapped by it any more.
DELETE FROM keyring WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM data_keys WHERE wrapped_by = $1 AND erased_us = 0);

-- insert_data_key --
INSERT INTO data_keys (id, scope, wrapped, wrapped_by, made_us) VALUES ($1, $2, $3, $4, $5);

-- restore_data_key --
INSERT INTO data_keys (id, scope, wrapped, wrapped_by, made_us, retired, erased_us)
VALUES ($1, $2, $3, $4, $5, $6, $7);

-- data_key --
SELECT id, scope, wrapped, wrapped_by, made_us, retired, erased_us FROM data_keys WHERE id = $1;

-- scope_keys --
-- The keys of one scope, the newest first.
SELECT id, scope, wrapped, wrapped_by, made_us, retired, erased_us FROM data_keys
 WHERE scope = $1 ORDER BY made_us DESC, id;

-- data_keys --
SELECT id, scope, wrapped, wrapped_by, made_us, retired, erased_us FROM data_keys
 WHERE id > $1 ORDER BY id LIMIT $2;

-- keys_wrapped_by --
SELECT id, scope, wrapped, wrapped_by, made_us, retired, erased_us FROM data_keys
 WHERE wrapped_by = $1 AND erased_us = 0 ORDER BY id LIMIT $2;

-- rewrap_data_key --
UPDATE data_keys SET wrapped = $2, wrapped_by = $3, retired = $4 WHERE id = $1 AND erased_us = 0;

-- erased_scopes --
SELECT DISTINCT scope FROM data_keys WHERE erased_us > 0;

-- erase_data_keys --
-- What they sealed can no longer be read. The rows stay, so that nothing is sealed for the scope any more.
UPDATE data_keys SET wrapped = NULL, erased_us = $2 WHERE scope = $1 AND erased_us = 0;

-- erase_data_key --
UPDATE data_keys SET wrapped = NULL, erased_us = $2 WHERE id = $1 AND erased_us = 0;

-- all_documents --
-- Names of documents, for an erasure.
SELECT kind, key, version FROM documents WHERE (kind > $1 OR (kind = $1 AND key > $2)) ORDER BY kind, key LIMIT $3;

-- newest_token --
SELECT COALESCE(max(token), 0) FROM leases;
