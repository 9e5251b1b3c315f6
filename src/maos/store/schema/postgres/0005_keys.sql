-- What an encrypted database needs: the key that wraps its data keys, itself wrapped by a key from outside, and the data
-- keys, one or more for each run and agent. Both are empty without encryption. They are no part of the journal: a key that
-- is erased is gone, and what it sealed can no longer be read.

CREATE TABLE keyring (
    id      bytea   PRIMARY KEY,
    store   bytea   NOT NULL,  -- what sealed bodies are bound to; a restored copy of the database keeps it
    source  text    NOT NULL,  -- what wraps it: file, passphrase, age, keyring, command; `rotated`: the newest of these
    wrapped bytea   NOT NULL,
    made_us bigint  NOT NULL
);
CREATE UNIQUE INDEX keyring_newest ON keyring ((source <> 'rotated')) WHERE source <> 'rotated';

CREATE TABLE data_keys (
    id         bytea   PRIMARY KEY,
    scope      text COLLATE "C" NOT NULL,  -- what it seals: the name of a run or an agent; empty for everything else
    wrapped    bytea,             -- NULL when it was erased
    wrapped_by bytea   NOT NULL,
    made_us    bigint  NOT NULL,
    retired    bigint  NOT NULL DEFAULT 0,  -- 1: opens what it has sealed, and seals nothing more
    erased_us  bigint  NOT NULL DEFAULT 0
);
CREATE INDEX data_keys_by_scope ON data_keys (scope);
CREATE INDEX data_keys_erased ON data_keys (scope) WHERE erased_us > 0;
