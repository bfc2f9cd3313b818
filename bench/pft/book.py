"""The playbooks of the patient-flow test: rows one by one, frames as a whole, page by page.

Their text is put together here because six cursor steps differ in a few words only; ``text`` gives
what would otherwise be a file, and ``python -m bench.pft.book row`` prints it.
"""

from __future__ import annotations

import sys
import textwrap

from bench.pft.statements import (
    CLAIM_MDS,
    CLAIM_PATIENTS,
    KEEP_MDS_FRAME,
    KEEP_MDS_ROW,
    SEED,
    fill,
    keep_frame,
    keep_row,
)

PAGED = ("assessments", "conditions", "medications", "vital_signs")
DOMAINS = (*PAGED, "demographics")
STEPS = (*DOMAINS, "mds_details")

_HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pft_%(process)s, path: bench/pft_%(process)s}
workload:
  api_url: http://127.0.0.1:8099
  facilities: 1
  patients: 10
  max_rows: 50
  in_flight: 4
  row_concurrency: 8
  lease_seconds: 60
  max_attempts: 3
workflow:
  - step: prepare
    tool:
      kind: postgres
      auth: pg_local
      command: |
%(seed)s
    next:
      arcs:
        - step: assessments
          set: {ctx.facility: 1}
"""

_STEP = """
  - step: %(step)s
    loop:
      cursor:
        kind: postgres
        auth: pg_local
        claim: |
%(claim)s
      iterator: row
      spec:
        mode: cursor
        max_in_flight: "{{ workload.in_flight }}"
        frame:
          max_rows: "{{ workload.max_rows }}"
          process: %(process)s
          row_concurrency: "{{ workload.row_concurrency }}"
          lease_seconds: "{{ workload.lease_seconds }}"
          max_attempts: "{{ workload.max_attempts }}"
    tool:
      - name: fetch
        kind: http
        method: GET
        url: "{{ workload.api_url }}/api/v1/%(path)s"
        params: {%(params)s}
        spec:
          policy:
            rules:
              - when: "{{ output.status == 'error' and output.error.retryable }}"
                then: {do: retry, attempts: 8, backoff: exponential, delay: 0.2}
      - name: keep
        kind: postgres
        auth: pg_local
        command: |
%(keep)s%(policy)s
    next:
      arcs:
        - step: %(following)s
"""

_NEXT_PAGE = """
        spec:
          policy:
            rules:
              - when: "{{ output.status == 'ok' and fetch.data.paging.hasMore }}"
                then: {do: jump, to: fetch, set: {iter.page: "{{ fetch.data.paging.page + 1 }}"}}"""

_TAIL = """
  - step: facility_done
    tool: {kind: noop}
    next:
      arcs:
        - step: assessments
          when: "{{ ctx.facility < workload.facilities }}"
          set: {ctx.facility: "{{ ctx.facility + 1 }}"}
        - step: all_done
          when: "{{ ctx.facility >= workload.facilities }}"
  - step: all_done
    tool: {kind: noop}
"""

CONTINUATION = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pft_continuation, path: bench/pft_continuation}
workload: {api_url: "http://127.0.0.1:8099", patients: 10, max_rows: 50}
workflow:
  - step: first_pages
    tool:
      kind: postgres
      auth: pg_local
      command: |
        INSERT INTO pft_page_work (patient_id, page)
        SELECT n, 1 FROM generate_series(1, {{ workload.patients }}) n
    next: {arcs: [{step: pages}]}
  - step: pages
    desc: Each page that has a successor puts it into the queue this loop claims from.
    loop:
      cursor:
        kind: postgres
        auth: pg_local
        claim: |
          UPDATE pft_page_work SET state = 'claimed' WHERE (patient_id, page) IN (
            SELECT patient_id, page FROM pft_page_work WHERE state = 'new'
            ORDER BY page, patient_id LIMIT {{ __frame_max_rows }} FOR UPDATE SKIP LOCKED
          ) RETURNING patient_id, page
      iterator: row
      spec:
        mode: cursor
        max_in_flight: 1
        frame: {max_rows: "{{ workload.max_rows }}", row_concurrency: 8}
    tool:
      - name: fetch
        kind: http
        url: "{{ workload.api_url }}/api/v1/patient/assessments"
        params: {patientId: "{{ iter.row.patient_id }}", page: "{{ iter.row.page }}"}
      - name: keep
        kind: postgres
        auth: pg_local
        command: |
          WITH kept AS (
            INSERT INTO pft_page_seen (patient_id, page, payload)
            VALUES ({{ iter.row.patient_id }}, {{ iter.row.page }},
              '{{ fetch.data.data[0] | tojson | replace("'", "''") }}')
            ON CONFLICT DO NOTHING
          ), following AS (
            INSERT INTO pft_page_work (patient_id, page)
            SELECT {{ iter.row.patient_id }}, {{ iter.row.page }} + 1
            WHERE {{ fetch.data.paging.hasMore }} ON CONFLICT DO NOTHING
          )
          UPDATE pft_page_work SET state = 'done'
          WHERE patient_id = {{ iter.row.patient_id }} AND page = {{ iter.row.page }}
"""

