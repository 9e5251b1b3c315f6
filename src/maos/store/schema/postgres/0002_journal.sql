-- The truth is `events`; `streams` names what it numbers. `leases` and `keys` coordinate. `documents` is disposable.
-- Names sort by code point (COLLATE "C"), as they do in SQLite.

CREATE TABLE streams (
    id   bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE events (
    position bigint  PRIMARY KEY,        -- place in the whole journal, without gaps when written
    stream   bigint  NOT NULL,
    version  bigint  NOT NULL,           -- place in its stream
    spans    bigint  NOT NULL DEFAULT 1, -- versions it stands for; more than one after compaction
    type     text    NOT NULL,
    format   bigint  NOT NULL,
    time_us  bigint  NOT NULL,           -- never decreases along the journal
    token    bigint  NOT NULL,           -- fencing token it was written under, 0 for none
    body     bytea   NOT NULL,           -- JSON, or a zstd frame of it
    hash     bytea   NOT NULL            -- covers everything but the position, and the event before it
);
ALTER TABLE events ALTER COLUMN body SET STORAGE EXTERNAL;  -- compressed by us where it pays

CREATE UNIQUE INDEX events_by_version ON events (stream, version);

CREATE TABLE keys (
    id          text COLLATE "C" PRIMARY KEY,
    fingerprint bytea  NOT NULL,
    position    bigint NOT NULL,
    versions    text   NOT NULL
);

CREATE TABLE leases (
    name       text COLLATE "C" PRIMARY KEY,
    owner      text   NOT NULL,
    token      bigint NOT NULL,
    expires_us bigint NOT NULL
);

CREATE TABLE documents (
    kind    text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body    bytea  NOT NULL,
    PRIMARY KEY (kind, key)
);
ALTER TABLE documents ALTER COLUMN body SET STORAGE EXTERNAL;

-- The database's clock: all decisions about leases use it, whatever the clocks of the nodes say.
CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The whole write of an ordinary batch in one round trip: if the journal still ends where the writer thinks and every
-- lease still holds, the events go in; otherwise nothing does and the answer is NULL. The caller holds no transaction:
-- each statement in here sees what was committed before it began, so the check comes after the lock.
CREATE FUNCTION append_if_unmoved(
    log_lock bigint, channel text, expected bigint, lease_names text[], lease_tokens bigint[], time_us bigint,
    streams bigint[], versions bigint[], types text[], formats bigint[], tokens bigint[], bodies bytea[], hashes bytea[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    clock bigint;
    ending bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(log_lock);
    IF cardinality(lease_names) > 0 THEN
        -- They stay as they are until the commit: whoever takes one over waits, and then sees what was written under it.
        PERFORM FROM leases l WHERE l.name = ANY (lease_names) FOR SHARE;
    END IF;
    clock := now_us();
    SELECT e.position INTO ending FROM events e ORDER BY e.position DESC LIMIT 1;
    IF COALESCE(ending, 0) <> expected THEN
        RETURN NULL;
    END IF;
    IF cardinality(lease_names) > 0 AND EXISTS (
        SELECT FROM unnest(lease_names, lease_tokens) AS claimed (name, token)
        WHERE NOT EXISTS (SELECT FROM leases l
                          WHERE l.name = claimed.name AND l.token = claimed.token AND l.expires_us > clock)
    ) THEN
        RETURN NULL;
    END IF;
    INSERT INTO events (position, stream, version, type, format, time_us, token, body, hash)
    SELECT expected + row.n, row.stream, row.version, row.type, row.format, append_if_unmoved.time_us,
           row.token, row.body, row.hash
      FROM unnest(streams, versions, types, formats, tokens, bodies, hashes) WITH ORDINALITY
           AS row (stream, version, type, format, token, body, hash, n);
    PERFORM pg_notify(channel, (expected + cardinality(streams))::text);
    RETURN clock;
END $$;
