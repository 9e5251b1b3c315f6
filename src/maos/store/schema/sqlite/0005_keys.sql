-- What an encrypted database needs: the key that wraps its data keys, itself wrapped by a key from outside, and the data
-- keys, one or more for each run and agent. Both are empty without encryption. They are no part of the journal: a key that
-- is erased is gone, and what it sealed can no longer be read.

CREATE TABLE keyring (
    id      BLOB    PRIMARY KEY,
    store   BLOB    NOT NULL,  -- what sealed bodies are bound to; a restored copy of the database keeps it
    source  TEXT    NOT NULL,  -- what wraps it: file, passphrase, age, keyring, command; `rotated`: the newest of these
    wrapped BLOB    NOT NULL,
    made_us INTEGER NOT NULL
);
CREATE UNIQUE INDEX keyring_newest ON keyring (source <> 'rotated') WHERE source <> 'rotated';

CREATE TABLE data_keys (
    id         BLOB    PRIMARY KEY,
    scope      TEXT    NOT NULL,  -- what it seals: the name of a run or an agent; empty for everything else
    wrapped    BLOB,              -- NULL when it was erased
    wrapped_by BLOB    NOT NULL,
    made_us    INTEGER NOT NULL,
    retired    INTEGER NOT NULL DEFAULT 0,  -- 1: opens what it has sealed, and seals nothing more
    erased_us  INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX data_keys_by_scope ON data_keys (scope);
CREATE INDEX data_keys_erased ON data_keys (scope) WHERE erased_us > 0;
