"""The fixture API keeps the shapes and the checked totals that playbooks and benchmarks rest on."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from noetl_ray.testing.fixture_api import FixtureOptions, create_fixture_app
from noetl_ray.testing.fixture_api_patients import record_pages
from noetl_ray.testing.fixture_api_pft import DATA_TYPES, page_count, page_record


def client(**options):
    transport = httpx.ASGITransport(app=create_fixture_app(**options))
    return httpx.AsyncClient(transport=transport, base_url="http://fixture")


def test_checked_page_totals():
    def pages(patients, data_type):
        return sum(page_count(str(patient), data_type) for patient in range(1, patients + 1))

    assert [pages(10, data_type) for data_type in DATA_TYPES] == [31, 18, 23, 10]
    assert sum(pages(50, data_type) for data_type in DATA_TYPES) == 423


def test_checked_mds_totals():
    counts = [page_record(str(p), "assessments", 1)["mdsCount"] for p in range(1, 10_001)]
    seen = {upto: sum(counts[:upto]) for upto in (10, 20, 40, 100, 1000, 10_000)}
    assert seen == {10: 70, 20: 139, 40: 285, 100: 756, 1000: 7573, 10_000: 75_174}


@pytest.mark.asyncio
async def test_plain_pages():
    async with client() as http:
        assert (await http.get("/health")).json() == {"status": "ok"}
        last = (await http.get("/api/v1/assessments", params={"page": 4})).json()
        assert [item["id"] for item in last["data"]] == [31, 32, 33, 34, 35]
        assert last["data"][0] == {"id": 31, "name": "Assessment 31", "score": 81}
        assert last["paging"] == {"hasMore": False, "page": 4, "pageSize": 10, "total": 35}
        beyond = await http.get("/api/v1/assessments", params={"page": 9})
        assert beyond.status_code == 200
        assert beyond.json()["data"] == []
        users = (await http.get("/api/v1/users", params={"offset": 30})).json()
        assert len(users["users"]) == 5
        assert users["has_more"] is False
        assert (await http.get("/api/v1/assessments", params={"page": "x"})).status_code == 422


@pytest.mark.asyncio
async def test_cursor_walk_ends_and_bad_cursor_starts_over():
    async with client() as http:
        cursor, seen = "", []
        while cursor is not None:
            body = (await http.get("/api/v1/events", params={"cursor": cursor})).json()
            seen += [event["id"] for event in body["events"]]
            cursor = body["next_cursor"]
        assert seen == list(range(1, 36))
        bad = (await http.get("/api/v1/events", params={"cursor": "!!"})).json()
        assert bad["events"][0]["timestamp"] == "2024-01-02T12:00:00Z"


@pytest.mark.asyncio
async def test_flaky_fails_on_the_first_call_ever():
    async with client() as http:
        first = await http.get("/api/v1/flaky", params={"page": 2})
        assert (first.status_code, first.json()) == (500, {"detail": "Simulated failure"})
        assert (await http.get("/api/v1/flaky", params={"page": 2})).status_code == 200
        await http.get("/api/v1/flaky", params={"page": 3, "fail_on": ""})
        assert (await http.get("/api/v1/flaky", params={"page": 3})).status_code == 200
        await http.post("/api/v1/flaky/reset")
        assert (await http.get("/api/v1/flaky", params={"page": 2})).status_code == 500


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error_type", "status"),
    [("429", 429), ("503", 503), ("500", 500), ("auth", 401), ("403", 403), ("", 200)],
)
async def test_errors(error_type, status):
    async with client() as http:
        answer = await http.get("/api/v1/errors", params={"error_type": error_type})
        assert answer.status_code == status
        if status in (429, 503):
            assert answer.headers["retry-after"] == "5"
            assert "error" in answer.json()


@pytest.mark.asyncio
async def test_rate_limits_are_off_unless_asked_for():
    page = "/api/v1/patient/vital_signs?patientId=1"
    async with client() as http:
        assert [(await http.get(page)).status_code for _ in range(60)] == [200] * 60
    async with client(pft_rate_limit=2) as http:
        codes = [(await http.get(page)).status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        batch = "/api/v1/pft/batch/conditions?patientIds=1,2"
        assert (await http.get(batch)).status_code == 200
        plain = [(await http.get("/api/v1/rate-limited")).status_code for _ in range(3)]
        assert plain == [200, 200, 429]


@pytest.mark.asyncio
async def test_probe_sees_concurrency():
    async with client() as http:
        url = "/api/v1/concurrency/probe?delay_seconds=0.03"
        await asyncio.gather(*(http.get(url) for _ in range(4)))
        stats = (await http.get("/api/v1/concurrency/stats")).json()
        assert (stats["max_active"], stats["active"], stats["completed"]) == (4, 0, 4)
        assert {event["phase"] for event in stats["recent_events"]} == {"start", "end"}
        await http.post("/api/v1/concurrency/reset")
        assert (await http.get("/api/v1/concurrency/stats")).json()["started"] == 0


@pytest.mark.asyncio
async def test_heavy_and_chain():
    async with client() as http:
        heavy = (await http.get("/api/v1/heavy?page=10&payload_kb=2")).json()
        assert [len(item["payload"]) for item in heavy["data"]] == [2048] * 10
        assert heavy["paging"]["hasMore"] is False
        chain = (await http.get("/api/v1/reference-chain/items?page=99")).json()
        assert chain["paging"] == {
            "hasMore": False,
            "page": 16,
            "pageSize": 25,
            "total": 382,
            "nextPage": None,
        }
        assert chain["refs"]["chain"] == ["page-000015", "page-000016"]
        assert len(chain["data"]) == 7
        expanded = (await http.get("/api/v1/reference-chain/items?page=5&ref_mode=expanded")).json()
        assert expanded["refs"]["chain_length"] == 5
        detail = (await http.get("/api/v1/reference-chain/detail/9")).json()
        assert detail["summary"] == {"classification": "class-2", "score": 49, "payload_kb": 2}
        assert (await http.get("/api/v1/reference-chain/detail/0")).status_code == 404
        assert (await http.get("/api/v1/reference-chain/detail/20001")).status_code == 400


@pytest.mark.asyncio
async def test_patient_records():
    async with client(records_min_delay=0.0, records_max_delay=0.0) as http:
        url = "/api/v1/patient-records?patientId=P1&payload_kb=5"
        pages = record_pages("P1")
        first = (await http.get(url)).json()
        assert first["total"] == pages * 10
        assert [link["relation"] for link in first["link"]] == ["self", "next"]
        assert first["entry"][0]["resource"]["id"] == "P1-p1-e0"
        assert (await http.get(f"{url}&page={pages + 1}")).status_code == 404
        codes = [(await http.get(f"{url}&rate_limit=1")).status_code for _ in range(2)]
        assert codes == [200, 429]


@pytest.mark.asyncio
async def test_pft_details_take_exactly_one_id():
    async with client() as http:
        base = "/api/v1/pft/mds/details?assessmentId="
        body = (await http.get(base + "MDS-1-p1-0-01")).json()
        sections = body["rows"][0]["payload"]["sections"]
        assert [len(section["questions"]) for section in sections] == [3, 3, 3]
        assert (await http.get(base + "a,b")).status_code == 400
        assert (await http.get(base + "%20")).status_code == 400
        past = await http.get("/api/v1/patient/vital_signs?patientId=1&page=2")
        assert (past.status_code, past.json()) == (404, {"error": "page not found"})
        ids = (await http.get("/api/v1/mds/assessment_ids?patientId=7")).json()
        assert ids["count"] == len(ids["assessmentIds"])


@pytest.mark.asyncio
async def test_effects_count_per_key():
    async with client() as http:
        await http.post("/api/v1/effects", json={"key": "a"})
        await http.post("/api/v1/effects", headers={"Idempotency-Key": "b"})
        again = await http.post("/api/v1/effects?delay_seconds=0.01", json={"key": "a"})
        assert again.json() == {"key": "a", "count": 2}
        seen = (await http.get("/api/v1/effects")).json()
        assert seen == {
            "counts": {"a": 2, "b": 1},
            "keys": 2,
            "total": 3,
            "duplicates": {"a": 2},
            "begun": {"a": 2, "b": 1},
        }
        assert (await http.post("/api/v1/effects")).status_code == 400
        await http.post("/api/v1/effects/reset")
        assert (await http.get("/api/v1/effects")).json()["total"] == 0


def test_options_from_environment():
    environment = {"PFT_RATE_LIMIT": "50", "PATIENT_RECORDS_MIN_DELAY": "0.5", "OTHER": "x"}
    options = FixtureOptions.from_environment(environment, latency_ms=1.0)
    assert (options.pft_rate_limit, options.records_min_delay, options.latency_ms) == (50, 0.5, 1.0)