_QUOTED = """'{{ %s | tojson | replace("'", "''") }}'"""
_IDS = "'{ {%% for r in iter.row_rows %%}{{ r.%s }}{{ ',' if not loop.last }}{%% endfor %%} }'"
_ID_LIST = "\"{%% for r in iter.row_rows %%}{{ r.%s }}{{ ',' if not loop.last }}{%% endfor %%}\""


def text(process: str) -> str:
    """The playbook that works rows off one by one (``row``) or a frame as a whole (``frame``)."""
    seed = fill(SEED, patients="{{ workload.patients }}", facilities="{{ workload.facilities }}")
    parts = [_HEAD % {"process": process, "seed": _indented(seed, 8)}]
    followed_by = dict(zip(STEPS, (*STEPS[1:], "facility_done"), strict=True))
    for step, following in followed_by.items():
        given = _row_step(step) if process == "row" else _frame_step(step)
        claim = CLAIM_MDS if step == "mds_details" else CLAIM_PATIENTS
        claim = fill(
            claim, domain=step, facility="{{ ctx.facility }}", limit="{{ __frame_max_rows }}"
        )
        given["claim"] = _indented(claim, 10)
        given["keep"] = _indented(given["keep"], 10)
        parts.append(
            _STEP
            % {"step": step, "process": process, "following": following, "policy": "", **given}
        )
    return "".join([*parts, _TAIL]).lstrip()


def _row_step(step: str) -> dict[str, str]:
    if step == "mds_details":
        keep = fill(
            KEEP_MDS_ROW,
            payload=_QUOTED % "fetch.data.rows[0].payload",
            id="'{{ iter.row.assessment_id }}'",
        )
        params = 'assessmentId: "{{ iter.row.assessment_id }}"'
        return {"path": "pft/mds/details", "params": params, "keep": keep}
    params = 'patientId: "{{ iter.row.patient_id }}"'
    paged = step in PAGED
    keep = fill(
        keep_row(step),
        domain=step,
        facility="{{ ctx.facility }}",
        patient_id="{{ iter.row.patient_id }}",
        id="{{ iter.row.id }}",
        page="{{ fetch.data.paging.page }}" if paged else "1",
        payload=_QUOTED % ("fetch.data.data[0]" if paged else "fetch.data"),
        more="{{ fetch.data.paging.hasMore }}" if paged else "false",
    )
    if not paged:
        return {"path": f"patient/{step}", "params": params, "keep": keep}
    params += ', page: "{{ iter.page | default(1) }}"'
    return {"path": f"patient/{step}", "params": params, "keep": keep, "policy": _NEXT_PAGE}


def _frame_step(step: str) -> dict[str, str]:
    rows = _QUOTED % "fetch.data.rows"
    if step == "mds_details":
        params = f"assessmentIds: {_ID_LIST % 'assessment_id'}"
        return {
            "path": "pft/mds/batch",
            "params": params,
            "keep": fill(KEEP_MDS_FRAME, rows=rows),
        }
    keep = fill(
        keep_frame(step), domain=step, facility="{{ ctx.facility }}", rows=rows, ids=_IDS % "id"
    )
    params = f"patientIds: {_ID_LIST % 'patient_id'}"
    return {"path": f"pft/batch/{step}", "params": params, "keep": keep}


def _indented(statement: str, by: int) -> str:
    return textwrap.indent(statement.strip("\n"), " " * by)


if __name__ == "__main__":
    print(text(sys.argv[1]))
