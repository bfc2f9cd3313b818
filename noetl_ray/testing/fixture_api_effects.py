"""Fixture endpoints that count effects: how chaos tests see that one happened exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request
from fastapi.responses import JSONResponse

if TYPE_CHECKING:
    from noetl_ray.testing.fixture_api_state import FixtureState


def router(state: FixtureState) -> APIRouter:
    """The effect counter."""
    routes = APIRouter(prefix="/api/v1/effects")

    @routes.post("")
    async def effect(
        request: Request,
        body: Annotated[dict[str, Any] | None, Body()] = None,
        idempotency_key: Annotated[str | None, Header()] = None,
        delay_seconds: Annotated[float, Query(ge=0, le=300)] = 0.0,
    ) -> JSONResponse:
        key = str((body or {}).get("key") or idempotency_key or "")
        if not key:
            return JSONResponse({"detail": "a key is required"}, status_code=400)
        state.effects_begun[key] += 1
        if delay_seconds:
            await asyncio.sleep(delay_seconds)
        # Counted after the delay: a caller that dies while waiting has had no effect yet.
        if await request.is_disconnected():
            return JSONResponse({"detail": "the caller has left"}, status_code=499)
        state.effects[key] += 1
        state.effects_order.append(key)
        return JSONResponse({"key": key, "count": state.effects[key]})

    @routes.get("")
    async def effects() -> JSONResponse:
        counts = dict(sorted(state.effects.items()))
        return JSONResponse(
            {
                "counts": counts,
                "keys": len(counts),
                "total": sum(counts.values()),
                "duplicates": {key: count for key, count in counts.items() if count > 1},
                "begun": dict(sorted(state.effects_begun.items())),
            }
        )

    @routes.get("/order")
    async def order() -> JSONResponse:
        return JSONResponse({"order": state.effects_order})

    @routes.post("/reset")
    async def reset() -> JSONResponse:
        state.effects.clear()
        state.effects_begun.clear()
        state.effects_order.clear()
        return JSONResponse({"status": "reset"})

    return routes
