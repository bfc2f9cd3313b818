"""The workload with no runtime at all: the same requests and the same SQL in one asyncio script.

The reference of the benchmark. Claims, pages, frames and concurrency are those of the playbook;
nothing is recorded, nothing can be resumed and a crash loses what is claimed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import uvloop

from bench._child import answer
from bench.pft.book import PAGED, STEPS
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

TRIES = 8
CONNECTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is worked off, and how much at once."""

    process: str
    facilities: int
    patients: int
    max_rows: int
    in_flight: int
    row_concurrency: int


class Bare:
    """One run."""

    def __init__(self, api_url: str, size: Size, http: httpx.AsyncClient, pool: Any) -> None:
        self._api = f"{api_url}/api/v1"
        self._size = size
        self._http = http
        self._pool = pool
        self.rows = 0

    async def run(self) -> None:
        """Everything, facility by facility and step by step."""
        size = self._size
        seed = fill(SEED, patients=str(size.patients), facilities=str(size.facilities))
        await self._pool.execute(seed)
        for facility in range(1, size.facilities + 1):
            for step in STEPS:
                slots = [self._slot(step, facility) for _ in range(size.in_flight)]
                await asyncio.gather(*slots)

    async def _slot(self, step: str, facility: int) -> None:
        claim = fill(
            CLAIM_MDS if step == "mds_details" else CLAIM_PATIENTS,
            domain=step,
            facility=str(facility),
            limit=str(self._size.max_rows),
        )
        while True:
            rows = await self._pool.fetch(claim)
            if not rows:
                return
            self.rows += len(rows)
            if self._size.process == "frame":
                await self._frame(step, facility, rows)
                continue
            room = asyncio.Semaphore(self._size.row_concurrency)
            await asyncio.gather(*(self._one(room, step, facility, row) for row in rows))

    async def _one(self, room: asyncio.Semaphore, step: str, facility: int, row: Any) -> None:
        async with room:
            if step == "mds_details":
                await self._mds(row["assessment_id"])
            else:
                await self._patient(step, facility, row["id"], row["patient_id"])

    async def _mds(self, assessment_id: str) -> None:
        found = await self._get("pft/mds/details", assessmentId=assessment_id)
        statement = fill(KEEP_MDS_ROW, payload="$1", id="$2")
        await self._pool.execute(statement, json.dumps(found["rows"][0]["payload"]), assessment_id)

    async def _patient(self, step: str, facility: int, row_id: int, patient: int) -> None:
        statement = fill(
            keep_row(step),
            domain=step,
            facility=str(facility),
            patient_id="$1",
            page="$2",
            payload="$3",
            id="$4",
            more="$5",
        )
        page, more = 1, True
        while more:
            if step in PAGED:
                found = await self._get(f"patient/{step}", patientId=patient, page=page)
                payload, more = found["data"][0], found["paging"]["hasMore"]
            else:
                payload, more = await self._get(f"patient/{step}", patientId=patient), False
            kept = json.dumps(payload)
            await self._pool.execute(statement, patient, page, kept, row_id, more)
            page += 1

    async def _frame(self, step: str, facility: int, rows: list[Any]) -> None:
        if step == "mds_details":
            ids = ",".join(row["assessment_id"] for row in rows)
            found = await self._get("pft/mds/batch", assessmentIds=ids)
            await self._pool.execute(fill(KEEP_MDS_FRAME, rows="$1"), json.dumps(found["rows"]))
            return
        patients = ",".join(str(row["patient_id"]) for row in rows)
        found = await self._get(f"pft/batch/{step}", patientIds=patients)
        statement = fill(keep_frame(step), domain=step, facility=str(facility), rows="$1", ids="$2")
        row_ids = [row["id"] for row in rows]
        await self._pool.execute(statement, json.dumps(found["rows"]), row_ids)

    async def _get(self, path: str, **params: Any) -> Any:
        for tried in range(TRIES):
            response = await self._http.get(f"{self._api}/{path}", params=params)
            if response.status_code == httpx.codes.OK:
                return response.json()
            await asyncio.sleep(0.2 * 2**tried)
        msg = f"{path} answered {response.status_code}"
        raise RuntimeError(msg)


async def run(api_url: str, dsn: str, size: Size) -> dict[str, float]:
    """One run with its own connections; opening them is not counted."""
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with (
        httpx.AsyncClient(limits=limits, timeout=60.0) as http,
        asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool,
    ):
        bare = Bare(api_url, size, http, pool)
        began, cpu = time.perf_counter(), time.process_time()
        await bare.run()
        return {
            "seconds": time.perf_counter() - began,
            "cpu_s": time.process_time() - cpu,
            "rows": bare.rows,
        }


if __name__ == "__main__":
    answer(lambda asked: uvloop.run(run(sys.argv[1], sys.argv[2], Size(**asked))))
