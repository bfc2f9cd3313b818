"""Tables in parts: a manifest that names Feather payloads in their order, and reading it whole.

Whoever writes a table piece by piece, on several machines at once, stores each piece as a
content-addressed payload and the manifest last; so what has a manifest is complete, and equal
parts in equal order have equal manifests. Owns the manifest's form. Refuses parts that are not the
ones it names.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import StoreError
from noetl_ray.events.canonical import canonical_json
from noetl_ray.results.codecs import MEDIA_FEATHER, as_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

MEDIA_PARTS = "application/vnd.noetl.parts+json"


class TablePart(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of a table."""

    uri: str
    sha256: str
    bytes: int
    rows: int


class PartsManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A table in parts."""

    schema: list[dict[str, str]]
    """Names and types, for people."""
    arrow: str
    """The same for programs: an Arrow schema message in base64."""
    rows: int
    parts: list[TablePart]

    def arrow_schema(self) -> pa.Schema:
        """The schema of every part."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.arrow)))


def make_manifest(schema: pa.Schema, parts: Sequence[TablePart]) -> PartsManifest:
    """The manifest of parts in the order given."""
    return PartsManifest(
        schema=[{"name": field.name, "type": str(field.type)} for field in schema],
        arrow=base64.b64encode(schema.serialize()).decode(),
        rows=sum(part.rows for part in parts),
        parts=list(parts),
    )


def manifest_bytes(manifest: PartsManifest) -> bytes:
    """Its bytes: equal manifests, equal bytes."""
    return canonical_json(msgspec.to_builtins(manifest))


def read_manifest(data: bytes) -> PartsManifest:
    """The inverse.

    Raises:
        StoreError: the bytes are no manifest.
    """
    try:
        return msgspec.json.decode(data, type=PartsManifest)
    except msgspec.DecodeError as error:
        msg = f"not a manifest of a table: {error}"
        raise StoreError(msg) from None


async def parts_table(data: bytes, fetch: Callable[[str], Awaitable[bytes]]) -> pa.Table:
    """The whole table of a manifest; ``fetch`` gives the bytes of a part by its name."""
    manifest = read_manifest(data)
    tables = [as_table(MEDIA_FEATHER, await fetch(part.uri)) for part in manifest.parts]
    return pa.concat_tables(tables) if tables else manifest.arrow_schema().empty_table()


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """A table as a list of mappings."""
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="lossy")
    return rows
