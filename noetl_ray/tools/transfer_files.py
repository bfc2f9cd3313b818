"""Files that tasks may touch, only below one folder of the operator, read and written in chunks.

A file is written beside its place and moved there when it is whole, so that a failed or repeated
transfer never leaves half of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import csv, ipc, parquet

from noetl_ray.errors import ToolError
from noetl_ray.tools.transfer_arrow import conform, json_rows, steady, table_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

FORMATS = {
    ".parquet": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_CSV_BLOCK_BYTES = 1 << 20
_T = TypeVar("_T")


def path_below(root: Path | None, name: str, what: str) -> Path:
    """The path of a file below the root, links followed.

    Args:
        root: The folder; None refuses every file.
        name: A relative path, ``file://`` in front allowed.
        what: What the file is, to start the message with.

    Raises:
        ToolError: of kind ``schema`` when the path leads elsewhere.
    """
    short = name.removeprefix("file://")
    if root is None:
        msg = f"{what} {short!r} refused: no data folder is set up for tasks"
        raise ToolError(msg, "schema")
    base = root.resolve()
    path = (base / short).resolve()
    if not short or Path(short).is_absolute() or path == base or not path.is_relative_to(base):
        msg = f"{what} {short!r} must be a relative path below the data folder"
        raise ToolError(msg, "schema")
    return path


def format_of(path: Path, given: Any) -> str:
    """The format a task names, else the one of the file's ending."""
    found = str(given).lower() if given else FORMATS.get(path.suffix.lower(), "")
    if found not in set(FORMATS.values()):
        known = ", ".join(dict.fromkeys(FORMATS.values()))
        msg = f"the format of {path.name!r} is not known; give `format`: {known}"
        raise ToolError(msg, "schema")
    return found


async def read_file(path: Path, form: str, chunk_size: int) -> AsyncIterator[pa.Table]:
    """The rows of a file, at most ``chunk_size`` at a time."""
    chunks = _READERS[form](path, chunk_size)
    try:
        while True:
            try:
                table = await in_thread(next, chunks, None)
            except FileNotFoundError:
                msg = f"there is no file {path.name!r} in the data folder"
                raise ToolError(msg, "not_found") from None
            except (OSError, pa.ArrowException, msgspec.DecodeError, UnicodeDecodeError) as error:
                reason = str(error).partition("\n")[0]
                msg = f"file {path.name!r} cannot be read as {form}: {reason}"
                raise ToolError(msg, "parse") from None
            if table is None:
                return
            yield table
    finally:
        await in_thread(chunks.close)


class FileTarget:
    """Writes chunks to one file; its rows are there after ``finish`` and not before."""

    def __init__(self, path: Path, form: str) -> None:
        self._path = path
        self._part: Path | None = None
        self._form = form
        self._schema: pa.Schema | None = None
        self._file: Any = None
        self._writer: Any = None

    async def write(self, table: pa.Table) -> int:
        """Add a chunk."""
        await in_thread(self._write, table)
        return int(table.num_rows)

    async def finish(self) -> None:
        """Put the whole file in its place."""
        await in_thread(self._finish)

    async def abandon(self) -> None:
        """Forget what was written."""
        await in_thread(self._abandon)

    def _write(self, table: pa.Table) -> None:
        try:
            if self._schema is None:
                self._open(steady(table.schema))
            assert self._schema is not None
            table = conform(table, self._schema)
            if self._form == "jsonl":
                encode = msgspec.json.Encoder().encode
                self._file.writelines(encode(row) + b"\n" for row in json_rows(table))
            else:
                self._writer.write_table(table)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0]
            msg = f"file {self._path.name!r} cannot be written as {self._form}: {reason}"
            raise ToolError(msg, "schema") from None

    def _open(self, schema: pa.Schema) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115
            prefix=f".{self._path.name}.", suffix=".part", dir=self._path.parent, delete=False
        )
        self._part = Path(self._file.name)
        self._part.chmod(0o644)
        self._schema = schema
        match self._form:
            case "parquet":
                self._writer = parquet.ParquetWriter(self._file, schema)
            case "feather":
                self._writer = ipc.new_file(self._file, schema)
            case "csv":
                self._writer = csv.CSVWriter(self._file, schema)
            case _:
                self._writer = None

    def _finish(self) -> None:
        if self._schema is None:
            msg = "the source has no rows and so no columns to write a file with"
            if self._form not in ("csv", "jsonl"):
                raise ToolError(msg, "schema")
            self._form = "jsonl"  # an empty file is both
            self._open(pa.schema([]))
        self._close()
        assert self._part is not None
        self._part.replace(self._path)

    def _abandon(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            self._close()
        if self._part is not None:
            self._part.unlink(missing_ok=True)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        file, self._file = self._file, None
        try:
            if writer is not None:
                writer.close()
        finally:
            if file is not None:
                file.close()


async def in_thread(function: Callable[..., _T], *args: Any) -> _T:
    """Call a blocking function; a cancelled caller waits until it is out of the files."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # nobody else asks for it
        raise


def _parquet(path: Path, chunk_size: int) -> Iterator[pa.Table]:
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(chunk_size):
            yield pa.Table.from_batches([batch])


def _feather(path: Path, chunk_size: int) -> Iterator[pa.Table]:
    with path.open("rb") as handle, ipc.open_file(handle) as file:
        for index in range(file.num_record_batches):
            yield from _cut(pa.Table.from_batches([file.get_batch(index)]), chunk_size)


def _csv(path: Path, chunk_size: int) -> Iterator[pa.Table]:
    read = csv.ReadOptions(block_size=_CSV_BLOCK_BYTES)
    with csv.open_csv(path, read_options=read) as reader:
        names = list(reader.schema.names)
    # All as text: guessing would make 7 of 007. Only a field without quotes can be null.
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    with csv.open_csv(path, read_options=read, convert_options=convert) as reader:
        for batch in reader:
            yield from _cut(pa.Table.from_batches([batch]), chunk_size)


def _jsonl(path: Path, chunk_size: int) -> Iterator[pa.Table]:
    with path.open("rb") as file:
        lines = (line for line in file if line.strip())
        while chunk := list(itertools.islice(lines, chunk_size)):
            rows = [msgspec.json.decode(line) for line in chunk]
            if not all(isinstance(row, dict) for row in rows):
                msg = f"file {path.name!r}: every line must be a JSON mapping"
                raise ToolError(msg, "parse")
            yield table_of(rows)


def _cut(table: pa.Table, chunk_size: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, chunk_size):
        yield table.slice(start, chunk_size)


_READERS: dict[str, Callable[[Path, int], Any]] = {
    "parquet": _parquet,
    "feather": _feather,
    "csv": _csv,
    "jsonl": _jsonl,
}
