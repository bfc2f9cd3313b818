-- Who owns a shard and how far it is kept. Nothing claims or decides by these rows; no tenant is in them.

CREATE TABLE noetl.execution_shard (
    shard_id              INTEGER PRIMARY KEY,
    position              BIGINT NOT NULL,
    status                TEXT,
    owner_runtime_id      TEXT,
    owner_instance        TEXT,
    epoch                 BIGINT,
    claimed_at            TIMESTAMPTZ,
    leased_until          TIMESTAMPTZ,
    reason                TEXT,
    checkpoint_position   BIGINT,
    checkpoint_event_id   BIGINT,
    checkpoint_executions INTEGER,
    committed_at          TIMESTAMPTZ,
    updated_at            TIMESTAMPTZ
) WITH (fillfactor = 70);
