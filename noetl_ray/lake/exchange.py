"""DataFrames and the result tier: executors read and write it, the driver only sees names.

In: stored values, manifests and files become a DataFrame whose tasks fetch one object each. Out: a
DataFrame becomes Feather parts that its tasks write, in the order of its partitions, and a manifest
of them. Rows travel as Arrow and are never pickled; a part that is written twice has the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import UsageError
from noetl_ray.lake.sources import read_source, source_schema
from noetl_ray.lake.tier import Tier
from noetl_ray.results.table_parts import PartsManifest, TablePart, make_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noetl_ray.lake.sources import Source
    from noetl_ray.lake.tier import TierPlace

PART_BYTES = 64 << 20
"""A larger partition becomes several parts, so that a task holds no more of it."""
READ_ROWS = 10_000
PARTITIONS_MAX = 64
"""More would only make many small parts, and a manifest nobody wants to read."""


def frame_of(spark: Any, place: TierPlace, sources: list[Source]) -> Any:
    """Stored tables, one after the other, as one DataFrame; executors fetch them.

    Raises:
        UsageError: there is none, or their columns do not go together.
    """
    if not sources:
        msg = "an input names no data at all"
        raise UsageError(msg)
    told = [msgspec.json.encode(source).decode() for source in sources]
    schema = _schema_of(spark, place, told)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tier = Tier(place)
        for batch in batches:
            for one in batch.column(0).to_pylist():
                rows = fitted(read_source(tier, msgspec.json.decode(one)), schema)
                yield from rows.to_batches(max_chunksize=READ_ROWS)

    from pyspark.sql.pandas.types import from_arrow_schema

    return _as_frame(spark, told).mapInArrow(work, from_arrow_schema(schema))


def _schema_of(spark: Any, place: TierPlace, told: list[str]) -> pa.Schema:
    """The columns of all sources together, as Spark can hold them; looked at by executors."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tier = Tier(place)
        for batch in batches:
            found = [
                source_schema(tier, msgspec.json.decode(one)).serialize().to_pybytes()
                for one in batch.column(0).to_pylist()
            ]
            yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], ["schema"])

    rows = _as_frame(spark, told).mapInArrow(work, "schema binary").collect()
    schemas = [fitting(pa.ipc.read_schema(pa.py_buffer(bytes(row["schema"])))) for row in rows]
    try:
        return steady(pa.unify_schemas(schemas, promote_options="permissive"))
    except pa.ArrowInvalid as error:
        msg = f"the parts of an input do not have the same columns: {error}"
        raise UsageError(msg) from None
    except pa.ArrowTypeError as error:
        msg = f"a column of an input has several types: {error}"
        raise UsageError(msg) from None


def _as_frame(spark: Any, told: list[str]) -> Any:
    slices = max(1, min(len(told), PARTITIONS_MAX))
    rows = spark.sparkContext.parallelize([(one,) for one in told], slices)
    return spark.createDataFrame(rows, "source string")


def write_frame(
    frame: Any, place: TierPlace, partitions: int | None = None
) -> tuple[dict[str, Any], PartsManifest]:
    """Let executors write a DataFrame into the tier; its record and its manifest.

    The manifest is written last, by the driver: whoever is killed before leaves nothing with a
    name.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if len(set(frame.columns)) != len(frame.columns):
        msg = f"the columns of the result need names of their own: {', '.join(frame.columns)}"
        raise UsageError(msg)
    wanted = partitions or PARTITIONS_MAX
    # Fewer partitions by joining neighbours: no shuffle, and the order stays.
    merged = frame.coalesce(wanted) if frame.rdd.getNumPartitions() > wanted else frame
    schema = to_arrow_schema(frame.schema)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        written = [
            (context.partitionId(), ordinal, msgspec.json.encode(part).decode())
            for ordinal, part in enumerate(write_parts(Tier(place), schema, batches))
        ]
        columns = [list(column) for column in zip(*written, strict=True)] or [[], [], []]
        kinds = (pa.int32(), pa.int32(), pa.string())
        arrays = [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["partition", "ordinal", "part"])

    rows = merged.mapInArrow(work, "partition int, ordinal int, part string").collect()
    ordered = sorted((row["partition"], row["ordinal"], row["part"]) for row in rows)
    parts = [msgspec.json.decode(part, type=TablePart) for _, _, part in ordered]
    manifest = make_manifest(schema, parts)
    return Tier(place).put_manifest(manifest), manifest


def write_parts(
    tier: Tier, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[TablePart]:
    """Store batches as Feather parts of bounded size; a partition without rows gives none."""
    sink = pa.BufferOutputStream()
    writer: pa.RecordBatchFileWriter | None = None
    rows = 0

    def finish() -> TablePart:
        assert writer is not None
        writer.close()
        return tier.put_part(sink.getvalue().to_pybytes(), rows)

    options = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if writer is None:
            writer = pa.ipc.new_file(sink, schema, options=options)
        writer.write_batch(
            pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema).cast(schema)
        )
        rows += batch.num_rows
        if sink.tell() >= PART_BYTES:
            yield finish()
            sink, writer, rows = pa.BufferOutputStream(), None, 0
    if writer is not None:
        yield finish()


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with the columns of a schema, in its order; one it lacks is null."""
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.table(columns, schema=schema)


def fitting(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark can hold."""
    return pa.schema([pa.field(field.name, _fitting(field.type)) for field in schema])


def steady(schema: pa.Schema) -> pa.Schema:
    """A column of which only nulls are known is text."""
    return pa.schema(
        [
            pa.field(field.name, pa.string() if pa.types.is_null(field.type) else field.type)
            for field in schema
        ]
    )


def _fitting(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _fitting(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind) or types.is_time(kind):
        return pa.string()
    if (
        types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return pa.binary()
    if types.is_unsigned_integer(kind):
        return pa.int64() if kind.bit_width < 64 else pa.decimal128(20, 0)
    if types.is_float16(kind):
        return pa.float32()
    if types.is_timestamp(kind):
        # Spark knows no other unit; a time without a zone stays one.
        return pa.timestamp("us", tz=kind.tz)
    if types.is_date64(kind):
        return pa.date32()
    if types.is_large_list(kind) or types.is_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_fitting(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _fitting(field.type)) for field in kind])
    return kind
