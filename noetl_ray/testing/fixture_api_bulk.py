"""Fixture endpoints that answer with weight: heavy assessments and the reference chain."""

from __future__ import annotations

import hashlib
import string
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse

from noetl_ray.testing.fixture_api_plain import page_ids

if TYPE_CHECKING:
    from noetl_ray.testing.fixture_api_state import FixtureState

HEAVY_ITEMS = 100
CHAIN_ITEMS = 382
CHAIN_ITEMS_MAX = 20_000
CHAIN_PAGE_MAX = 200
CHAIN_PAYLOAD_KB_MAX = 256
Number = Annotated[int, Query(ge=1)]

ROOT_REF = "run-root-000001"
_CATEGORIES = ("clinical", "cognitive", "functional", "nutritional", "social")
_LETTERS = string.ascii_letters + string.digits


def router(state: FixtureState) -> APIRouter:
    """All endpoints of this module."""
    routes = APIRouter(prefix="/api/v1")
    _heavy(routes, state)
    _chain_items(routes)
    _chain_detail(routes)
    return routes


def _heavy(routes: APIRouter, state: FixtureState) -> None:
    @routes.get("/heavy")
    async def heavy(
        page: Number = 1,
        pageSize: Number = 10,
        payload_kb: Annotated[int, Query(ge=0, le=4096)] = 10,
    ) -> JSONResponse:
        items = [_heavy_item(state, i, payload_kb) for i in page_ids(page, pageSize, HEAVY_ITEMS)]
        paging = {
            "hasMore": page * pageSize < HEAVY_ITEMS,
            "page": page,
            "pageSize": pageSize,
            "total": HEAVY_ITEMS,
        }
        meta = {
            "payload_kb_per_item": payload_kb,
            "estimated_response_kb": payload_kb * len(items),
        }
        return JSONResponse({"data": items, "paging": paging, "meta": meta})

    @routes.get("/heavy/stats")
    async def heavy_stats() -> JSONResponse:
        return JSONResponse(
            {
                "total_items": HEAVY_ITEMS,
                "default_page_size": 10,
                "default_payload_kb": 10,
                "total_pages": HEAVY_ITEMS // 10,
                "estimated_total_kb": HEAVY_ITEMS * 10,
            }
        )


def _heavy_item(state: FixtureState, number: int, payload_kb: int) -> dict[str, Any]:
    chance = state.chance
    return {
        "id": number,
        "name": f"Heavy Assessment {number}",
        "score": 50 + number % 50,
        "category": chance.choice(_CATEGORIES),
        "metadata": {
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": f"2024-01-{number % 28 + 1:02d}T00:00:00Z",
            "version": 1 + number % 5,
            "tags": [f"tag-{(number + k) % 20}" for k in range(5)],
        },
        "description": f"Assessment {number} with a body of {payload_kb} KB",
        "payload": "".join(chance.choices(_LETTERS, k=payload_kb * 1024)),
    }


def _chain_items(routes: APIRouter) -> None:
    @routes.get("/reference-chain/items")
    async def items(
        page: int = 1,
        pageSize: int = 25,
        total: int = CHAIN_ITEMS,
        payload_kb: int = 1,
        ref_mode: str = "linked",
        chain_window: int = 2,
    ) -> JSONResponse:
        size = min(max(pageSize, 1), CHAIN_PAGE_MAX)
        count = min(max(total, 1), CHAIN_ITEMS_MAX)
        payload_kb = min(max(payload_kb, 0), CHAIN_PAYLOAD_KB_MAX)
        pages = -(-count // size)
        page = min(max(page, 1), pages)
        data = [
            {
                "record_id": i,
                "record_ref": f"record-{i:06d}",
                "prev_ref": f"record-{i - 1:06d}" if i > 1 else None,
                "batch": page,
                "payload": _hex_text(f"record:{i}", payload_kb),
            }
            for i in page_ids(page, size, count)
        ]
        more = page < pages
        chain = _page_chain(page, ref_mode, chain_window)
        refs = {
            "mode": ref_mode,
            "root_ref": ROOT_REF,
            "page_ref": f"page-{page:06d}",
            "prev_page_ref": f"page-{page - 1:06d}" if page > 1 else None,
            "next_page_ref": f"page-{page + 1:06d}" if more else None,
            "chain": chain,
            "chain_length": len(chain),
        }
        paging = {
            "hasMore": more,
            "page": page,
            "pageSize": size,
            "total": count,
            "nextPage": page + 1 if more else None,
        }
        meta = {"payload_kb": payload_kb, "pages": pages, "chain_window": chain_window}
        return JSONResponse({"data": data, "paging": paging, "refs": refs, "meta": meta})


def _chain_detail(routes: APIRouter) -> None:
    @routes.get("/reference-chain/detail/{record_id}")
    async def detail(
        record_id: int,
        payload_kb: int = 2,
        ref_mode: str = "linked",
        chain_window: int = 2,
        parent_ref: str | None = None,
    ) -> JSONResponse:
        if record_id <= 0:
            raise HTTPException(404, "record not found")
        if record_id > CHAIN_ITEMS_MAX:
            raise HTTPException(400, f"record_id is over {CHAIN_ITEMS_MAX}")
        payload_kb = min(max(payload_kb, 0), CHAIN_PAYLOAD_KB_MAX)
        own, parent = f"detail-{record_id:06d}", parent_ref or f"record-{record_id:06d}"
        refs = {
            "mode": ref_mode,
            "root_ref": ROOT_REF,
            "detail_ref": own,
            "parent_ref": parent,
            "chain": [ROOT_REF, parent, own][-max(chain_window, 1) :]
            if ref_mode == "windowed"
            else [parent, own],
        }
        summary = {
            "classification": f"class-{record_id % 7}",
            "score": 40 + record_id % 60,
            "payload_kb": payload_kb,
        }
        return JSONResponse(
            {
                "record_id": record_id,
                "status": "ok",
                "refs": refs,
                "summary": summary,
                "payload": _hex_text(f"detail:{record_id}", payload_kb),
            }
        )


def _page_chain(page: int, mode: str, window: int) -> list[str]:
    """Which pages a page refers to: all from 1, the last few, or itself and the one before."""
    spans = {"expanded": page, "windowed": max(window, 1)}
    first = max(1, page - spans.get(mode, 2) + 1)
    return [f"page-{number:06d}" for number in range(first, page + 1)]


def _hex_text(seed: str, kilobytes: int) -> str:
    """Text of an exact size that follows from its seed alone."""
    block = hashlib.sha256(seed.encode()).hexdigest()
    return block * (kilobytes * 1024 // len(block))
