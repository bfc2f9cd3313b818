"""The outside world of the patient-flow test: its tables, and whether every row arrived (BAS-2)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import asyncpg

from bench.pft.book import DOMAINS, PAGED
from bench.pft.statements import TABLES
from noetl_ray.testing.fixture_api_pft import (
    demographics_of,
    mds_document,
    page_count,
    page_record,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the tables hold after a run."""

    rows: int
    pages: int
    mds: int
    by_domain: dict[str, int]
    repeated: int
    """Writes beyond the first of a page or a document: what crashes cost."""
    wrong: list[str]
    """What differs from what the API gives, a few of them."""


async def make_tables(dsn: str) -> None:
    """Empty tables."""
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute(TABLES)
    finally:
        await connection.close()


async def look(dsn: str, patients: int) -> Found:
    """Compare every row and every payload with what the API gives for these patients."""
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        pages = await connection.fetch(
            "SELECT domain, patient_id, page, payload, times FROM pft_page"
        )
        mds = await connection.fetch("SELECT assessment_id, state, payload, times FROM pft_mds")
        states = await connection.fetch(
            "SELECT domain, state, count(*) AS n FROM pft_work GROUP BY domain, state"
        )
    finally:
        await connection.close()
    wanted_pages = expected_pages(patients)
    wanted_mds = {
        each
        for (domain, _patient, _page), record in wanted_pages.items()
        if domain == "assessments"
        for each in record["mdsAssessmentIds"]
    }
    kept = {(r["domain"], r["patient_id"], r["page"]): json.loads(r["payload"]) for r in pages}
    documents = {r["assessment_id"]: r for r in mds}
    wrong = [f"page {k} is not as given" for k, v in wanted_pages.items() if kept.get(k) != v]
    wrong += [f"page {key} was never there" for key in kept.keys() - wanted_pages.keys()]
    wrong += [f"MDS {key} was never there" for key in documents.keys() - wanted_mds]
    wrong += [f"MDS {key} is missing or wrong" for key in wanted_mds if not _whole(documents, key)]
    by_domain = {r["domain"]: r["n"] for r in states if r["state"] == "done"}
    wrong += [
        f"{d}: {by_domain.get(d, 0)}/{patients}" for d in DOMAINS if by_domain.get(d) != patients
    ]
    return Found(
        rows=sum(by_domain.values()) + len(mds),
        pages=len(pages),
        mds=len(mds),
        by_domain=by_domain,
        repeated=sum(r["times"] - 1 for r in (*pages, *mds)),
        wrong=wrong[:10],
    )


def expected_pages(patients: int) -> dict[tuple[str, int, int], Any]:
    """Every page the API has for patients 1 to ``patients``."""
    found: dict[tuple[str, int, int], Any] = {}
    for patient in range(1, patients + 1):
        for domain in PAGED:
            for page in range(1, page_count(str(patient), domain) + 1):
                found[domain, patient, page] = page_record(str(patient), domain, page)
        found["demographics", patient, 1] = demographics_of(str(patient))
    return found


async def look_continued(dsn: str, patients: int) -> list[str]:
    """What the companion playbook left out or got wrong."""
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        rows = await connection.fetch("SELECT patient_id, page, payload FROM pft_page_seen")
    finally:
        await connection.close()
    kept = {("assessments", r["patient_id"], r["page"]): json.loads(r["payload"]) for r in rows}
    wanted = {k: v for k, v in expected_pages(patients).items() if k[0] == "assessments"}
    return [] if kept == wanted else [f"{len(kept)} pages of {len(wanted)}, or other payloads"]


def _whole(documents: dict[str, Any], key: str) -> bool:
    row = documents.get(key)
    if row is None or row["state"] != "done" or row["payload"] is None:
        return False
    return bool(json.loads(row["payload"]) == mds_document(key))
