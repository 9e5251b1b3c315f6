-- The truth is `events`; `streams` names what it numbers. `leases` and `keys` coordinate. `documents` is disposable.

CREATE TABLE streams (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE events (
    position INTEGER PRIMARY KEY,        -- place in the whole journal, without gaps when written
    stream   INTEGER NOT NULL,
    version  INTEGER NOT NULL,           -- place in its stream
    spans    INTEGER NOT NULL DEFAULT 1, -- versions it stands for; more than one after compaction
    type     TEXT    NOT NULL,
    format   INTEGER NOT NULL,
    time_us  INTEGER NOT NULL,           -- never decreases along the journal
    token    INTEGER NOT NULL,           -- fencing token it was written under, 0 for none
    body     BLOB    NOT NULL,           -- JSON, or a zstd frame of it
    hash     BLOB    NOT NULL            -- covers everything but the position, and the event before it
) STRICT;

CREATE UNIQUE INDEX events_by_version ON events (stream, version);

CREATE TABLE keys (
    id          TEXT    PRIMARY KEY,
    fingerprint BLOB    NOT NULL,
    position    INTEGER NOT NULL,
    versions    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    name       TEXT    PRIMARY KEY,
    owner      TEXT    NOT NULL,
    token      INTEGER NOT NULL,
    expires_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE documents (
    kind    TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    version INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT;
