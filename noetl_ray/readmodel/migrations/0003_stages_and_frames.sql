-- Stages and frames of loops: who holds which window of rows, and what became of it. Projections like the rest.

CREATE TABLE noetl.stage (
    tenant_id       TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    execution_id    BIGINT NOT NULL,
    stage_id        TEXT NOT NULL,
    position        BIGINT NOT NULL,
    parent_event_id BIGINT,
    parent_stage_id TEXT,
    loop_event_id   BIGINT,
    opened_event_id BIGINT,
    closed_event_id BIGINT,
    kind            TEXT,
    step_name       TEXT,
    visit           INTEGER,
    dsl_ref         TEXT,
    status          TEXT NOT NULL,
    frame_policy    JSONB,
    stats           JSONB,
    started_at      TIMESTAMPTZ,
    ended_at        TIMESTAMPTZ,
    PRIMARY KEY (tenant_id, organization_id, execution_id, stage_id)
) WITH (fillfactor = 70);

CREATE TABLE noetl.frame (
    tenant_id         TEXT NOT NULL,
    organization_id   TEXT NOT NULL,
    execution_id      BIGINT NOT NULL,
    frame_id          TEXT NOT NULL,
    stage_id          TEXT NOT NULL,
    position          BIGINT NOT NULL,
    parent_frame_id   TEXT,
    command_id        TEXT,
    claimed_event_id  BIGINT,
    terminal_event_id BIGINT,
    cursor            JSONB,
    row_count         BIGINT,
    status            TEXT NOT NULL,
    owner_worker      TEXT,
    lease_until       TIMESTAMPTZ,
    output_ref        JSONB,
    events_emitted    INTEGER NOT NULL,
    attempts          INTEGER NOT NULL,
    created_at        TIMESTAMPTZ,
    completed_at      TIMESTAMPTZ,
    error             JSONB,
    PRIMARY KEY (tenant_id, organization_id, execution_id, frame_id)
) WITH (fillfactor = 70);
CREATE INDEX frame_open ON noetl.frame (execution_id, lease_until)
    WHERE terminal_event_id IS NULL;
CREATE INDEX frame_stage ON noetl.frame (execution_id, stage_id, position DESC);
CREATE INDEX frame_parent ON noetl.frame (execution_id, parent_frame_id)
    WHERE parent_frame_id IS NOT NULL;

DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['stage', 'frame']
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
