"""Bytes of results: canonical JSON and Arrow Feather, deterministic (TIER-2, TIER-3, SER-3).

Feather here is the Arrow IPC file format without compression, so a reader maps it and copies
nothing. Only values that come back equal are written as Feather; the rule is :func:`table_shape`.
Nothing is ever pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import StoreError, UsageError
from noetl_ray.events.canonical import canonical_json, digest

if TYPE_CHECKING:
    from noetl_ray.payloads.shared import Data

MEDIA_JSON = "application/json"
MEDIA_FEATHER = "application/vnd.apache.arrow.file"
EXTENSIONS = {MEDIA_JSON: "json", MEDIA_FEATHER: "feather"}

ENVELOPE_KEY = b"noetl.envelope"
"""Schema metadata that holds the mapping round the rows, as canonical JSON."""
ENVELOPE_BYTES_MAX = 65_536
"""A larger mapping is not an envelope round rows; it goes to JSON whole."""
ROWS_KEY = "rows"
BATCH_ROWS = 65_536
_BLOCK_ROWS = 1_024
"""So many rows at a time stay in the processor's cache from their cells to themselves."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_ARROW_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """A value that is a table: its rows, their schema, and the mapping they came in."""

    rows: list[dict[str, Any]]
    schema: pa.Schema
    envelope: bytes | None
    cells: list[list[Any]] = field(repr=False)
    """The same by column, in the schema's order."""

    @property
    def schema_digest(self) -> str:
        """SHA-256 over column names and types, independent of Arrow's own schema bytes."""
        return digest([[column.name, str(column.type)] for column in self.schema])


def table_shape(value: Any) -> TableShape | None:
    """Say whether a value is tabular; None sends it to JSON.

    Tabular is a non-empty list of mappings with the same columns, each column of one type among
    bool, 64-bit int, float and text, with or without None; or a mapping whose ``rows`` is such a
    list.
    """
    envelope: bytes | None = None
    rows = value
    if isinstance(value, dict):
        rows = value.get(ROWS_KEY)
        if not isinstance(rows, list) or not rows:
            return None
        envelope = canonical_json({key: item for key, item in value.items() if key != ROWS_KEY})
        if len(envelope) > ENVELOPE_BYTES_MAX:
            return None
    if not isinstance(rows, list) or not rows:
        return None
    columns = _columns(rows)
    if columns is None:
        return None
    fields = []
    for name, (cells, kinds) in columns.items():
        arrow_type = _column_type(cells, kinds)
        if arrow_type is None:
            return None
        fields.append(pa.field(name, arrow_type))
    return TableShape(
        rows=rows,
        schema=pa.schema(fields),
        envelope=envelope,
        cells=[cells for cells, _ in columns.values()],
    )


def encode_feather(shape: TableShape) -> bytes:
    """The Arrow IPC file of a table: same rows, same bytes."""
    schema = shape.schema
    if shape.envelope is not None:
        schema = schema.with_metadata({ENVELOPE_KEY: shape.envelope})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        # Batches bound the memory used beside the rows, and keep text offsets within 32 bits.
        for at in range(0, len(shape.rows), BATCH_ROWS):
            arrays = [
                pa.array(cells[at : at + BATCH_ROWS], type=column.type)
                for column, cells in zip(schema, shape.cells, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def decode_result(media_type: str, data: Data) -> Any:
    """The value that was stored.

    Raises:
        StoreError: the bytes are not of this media type.
        UsageError: the media type is not one of ours.
    """
    if media_type == MEDIA_JSON:
        return _decode_json(data)
    table = as_table(media_type, data)
    names = table.column_names
    rows: list[dict[str, Any]] = []
    for batch in table.to_batches(max_chunksize=_BLOCK_ROWS):
        cells = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        # No step of the interpreter for each row: that took longer than to make the row.
        rows.extend(map(dict, map(zip, repeat(names), cells)))
    envelope = (table.schema.metadata or {}).get(ENVELOPE_KEY)
    if envelope is None:
        return rows
    return {**_decode_json(envelope), ROWS_KEY: rows}


def as_table(media_type: str, data: Data) -> pa.Table:
    """Stored bytes as a table, without copying when they are Feather.

    Raises:
        StoreError: the bytes are not of this media type.
        UsageError: the value is not a table, or the media type not one of ours.
    """
    if media_type == MEDIA_JSON:
        return table_of(_decode_json(data))
    if media_type != MEDIA_FEATHER:
        msg = f"{media_type!r} is not a media type results are stored in"
        raise UsageError(msg)
    try:
        return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data))).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"not an Arrow file: {error}"
        raise StoreError(msg) from None


def table_from_path(path: str) -> pa.Table:
    """Map a Feather file; its columns point into the map.

    Raises:
        StoreError: there is no such file or it is not Feather.
    """
    try:
        return pa.ipc.open_file(pa.memory_map(path, "r")).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"cannot map as an Arrow file: {error}"
        raise StoreError(msg) from None


def table_of(value: Any) -> pa.Table:
    """A value in memory as a table.

    Raises:
        UsageError: it is not a list of mappings, nor a mapping with such ``rows``.
    """
    rows = value.get(ROWS_KEY) if isinstance(value, dict) else value
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        msg = "the result is not a table: it is no list of mappings"
        raise UsageError(msg)
    try:
        return pa.Table.from_pylist(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        msg = f"the result is not a table: {error}"
        raise UsageError(msg) from None


def _columns(rows: list[Any]) -> dict[str, tuple[list[Any], set[type]]] | None:
    """The cells of each column and their types; None when these are not mappings of equal keys.

    In blocks and in C: rows are many and tables are what is large.
    """
    first = rows[0]
    if type(first) is not dict or not first:
        return None
    columns: dict[str, tuple[list[Any], set[type]]] = {name: ([], set()) for name in first}
    for at in range(0, len(rows), _BLOCK_ROWS):
        block = rows[at : at + _BLOCK_ROWS]
        # Rows of one length that have all the columns of the first have no others.
        if set(map(type, block)) != {dict} or set(map(len, block)) != {len(first)}:
            return None
        for name, (cells, kinds) in columns.items():
            try:
                found = list(map(itemgetter(name), block))
            except KeyError:
                return None
            kinds.update(map(type, found))
            cells.extend(found)
    return columns


def _column_type(cells: list[Any], kinds: set[type]) -> pa.DataType | None:
    kinds.discard(type(None))
    if not kinds:
        return pa.null()
    if len(kinds) > 1:
        return None
    kind = kinds.pop()
    if kind is int:
        # Neither None nor 0 is out of range.
        lowest = min(filter(None, cells), default=0)
        if lowest < _INT64_MIN or max(filter(None, cells), default=0) > _INT64_MAX:
            return None
    return _ARROW_TYPES.get(kind)


def _decode_json(data: Data) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"not JSON: {error}"
        raise StoreError(msg) from None
