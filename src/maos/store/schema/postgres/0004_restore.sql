-- What a backup and its restoration need: keys in the order of the journal, and leases whose tokens begin above those of
-- restored events, which were written under leases of another database.

CREATE INDEX keys_by_position ON keys (position);

ALTER TABLE identity ADD COLUMN token_floor bigint NOT NULL DEFAULT 0;
