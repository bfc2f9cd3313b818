"""Questions to the lake in SQL: the same views on DuckDB in this process and on Spark.

Owns the views. A view shows only files that commits name, and summaries with one row per key,
compacted or not. ``tenant`` and ``day`` are columns of every view. Refuses to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import pyarrow as pa

from noetl_ray.errors import UsageError
from noetl_ray.lake.commits import Part, Snapshot, read_snapshot
from noetl_ray.lake.files import Files
from noetl_ray.lake.parts import read_part
from noetl_ray.lake.schemas import TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.lake.files import Place

ROWS_MAX = 10_000
_PARTITION = ("tenant", "day")


def open_views(files: Files, snapshot: Snapshot | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory with one view per table of the lake.

    Everything outside those views is closed to it: no files, no network, no settings.
    """
    held = snapshot or read_snapshot(files)
    database = duckdb.connect(":memory:")
    local = files.place["url"].startswith("file:")
    if not local:
        database.register_filesystem(files.filesystem())
    database.execute("CREATE MACRO unix_millis(moment) AS epoch_ms(moment)")
    allowed: list[str] = []
    for table in TABLES.values():
        paths = [_path(files, part.key, local) for part in held.of(table.name)]
        allowed += paths
        database.execute(_view(table, paths))
    if local:
        # The files of the lake and nothing else of the machine.
        database.execute("SET allowed_paths = $1", [allowed])
        database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database


def ask(files: Files, sql: str, *, rows_max: int = ROWS_MAX) -> pa.Table:
    """The answer to one question, at most so many rows of it.

    Raises:
        UsageError: the SQL cannot be answered.
    """
    database = open_views(files)
    try:
        # As a part of a larger question it can only be a query.
        found = database.sql(f"SELECT * FROM ({sql.strip().rstrip(';')}) LIMIT {rows_max + 1}")
        return found.to_arrow_table()
    except duckdb.Error as error:
        msg = f"the lake cannot answer that: {' '.join(str(error).split())[:500]}"
        raise UsageError(msg) from None
    finally:
        database.close()


def spark_views(spark: Any, place: Place) -> None:
    """Make the same views on a session; executors read the files themselves."""
    snapshot = read_snapshot(Files(place))
    for name in TABLES:
        table_view(spark, place, name, snapshot).createOrReplaceTempView(name)


def table_view(spark: Any, place: Place, name: str, snapshot: Snapshot | None = None) -> Any:
    """One table of the lake as a DataFrame, summaries with one row per key.

    Raises:
        UsageError: there is no such table.
    """
    table = TABLES.get(name)
    if table is None:
        msg = f"the lake has no table {name!r}; it has {', '.join(TABLES)}"
        raise UsageError(msg)
    held = snapshot or read_snapshot(Files(place))
    raw = spark_table(spark, place, table, held.of(name))
    raw.createOrReplaceTempView(f"{name}_raw")
    return spark.sql(_select(table, f"{name}_raw"))


def spark_table(
    spark: Any, place: Place, table: Table, parts: list[Part], columns: list[str] | None = None
) -> Any:
    """Files of one table as a DataFrame, one task per file or so, with tenant and day."""
    names = columns or table.schema.names
    schema = pa.schema(
        [table.schema.field(name) for name in names] + [(name, pa.string()) for name in _PARTITION]
    )

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = Files(place)
        for batch in batches:
            for told in batch.column(0).to_pylist():
                part = msgspec.json.decode(told, type=Part)
                rows = read_part(files, part.key, names).select(names)
                for name, value in (("tenant", part.tenant), ("day", part.day)):
                    rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
                yield from rows.cast(schema).to_batches(max_chunksize=10_000)

    from pyspark.sql.pandas.types import from_arrow_schema

    told = [(msgspec.json.encode(part).decode(),) for part in parts]
    slices = max(1, min(len(told), spark.sparkContext.defaultParallelism * 4))
    source = spark.createDataFrame(spark.sparkContext.parallelize(told, slices), "part string")
    return source.mapInArrow(work, from_arrow_schema(schema))


def run_sql(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The job: one question asked on Spark; the answer's rows as JSON, bounded."""
    spark_views(spark, arguments["lake"])
    limit = int(arguments.get("rows_max") or ROWS_MAX)
    rows = spark.sql(arguments["sql"].strip().rstrip(";")).limit(limit + 1).toPandas()
    return {
        "columns": list(rows.columns),
        "rows": msgspec.json.decode(rows.to_json(orient="values", date_format="iso")),
    }


def _path(files: Files, key: str, local: bool) -> str:
    return files.path(key) if local else f"s3://{files.path(key)}"


def _view(table: Table, paths: list[str]) -> str:
    if not paths:
        columns = ", ".join(
            f"CAST(NULL AS {_SQL_TYPES[str(column.type)]}) AS {column.name}"
            for column in table.schema
        )
        source = f"(SELECT {columns}, NULL::VARCHAR AS tenant, NULL::VARCHAR AS day WHERE false)"
    else:
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        hive = "hive_partitioning = true, hive_types = {'tenant': VARCHAR, 'day': VARCHAR}"
        source = f"read_parquet([{listed}], {hive})"
    return f"CREATE VIEW {table.name} AS {_select(table, source)}"


def _select(table: Table, source: str) -> str:
    if not table.is_summary:
        return f"SELECT * FROM {source}"
    keys = ", ".join([*table.keys, *_PARTITION])
    merged = ", ".join(f"{merge}({name}) AS {name}" for name, merge in table.merges.items())
    return f"SELECT {keys}, {merged} FROM {source} GROUP BY {keys}"


_SQL_TYPES = {
    "int32": "INTEGER",
    "int64": "BIGINT",
    "string": "VARCHAR",
    "binary": "BLOB",
    "bool": "BOOLEAN",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
}
