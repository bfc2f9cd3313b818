"""Fixture endpoint of slow, FHIR-like patient records: rate limit, then a delay, then a bundle."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse

from noetl_ray.testing.fixture_api_state import FixtureState, seed_of

Number = Annotated[int, Query(ge=1)]

_PATH = "/api/v1/patient-records"


def router(
    state: FixtureState,
    *,
    delay_range_s: tuple[float, float],
    pages_range: tuple[int, int],
    payload_kb: int,
    rate_limit: int,
) -> APIRouter:
    """The one endpoint, with the defaults a caller may override per request."""
    routes = APIRouter()
    default_kb, default_limit = payload_kb, rate_limit

    @routes.get(_PATH)
    async def patient_records(
        patientId: Annotated[str, Query(min_length=1)],
        page: Number = 1,
        pageSize: Number = 10,
        min_delay: Annotated[float | None, Query(ge=0, le=300)] = None,
        max_delay: Annotated[float | None, Query(ge=0, le=300)] = None,
        payload_kb: Annotated[int | None, Query(ge=0, le=4096)] = None,
        rate_limit: Annotated[int | None, Query(ge=0)] = None,
    ) -> JSONResponse:
        limit = default_limit if rate_limit is None else rate_limit
        if limit and not state.records_window.admit(limit)[0]:
            body = {"error": "rate limit exceeded", "message": f"at most {limit} per second"}
            return JSONResponse(body, status_code=429, headers={"Retry-After": "1"})
        shortest = delay_range_s[0] if min_delay is None else min_delay
        longest = delay_range_s[1] if max_delay is None else max_delay
        delay_s = state.chance.uniform(shortest, max(shortest, longest))
        await asyncio.sleep(delay_s)
        pages = record_pages(patientId, pages_range)
        if page > pages:
            raise HTTPException(404, f"patient {patientId} has {pages} pages")
        size_kb = default_kb if payload_kb is None else payload_kb
        return JSONResponse(_bundle(patientId, page, pageSize, pages, size_kb, delay_s))

    return routes


def record_pages(patient_id: str, pages_range: tuple[int, int] = (2, 5)) -> int:
    """How many pages of records a patient has."""
    fewest, most = pages_range
    return fewest + seed_of(patient_id) % (most - fewest + 1)


def _bundle(
    patient_id: str, page: int, size: int, pages: int, size_kb: int, delay_s: float
) -> dict[str, Any]:
    here = f"{_PATH}?patientId={patient_id}&pageSize={size}"
    links = [{"relation": "self", "url": f"{here}&page={page}"}]
    if page < pages:
        links.append({"relation": "next", "url": f"{here}&page={page + 1}"})
    padding = "x" * (size_kb * 1024 // size)
    return {
        "resourceType": "Bundle",
        "type": "searchset",
        "total": pages * size,
        "link": links,
        "entry": [_entry(patient_id, page, number, padding) for number in range(size)],
        "meta": {
            "patientId": patient_id,
            "page": page,
            "pageSize": size,
            "totalPages": pages,
            "delaySeconds": round(delay_s, 3),
            "estimatedResponseKB": size_kb,
        },
    }


def _entry(patient_id: str, page: int, number: int, padding: str) -> dict[str, Any]:
    name = f"{patient_id}-p{page}-e{number}"
    seed = seed_of(name)
    resource = {
        "resourceType": "MedicationStatement",
        "id": name,
        "status": ("active", "completed", "stopped")[seed % 3],
        "subject": {"reference": f"Patient/{patient_id}"},
        "medicationCodeableConcept": {"text": f"medication-{seed % 500}"},
        "effectiveDateTime": f"2024-{seed % 12 + 1:02d}-{seed % 28 + 1:02d}",
        "dosage": [{"sequence": 1, "text": f"{seed % 4 + 1} per day"}],
        "_payload": padding,
    }
    return {"fullUrl": f"urn:noetl:MedicationStatement/{name}", "resource": resource}
