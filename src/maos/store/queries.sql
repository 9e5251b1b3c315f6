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
-- Streams in order of their names.
SELECT name FROM streams WHERE name > $1 AND name >= $2 AND name < $3 ORDER BY name LIMIT $4;

-- used_key --
-- The reply an idempotency key gave before.
SELECT id, fingerprint, position, versions FROM keys WHERE id = $1;

-- lease --
-- Checked inside the transaction that writes, never before it.
SELECT token, expires_us FROM leases WHERE name = $1;

-- acquire_lease --
-- Take a free or expired lease; the new token fences every earlier holder.
INSERT INTO leases (name, owner, token, expires_us) VALUES ($1, $2, 1, now_us() + $3)
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
 WHERE kind = $1 AND key > $2 AND key >= $3 AND key < $4 ORDER BY key LIMIT $5;

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
