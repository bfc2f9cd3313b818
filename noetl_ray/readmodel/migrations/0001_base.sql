-- The read model: projections of the log, all rebuildable. No trigger, no foreign key: rows arrive in log
-- order from one writer per shard, and a check here would only slow that writer down.

CREATE TABLE noetl.event (
    event_id          BIGINT PRIMARY KEY,
    position          BIGINT NOT NULL,
    ordinal           SMALLINT NOT NULL,
    tenant_id         TEXT NOT NULL,
    organization_id   TEXT NOT NULL,
    execution_id      BIGINT NOT NULL,
    shard             SMALLINT NOT NULL,
    stream_id         TEXT NOT NULL,
    aggregate_id      TEXT NOT NULL,
    aggregate_type    TEXT NOT NULL,
    event_type        TEXT NOT NULL,
    schema_name       TEXT NOT NULL,
    schema_version    SMALLINT NOT NULL,
    event_time        TIMESTAMPTZ NOT NULL,
    ingest_time       TIMESTAMPTZ,
    producer          TEXT NOT NULL,
    causation_id      BIGINT,
    correlation_id    TEXT,
    idempotency_key   TEXT,
    prev_event_id     BIGINT,
    stage_id          TEXT,
    frame_id          TEXT,
    command_id        TEXT,
    payload           JSONB NOT NULL,
    payload_ref       JSONB,
    meta              JSONB NOT NULL,
    envelope_checksum TEXT NOT NULL
);
COMMENT ON TABLE noetl.event IS
    'Append-only audit copy of the log. Execution state is never built from it (WAL-3).';
CREATE INDEX event_execution ON noetl.event (execution_id, position DESC, ordinal DESC);
CREATE INDEX event_stage ON noetl.event (execution_id, stage_id, position DESC)
    WHERE stage_id IS NOT NULL;
CREATE INDEX event_frame ON noetl.event (execution_id, frame_id, position DESC)
    WHERE frame_id IS NOT NULL;
CREATE INDEX event_command ON noetl.event (execution_id, command_id, position DESC)
    WHERE command_id IS NOT NULL;
-- Append-only also for its owner: rows may be retired once archived, never changed (ENV-10).
REVOKE UPDATE ON noetl.event FROM CURRENT_USER;

CREATE TABLE noetl.execution (
    tenant_id           TEXT NOT NULL,
    organization_id     TEXT NOT NULL,
    execution_id        BIGINT NOT NULL,
    project_id          TEXT NOT NULL,
    shard               SMALLINT NOT NULL,
    status              TEXT NOT NULL,
    path                TEXT,
    playbook_version    INTEGER,
    digest              TEXT,
    started_at          TIMESTAMPTZ,
    ended_at            TIMESTAMPTZ,
    final_step          TEXT,
    error               JSONB,
    steps               JSONB NOT NULL,
    counters            JSONB NOT NULL,
    event_count         BIGINT NOT NULL,
    last_event_id       BIGINT NOT NULL,
    last_position       BIGINT NOT NULL,
    parent_execution_id BIGINT,
    idempotency_key     TEXT,
    checksum            TEXT NOT NULL,
    updated_at          TIMESTAMPTZ,
    PRIMARY KEY (tenant_id, organization_id, execution_id)
) WITH (fillfactor = 70);
-- Every batch rewrites the rows it touches; room in the page keeps those updates out of the indexes.
CREATE INDEX execution_status
    ON noetl.execution (tenant_id, organization_id, status, execution_id DESC);
CREATE INDEX execution_path
    ON noetl.execution (tenant_id, organization_id, path, execution_id DESC);

