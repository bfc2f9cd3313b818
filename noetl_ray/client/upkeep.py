"""The client's calls about the upkeep of the object store; ``Client`` has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from noetl_ray.client.transport import Transport

UPKEEP_S = 3_600.0
"""How long a sweep over all objects may take."""


class UpkeepCalls:
    """What can be asked about stored objects."""

    _transport: Transport

    async def tiers(self) -> dict[str, Any]:
        """What the result tiers of all hosts did: totals, shares, and each process."""
        found: dict[str, Any] = await self._transport.call("GET", "/api/internal/tiers")
        return found

    async def trace(self, execution_id: int, step: str) -> dict[str, Any]:
        """A step's newest result, linked back to all it was made from."""
        path = f"/api/executions/{execution_id}/trace/{quote(step, safe='')}"
        found: dict[str, Any] = await self._transport.call("GET", path)
        return found

    async def result_index(self, execution_id: int, **wanted: Any) -> dict[str, Any]:
        """Results of an execution: ``step``, ``task``, ``iteration``, ``status`` choose."""
        path = f"/api/executions/{execution_id}/result-index"
        found: dict[str, Any] = await self._transport.call("GET", path, params=wanted)
        return found

    async def collect_garbage(self, *, dry_run: bool = True) -> dict[str, Any]:
        """Look for objects nobody needs, and delete them unless it is a dry run."""
        found: dict[str, Any] = await self._transport.call(
            "POST",
            "/api/internal/result-tier/gc",
            body={"dry_run": dry_run},
            timeout_s=UPKEEP_S,
        )
        return found

    async def repair(
        self, execution_id: int | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Verify what the log names, of one execution or all, and rebuild what is bad."""
        body: dict[str, Any] = {"dry_run": dry_run}
        if execution_id is not None:
            body["execution_id"] = str(execution_id)
        found: dict[str, Any] = await self._transport.call(
            "POST", "/api/internal/result-tier/repair", body=body, timeout_s=UPKEEP_S
        )
        return found
