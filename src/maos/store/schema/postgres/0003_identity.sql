-- What tells this database from every other: by it a user's machine knows the databases that the user made there.

CREATE TABLE identity (
    id text NOT NULL
);

INSERT INTO identity (id) VALUES (replace(gen_random_uuid()::text, '-', ''));
