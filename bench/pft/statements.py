"""The SQL of the workload, once: the playbook fills it with templates, the bare script with values.

Placeholders are ``{name}``; a claim is an ordinary update of rows that nobody else has locked.
"""

from __future__ import annotations

TABLES = """
DROP TABLE IF EXISTS pft_work, pft_page, pft_mds, pft_page_work, pft_page_seen;
CREATE TABLE pft_work (
  id bigserial PRIMARY KEY, domain text NOT NULL, facility int NOT NULL,
  patient_id int NOT NULL, state text NOT NULL DEFAULT 'new'
);
CREATE INDEX pft_work_new ON pft_work (domain, facility, id) WHERE state = 'new';
CREATE TABLE pft_page (
  domain text, patient_id int, page int, payload jsonb NOT NULL, times int NOT NULL DEFAULT 1,
  PRIMARY KEY (domain, patient_id, page)
);
CREATE TABLE pft_mds (
  assessment_id text PRIMARY KEY, facility int NOT NULL, state text NOT NULL DEFAULT 'new',
  payload jsonb, times int NOT NULL DEFAULT 0
);
CREATE INDEX pft_mds_new ON pft_mds (facility, assessment_id) WHERE state = 'new';
CREATE TABLE pft_page_work (
  patient_id int, page int, state text NOT NULL DEFAULT 'new', PRIMARY KEY (patient_id, page)
);
CREATE TABLE pft_page_seen (
  patient_id int, page int, payload jsonb NOT NULL, PRIMARY KEY (patient_id, page)
);
"""

SEED = """
INSERT INTO pft_work (domain, facility, patient_id)
SELECT domain, (n - 1) / {patients} + 1, n
FROM generate_series(1, {facilities} * {patients}) n,
  unnest(ARRAY['assessments', 'conditions', 'medications', 'vital_signs', 'demographics']) domain
ORDER BY domain, n
"""

CLAIM_PATIENTS = """
UPDATE pft_work SET state = 'claimed' WHERE id IN (
  SELECT id FROM pft_work WHERE domain = '{domain}' AND facility = {facility} AND state = 'new'
  ORDER BY id LIMIT {limit} FOR UPDATE SKIP LOCKED
) RETURNING id, patient_id
"""

CLAIM_MDS = """
UPDATE pft_mds SET state = 'claimed' WHERE assessment_id IN (
  SELECT assessment_id FROM pft_mds WHERE facility = {facility} AND state = 'new'
  ORDER BY assessment_id LIMIT {limit} FOR UPDATE SKIP LOCKED
) RETURNING assessment_id
"""

_NEW_MDS = """, ids AS (
  INSERT INTO pft_mds (assessment_id, facility)
  SELECT jsonb_array_elements_text(payload -> 'mdsAssessmentIds'), {facility} FROM given
  ON CONFLICT DO NOTHING
)"""

_KEEP = """, kept AS (
  INSERT INTO pft_page (domain, patient_id, page, payload)
  SELECT '{domain}', patient_id, page, payload FROM given
  ON CONFLICT (domain, patient_id, page) DO UPDATE SET times = pft_page.times + 1
)"""

_ONE_PAGE = """
WITH given AS (
  SELECT {patient_id}::int AS patient_id, {page}::int AS page, {payload}::jsonb AS payload
)"""

_MANY_PAGES = """
WITH given AS (
  SELECT (r ->> 'patient_id')::int AS patient_id, (r ->> 'page')::int AS page,
    r -> 'payload' AS payload
  FROM jsonb_array_elements({rows}::jsonb) r
)"""

_MANY_PEOPLE = """
WITH given AS (
  SELECT (r ->> 'patientId')::int AS patient_id, 1 AS page, r AS payload
  FROM jsonb_array_elements({rows}::jsonb) r
)"""

_ROW_DONE = "\nUPDATE pft_work SET state = 'done' WHERE id = {id}::bigint AND NOT {more}::boolean"
_ROWS_DONE = "\nUPDATE pft_work SET state = 'done' WHERE id = ANY ({ids}::bigint[])"

KEEP_MDS_ROW = """
UPDATE pft_mds SET state = 'done', payload = {payload}::jsonb, times = times + 1
WHERE assessment_id = {id}::text
"""

KEEP_MDS_FRAME = """
UPDATE pft_mds SET state = 'done', payload = r -> 'payload', times = times + 1
FROM jsonb_array_elements({rows}::jsonb) r WHERE assessment_id = r ->> 'assessment_id'
"""


def keep_row(domain: str) -> str:
    """Keep one page of one patient; the row is done with its last page."""
    more = _NEW_MDS if domain == "assessments" else ""
    return _ONE_PAGE + _KEEP + more + _ROW_DONE


def keep_frame(domain: str) -> str:
    """Keep every page of a frame's patients."""
    given = _MANY_PEOPLE if domain == "demographics" else _MANY_PAGES
    more = _NEW_MDS if domain == "assessments" else ""
    return given + _KEEP + more + _ROWS_DONE


def fill(statement: str, **values: str) -> str:
    """A statement with its placeholders filled."""
    for name, value in values.items():
        statement = statement.replace("{" + name + "}", value)
    return statement
