"""Fixture endpoints for plain pagination, injected failures and the concurrency probe."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse

if TYPE_CHECKING:
    from noetl_ray.testing.fixture_api_state import FixtureState

ITEMS = 35
PAGE_SIZE = 10
TIMEOUT_S = 30.0

Number = Annotated[int, Query(ge=1)]


def router(state: FixtureState) -> APIRouter:
    """All endpoints of this module."""
    routes = APIRouter()
    _lists(routes)
    _failures(routes, state)
    _probe(routes, state)
    return routes


def page_ids(page: int, size: int, total: int = ITEMS) -> range:
    """The ids a page holds, from 1; empty past the end."""
    first = (page - 1) * size + 1
    return range(first, min(first + size, total + 1))


def _lists(routes: APIRouter) -> None:
    @routes.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @routes.get("/api/v1/assessments")
    async def assessments(page: Number = 1, pageSize: Number = PAGE_SIZE) -> JSONResponse:
        data = [
            {"id": i, "name": f"Assessment {i}", "score": 50 + i % 50}
            for i in page_ids(page, pageSize)
        ]
        paging = {
            "hasMore": page * pageSize < ITEMS,
            "page": page,
            "pageSize": pageSize,
            "total": ITEMS,
        }
        return JSONResponse({"data": data, "paging": paging})

    @routes.get("/api/v1/users")
    async def users(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Number = PAGE_SIZE
    ) -> JSONResponse:
        ids = range(offset + 1, min(offset + limit, ITEMS) + 1)
        found = [{"id": i, "username": f"user{i}", "email": f"user{i}@example.com"} for i in ids]
        more = offset + limit < ITEMS
        return JSONResponse(
            {"users": found, "has_more": more, "offset": offset, "limit": limit, "total": ITEMS}
        )

    @routes.get("/api/v1/events")
    async def events(cursor: str | None = None, limit: Number = PAGE_SIZE) -> JSONResponse:
        page = _cursor_page(cursor)
        found = [
            {
                "id": i,
                "type": "user_action",
                "timestamp": f"2024-01-{i % 28 + 1:02d}T12:00:00Z",
                "data": {"action": f"event_{i}"},
            }
            for i in page_ids(page, limit)
        ]
        following = base64.b64encode(str(page + 1).encode()).decode()
        return JSONResponse(
            {
                "events": found,
                "next_cursor": following if page * limit < ITEMS else None,
                "limit": limit,
            }
        )


def _failures(routes: APIRouter, state: FixtureState) -> None:
    @routes.get("/api/v1/flaky")
    async def flaky(page: Number = 1, fail_on: str = "2,3") -> JSONResponse:
        state.flaky_calls[page] += 1
        failing = {int(part) for part in fail_on.split(",") if part.strip().isdigit()}
        if page in failing and state.flaky_calls[page] == 1:
            raise HTTPException(500, "Simulated failure")
        return JSONResponse(_item_page(page))

    @routes.post("/api/v1/flaky/reset")
    async def flaky_reset() -> JSONResponse:
        state.flaky_calls.clear()
        return JSONResponse({"status": "reset", "message": "flaky counters are cleared"})

    @routes.get("/api/v1/errors")
    async def errors(
        page: Number = 1, error_type: str = "", retry_after: Annotated[int, Query(ge=0)] = 5
    ) -> JSONResponse:
        plain = {"500": 500, "auth": 401, "403": 403, "404": 404}
        if error_type in ("429", "503"):
            names = {"429": "Too Many Requests", "503": "Service Unavailable"}
            body = {"error": names[error_type], "message": f"try again in {retry_after} s"}
            headers = {"Retry-After": str(retry_after)}
            return JSONResponse(body, status_code=int(error_type), headers=headers)
        if error_type in plain:
            raise HTTPException(plain[error_type], f"Simulated {plain[error_type]}")
        if error_type == "timeout":
            await asyncio.sleep(TIMEOUT_S)
            return JSONResponse({"data": [], "simulated": "timeout"})
        return JSONResponse(_item_page(page))

    @routes.get("/api/v1/rate-limited")
    async def rate_limited(page: Number = 1, requests_per_second: Number = 2) -> JSONResponse:
        admitted, count = state.plain_window.admit(requests_per_second)
        seen = {"requests_in_window": count, "limit": requests_per_second}
        if not admitted:
            body = {"error": "rate limit exceeded", **seen}
            return JSONResponse(body, status_code=429, headers={"Retry-After": "1"})
        return JSONResponse({**_item_page(page, rate_limited=True), "rate_limit": seen})


def _probe(routes: APIRouter, state: FixtureState) -> None:
    probe = state.probe

    @routes.post("/api/v1/concurrency/reset")
    async def reset() -> JSONResponse:
        probe.reset()
        return JSONResponse({"status": "reset"})

    @routes.get("/api/v1/concurrency/probe")
    async def measure(
        delay_seconds: Annotated[float, Query(ge=0, le=300)] = 0.0, label: str = "probe"
    ) -> JSONResponse:
        began = time.monotonic()
        request_id, active = probe.enter(label, delay_seconds)
        await asyncio.sleep(delay_seconds)
        duration = time.monotonic() - began
        probe.leave(request_id, label, duration)
        return JSONResponse(
            {
                "request_id": request_id,
                "label": label,
                "delay_seconds": delay_seconds,
                "duration_seconds": duration,
                "active_at_start": active,
                **probe.stats(),
            }
        )

    @routes.get("/api/v1/concurrency/stats")
    async def stats() -> JSONResponse:
        return JSONResponse({**probe.stats(), "recent_events": list(probe.events)})


def _item_page(page: int, **more: Any) -> dict[str, Any]:
    data = [{"id": i, "value": f"item_{i}", **more} for i in page_ids(page, PAGE_SIZE)]
    paging = {"hasMore": page * PAGE_SIZE < ITEMS, "page": page, "pageSize": PAGE_SIZE}
    return {"data": data, "paging": paging}


def _cursor_page(cursor: str | None) -> int:
    try:
        return max(1, int(base64.b64decode(cursor or "", validate=True)))
    except (binascii.Error, ValueError):
        return 1