CREATE TABLE noetl.command (
    tenant_id         TEXT NOT NULL,
    organization_id   TEXT NOT NULL,
    execution_id      BIGINT NOT NULL,
    command_id        TEXT NOT NULL,
    position          BIGINT NOT NULL,
    status            TEXT NOT NULL,
    step              TEXT,
    visit             INTEGER,
    attempt           INTEGER NOT NULL,
    worker_id         TEXT,
    incarnation       TEXT,
    issued_event_id   BIGINT,
    claimed_event_id  BIGINT,
    terminal_event_id BIGINT,
    issued_at         TIMESTAMPTZ,
    claimed_at        TIMESTAMPTZ,
    ended_at          TIMESTAMPTZ,
    error             JSONB,
    PRIMARY KEY (tenant_id, organization_id, execution_id, command_id)
) WITH (fillfactor = 80);

CREATE TABLE noetl.projection (
    tenant_id             TEXT NOT NULL,
    organization_id       TEXT NOT NULL,
    projection_type       TEXT NOT NULL,
    execution_id          BIGINT NOT NULL,
    stage_id              TEXT NOT NULL,
    frame_id              TEXT NOT NULL,
    partition_id          TEXT NOT NULL,
    version               BIGINT NOT NULL,
    -- Text, not JSONB: the bytes must come back as they were, or the checksum would not match.
    state                 TEXT NOT NULL,
    checksum              TEXT NOT NULL,
    source_event_id       BIGINT NOT NULL,
    source_first_event_id BIGINT,
    meta                  JSONB NOT NULL,
    updated_at            TIMESTAMPTZ,
    PRIMARY KEY (tenant_id, organization_id, projection_type, execution_id,
                 stage_id, frame_id, partition_id)
) WITH (fillfactor = 70);

CREATE TABLE noetl.projection_snapshot (
    LIKE noetl.projection INCLUDING STORAGE,
    reason TEXT NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, projection_type, execution_id,
                 stage_id, frame_id, partition_id, version)
);

CREATE TABLE noetl.projection_checkpoint (
    consumer                TEXT PRIMARY KEY,
    last_projected_position BIGINT NOT NULL,
    last_projected_event_id BIGINT NOT NULL,
    last_projected_at       TIMESTAMPTZ NOT NULL,
    lag_ms                  BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE noetl.task_log (
    log_id          BIGINT PRIMARY KEY,
    tenant_id       TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    execution_id    BIGINT NOT NULL,
    step            TEXT NOT NULL,
    visit           INTEGER NOT NULL,
    task            TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    stream          TEXT NOT NULL,
    time            TIMESTAMPTZ NOT NULL,
    text            TEXT NOT NULL
);
CREATE INDEX task_log_execution ON noetl.task_log (execution_id, log_id);

CREATE TABLE noetl.playbook (
    tenant_id       TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    path            TEXT NOT NULL,
    version         INTEGER NOT NULL,
    digest          TEXT NOT NULL,
    position        BIGINT NOT NULL,
    registered_at   TIMESTAMPTZ NOT NULL,
    name            TEXT,
    source          TEXT,
    source_ref      JSONB,
    size_bytes      BIGINT,
    PRIMARY KEY (tenant_id, organization_id, path, version)
);

CREATE TABLE noetl.worker (
    worker_id   TEXT PRIMARY KEY,
    incarnation TEXT NOT NULL,
    status      TEXT NOT NULL,
    position    BIGINT NOT NULL,
    slots       INTEGER,
    place       JSONB NOT NULL,
    joined_at   TIMESTAMPTZ,
    ended_at    TIMESTAMPTZ,
    reason      TEXT
);

-- Isolation beneath the queries (TEN-3): a connection sees the one scope it has stated. The projector and
-- operators state noetl.operator. FORCE binds the owner of the tables too; only a superuser is outside.
DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['event', 'execution', 'command', 'projection',
                                'projection_snapshot', 'task_log', 'playbook']
    LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format($policy$
            CREATE POLICY scope ON noetl.%I USING (
                (SELECT current_setting('noetl.operator', true)) = 'on'
                OR (tenant_id = (SELECT current_setting('noetl.tenant_id', true))
                    AND organization_id = (SELECT current_setting('noetl.organization_id', true)))
            ) WITH CHECK ((SELECT current_setting('noetl.operator', true)) = 'on')
            $policy$, name);
    END LOOP;
END
$$;
