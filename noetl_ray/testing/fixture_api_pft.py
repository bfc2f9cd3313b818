"""Fixture endpoints of the patient-flow test: one record per page, sizes following from the id."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse

from noetl_ray.testing.fixture_api_state import FixtureState, seed_of

BATCH_MAX = 500
DATA_TYPES: dict[str, tuple[int, int]] = {
    "assessments": (2, 3),
    "conditions": (1, 3),
    "medications": (2, 2),
    "vital_signs": (1, 1),
}
"""Per data type: the fewest pages and how many page counts are possible."""

_FIRST = ("Ada", "Blaise", "Carl", "Dorothy", "Emmy", "Felix", "Grace", "Henri")
_LAST = ("Abel", "Banach", "Cantor", "Dirac", "Euler", "Fermat", "Galois", "Hilbert")

Number = Annotated[int, Query(ge=1)]
Patient = Annotated[str, Query(min_length=1)]


def router(state: FixtureState, *, rate_limit: int) -> APIRouter:
    """All endpoints of this module; all but the batch share one window."""
    routes = APIRouter(prefix="/api/v1")

    def admit() -> None:
        if rate_limit and not state.pft_window.admit(rate_limit)[0]:
            raise HTTPException(429, "Too Many Requests", {"Retry-After": "1"})

    for data_type in DATA_TYPES:
        _paged(routes, data_type, admit)
    _single(routes, admit)
    _batch(routes)
    return routes


def page_count(patient_id: str, data_type: str) -> int:
    """How many pages a patient has of a data type."""
    fewest, spread = DATA_TYPES[data_type]
    return fewest + seed_of(f"{patient_id}:{data_type}") % spread


def page_record(patient_id: str, data_type: str, page: int) -> dict[str, Any]:
    """The one record of a page."""
    seed = seed_of(f"{patient_id}:{data_type}:{page}")
    record: dict[str, Any] = {
        "id": f"{data_type[:4].upper()}-{patient_id}-p{page}-i0",
        "patientId": patient_id,
        "dataType": data_type,
        "value": seed % 100,
    }
    if data_type == "assessments":
        count = 5 + seed % 6
        record["mdsCount"] = count
        record["mdsAssessmentIds"] = [
            f"MDS-{patient_id}-p{page}-0-{number:02d}" for number in range(1, count + 1)
        ]
    return record


def demographics_of(patient_id: str) -> dict[str, Any]:
    """Who a patient is."""
    seed = seed_of(f"{patient_id}:demographics")
    return {
        "patientId": patient_id,
        "firstName": _FIRST[seed % len(_FIRST)],
        "lastName": _LAST[seed // 8 % len(_LAST)],
        "dob": f"{1930 + seed % 60}-{seed % 12 + 1:02d}-{seed % 28 + 1:02d}",
        "gender": ("female", "male")[seed % 2],
        "status": "active",
    }


def mds_document(assessment_id: str) -> dict[str, Any]:
    """The detail of one assessment: three sections of three questions."""
    sections = []
    for section in range(1, 4):
        questions = []
        for question in range(1, 4):
            key = f"S{section}Q{question}"
            value = str(seed_of(f"{assessment_id}:{key}") % 10)
            questions.append({"key": key, "responses": [{"responseValue": value}]})
        sections.append({"sectionId": f"S{section}", "questions": questions})
    return {"assessmentId": assessment_id, "status": "completed", "sections": sections}


def _paged(routes: APIRouter, data_type: str, admit: Any) -> None:
    @routes.get(f"/patient/{data_type}", name=f"patient_{data_type}")
    async def paged(
        patientId: Patient,
        page: Number = 1,
        pageSize: int = 1,
    ) -> JSONResponse:
        admit()
        pages = page_count(patientId, data_type)
        if page > pages:
            return JSONResponse({"error": "page not found"}, status_code=404)
        paging = {"hasMore": page < pages, "page": page, "pageSize": 1, "total": pages}
        return JSONResponse({"data": [page_record(patientId, data_type, page)], "paging": paging})


def _single(routes: APIRouter, admit: Any) -> None:
    @routes.get("/patient/demographics")
    async def demographics(patientId: Patient) -> JSONResponse:
        admit()
        return JSONResponse(demographics_of(patientId))

    @routes.get("/mds/assessment_ids")
    async def assessment_ids(patientId: Patient) -> JSONResponse:
        admit()
        count = 2 + seed_of(f"{patientId}:mds") % 4
        ids = [f"MDS-{patientId}-{number:03d}" for number in range(1, count + 1)]
        return JSONResponse({"patientId": patientId, "assessmentIds": ids, "count": count})

    @routes.get("/mds/assessment/{assessment_id}")
    async def assessment(assessment_id: str) -> JSONResponse:
        admit()
        return JSONResponse(mds_document(assessment_id))

    @routes.get("/pft/mds/details")
    async def details(assessmentId: str) -> JSONResponse:
        admit()
        wanted = assessmentId.strip()
        if not wanted or "," in wanted:
            raise HTTPException(400, "exactly one assessmentId is required")
        row = {"assessment_id": wanted, "payload": mds_document(wanted)}
        return JSONResponse({"rowCount": 1, "rows": [row]})


def _batch(routes: APIRouter) -> None:
    @routes.get("/pft/batch/{data_type}")
    async def batch(
        data_type: str,
        patientIds: str,
        pageSize: int = 1,
        patientsPerFacility: Number = 1000,
    ) -> JSONResponse:
        if data_type not in DATA_TYPES and data_type != "demographics":
            raise HTTPException(404, f"unknown data type {data_type}")
        patients = _listed(patientIds)
        if data_type == "demographics":
            people = [demographics_of(patient) for patient in patients]
            found = {"dataType": data_type, "patientCount": len(patients), "rowCount": len(people)}
            return JSONResponse(found | {"rows": people})
        rows = [
            {
                "facility_id": _facility(patient, patientsPerFacility),
                "patient_id": patient,
                "page": page,
                "payload": page_record(patient, data_type, page),
            }
            for patient in patients
            for page in range(1, page_count(patient, data_type) + 1)
        ]
        return JSONResponse(
            {
                "dataType": data_type,
                "patientCount": len(patients),
                "rowCount": len(rows),
                "rows": rows,
            }
        )

    @routes.get("/pft/mds/batch")
    async def mds_batch(assessmentIds: str) -> JSONResponse:
        rows = [
            {"assessment_id": each, "payload": mds_document(each)}
            for each in _listed(assessmentIds)
        ]
        return JSONResponse({"rowCount": len(rows), "rows": rows})


def _listed(text: str) -> list[str]:
    ids = [part.strip() for part in text.split(",") if part.strip()]
    if len(ids) > BATCH_MAX:
        raise HTTPException(400, f"at most {BATCH_MAX} ids")
    return ids


def _facility(patient_id: str, patients_per_facility: int) -> int:
    number = int(patient_id) if patient_id.isdigit() else 1
    return (max(number, 1) - 1) // patients_per_facility + 1
