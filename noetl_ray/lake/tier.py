"""The result tier as jobs reach it: blocking calls, from the driver and from executors alike.

Owns the way from settings that travel as JSON to stored results of one scope, read and written
where the work is. What a result's name means, who may read it and how bytes are made is the
result store's; the same code runs in workers.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl_ray.clock import SystemClock
from noetl_ray.config.convert import from_dict, to_dict
from noetl_ray.credentials.crypto import load_key
from noetl_ray.engine.refs import ref_record
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.content import put_payload
from noetl_ray.payloads.opening import open_objects
from noetl_ray.results.artifacts import Artifacts
from noetl_ray.results.codecs import MEDIA_FEATHER
from noetl_ray.results.redact import Redactor
from noetl_ray.results.store import ResultStore
from noetl_ray.results.table_parts import (
    MEDIA_PARTS,
    PartsManifest,
    TablePart,
    manifest_bytes,
    read_manifest,
)
from noetl_ray.scope import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    import pyarrow as pa

    from noetl_ray.config.settings import Settings
    from noetl_ray.payloads.port import ObjectStore

TierPlace = dict[str, Any]
"""``settings`` without addresses of servers, ``tenant`` and ``organization``."""


def tier_place(settings: Settings, scope: Scope) -> TierPlace:
    """Where results of a scope lie, for jobs."""
    kept = replace(
        settings,
        # The folder of a local store must be the same one in every process.
        data_dir=str(Path(settings.data_dir).expanduser().resolve()),
        event_store=replace(settings.event_store, url="", token=""),
        projection_stores=replace(settings.projection_stores, dsn=""),
        gateway=replace(settings.gateway, token=""),
    )
    return {
        "settings": to_dict(kept),
        "tenant": scope.tenant_id,
        "organization": scope.organization_id,
    }


@contextlib.asynccontextmanager
async def opened(place: TierPlace) -> AsyncIterator[tuple[ObjectStore, Placement]]:
    """The object store of a place and what its keys need, closed afterwards."""
    settings = from_dict(place["settings"])
    objects = store_of(settings)
    try:
        yield objects, placement_of(settings)
    finally:
        await objects.close()


def store_of(settings: Settings) -> ObjectStore:
    """The object store of settings, with the key that seals what holds credentials."""
    key = load_key(settings.credentials, Path(settings.data_dir))
    return open_objects(settings, SystemClock(), key)


def placement_of(settings: Settings) -> Placement:
    """The part of keys that names do not carry."""
    runtime = settings.runtime
    return Placement(
        env=runtime.environment,
        region=runtime.region,
        cell=runtime.cell,
        shard_count=runtime.shard_count,
    )


class Tier:
    """Stored results of one scope, by blocking calls."""

    def __init__(self, place: TierPlace) -> None:
        """Contact nothing yet."""
        self.settings = from_dict(place["settings"])
        self.scope = Scope(tenant_id=place["tenant"], organization_id=place["organization"])
        self._place = place

    def table(self, ref: Any) -> pa.Table:
        """A stored value as a table.

        Raises:
            ObjectMissingError: there is no such value in this scope.
            UsageError: it is no table, or that is no reference.
        """
        return self._with(lambda artifacts: artifacts.table(ref))

    def manifest(self, ref: Any) -> PartsManifest | None:
        """The manifest a reference names; None when it names something else."""
        if not (isinstance(ref, dict) and ref.get("meta", {}).get("content_type") == MEDIA_PARTS):
            return None
        data, _ = self._with(lambda artifacts: artifacts.bytes_of(ref))
        return read_manifest(data)

    def put_part(self, data: bytes, rows: int) -> TablePart:
        """Store one Feather piece of a table."""
        uri, sha256 = self._put(data, MEDIA_FEATHER)
        return TablePart(uri=uri, sha256=sha256, bytes=len(data), rows=rows)

    def put_manifest(self, manifest: PartsManifest) -> dict[str, Any]:
        """Store a manifest; gives the ``result_ref`` record of the whole table."""
        data = manifest_bytes(manifest)
        uri, sha256 = self._put(data, MEDIA_PARTS)
        record = ref_record(
            uri,
            store=store_of(self.settings).kind,
            size_bytes=sum(part.bytes for part in manifest.parts),
            sha256=sha256,
            content_type=MEDIA_PARTS,
            row_count=manifest.rows,
        )
        record["meta"]["parts"] = len(manifest.parts)
        return record

    def _put(self, data: bytes, media_type: str) -> tuple[str, str]:
        async def put() -> tuple[str, str]:
            async with opened(self._place) as (objects, placement):
                made = await put_payload(objects, placement, self.scope, data, media_type)
            return made.uri, made.sha256

        return asyncio.run(put())

    def _with(self, work: Callable[[Artifacts], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            async with opened(self._place) as (objects, placement):
                results = ResultStore(objects, placement)
                return await work(Artifacts(results, self.scope, lambda: Redactor(())))

        return asyncio.run(run())
