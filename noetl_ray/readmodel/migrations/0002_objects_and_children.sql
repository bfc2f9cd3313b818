-- What executions said their results are about: the newest statement of each object, and every statement.
-- A version is the log position with the place in the record below it, so that two statements of one
-- record have an order too.

CREATE TABLE noetl.business_object (
    tenant_id       TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    object_type     TEXT NOT NULL,
    object_id       TEXT NOT NULL,
    version         BIGINT NOT NULL,
    status          TEXT,
    attributes      JSONB NOT NULL,
    recorded_at     TIMESTAMPTZ NOT NULL,
    event_id        BIGINT NOT NULL,
    execution_id    BIGINT NOT NULL,
    command_id      TEXT NOT NULL,
    step            TEXT,
    visit           INTEGER,
    task            TEXT,
    reference       JSONB,
    PRIMARY KEY (tenant_id, organization_id, object_type, object_id)
) WITH (fillfactor = 70);
CREATE INDEX business_object_newest
    ON noetl.business_object (tenant_id, organization_id, version DESC);
CREATE INDEX business_object_type
    ON noetl.business_object (tenant_id, organization_id, object_type, version DESC);

CREATE TABLE noetl.business_object_history (
    LIKE noetl.business_object,
    PRIMARY KEY (tenant_id, organization_id, object_type, object_id, version)
);
CREATE INDEX business_object_history_execution
    ON noetl.business_object_history (execution_id, version DESC);
-- Append-only also for its owner, like the events it comes from.
REVOKE UPDATE ON noetl.business_object_history FROM CURRENT_USER;

-- The children of an execution.
CREATE INDEX execution_parent
    ON noetl.execution (tenant_id, organization_id, parent_execution_id, execution_id DESC)
    WHERE parent_execution_id IS NOT NULL;

DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['business_object', 'business_object_history']
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
