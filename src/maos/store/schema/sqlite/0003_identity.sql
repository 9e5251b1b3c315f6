-- What tells this database from every other: by it a user's machine knows the databases that the user made there.

CREATE TABLE identity (
    id TEXT NOT NULL
) STRICT;

INSERT INTO identity (id) VALUES (lower(hex(randomblob(16))));
