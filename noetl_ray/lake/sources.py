"""What an input of a Spark task may be, and reading one piece of it where the work is.

A *source* is a small mapping that travels as JSON and names one object: a stored value, a part of
a manifest, or one file. Owns the forms a playbook may write and their cutting into sources.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa

from noetl_ray.errors import UsageError

if TYPE_CHECKING:
    from noetl_ray.lake.tier import Tier

Source = dict[str, Any]
SCHEME = "noetl://"
FILES_MAX = 10_000
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather",
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(_FORMATS.values()))
TABLE_PREFIX = "lake."


def sources_of(tier: Tier, name: str, given: Any) -> list[Source]:
    """The objects an input stands for.

    Args:
        tier: Reads manifests; tables come in one source per part.
        name: The input's name, for errors.
        given: A ``result_ref`` record, a ``noetl://`` name, or ``{path: …}``.

    Raises:
        UsageError: it is none of those, or there are no such files.
    """
    if isinstance(given, str) and given.startswith(SCHEME):
        return [{"ref": given}]
    if isinstance(given, dict) and given.get("path"):
        return _files(tier, name, given)
    if isinstance(given, dict) and (given.get("kind") == "result_ref" or "ref" in given):
        manifest = tier.manifest(given)
        if manifest is None:
            return [{"ref": given}]
        schema = manifest.arrow
        return [
            {"ref": part.uri, "media_type": "part", "schema": schema} for part in manifest.parts
        ] or [{"empty": schema}]
    msg = (
        f"the input {name!r} is no data Spark can read: give rows, a result such as "
        f"step._ref, a {SCHEME} name, {{path: ...}} or {{table: {TABLE_PREFIX}events}}"
    )
    raise UsageError(msg)


def read_source(tier: Tier, source: Source) -> pa.Table:
    """Runs on an executor: the rows of one source."""
    if "empty" in source:
        return _schema(source["empty"]).empty_table()
    if "ref" in source:
        return tier.table(source["ref"])
    return _read_file(source)


def source_schema(tier: Tier, source: Source) -> pa.Schema:
    """Runs on an executor: the columns of one source."""
    told = source.get("schema") or source.get("empty")
    if told:
        return _schema(told)
    if source.get("format") == "parquet":
        import pyarrow.parquet as pq

        with _opened(source) as file:
            return pq.read_schema(file)
    return read_source(tier, source).schema


def _schema(told: str) -> pa.Schema:
    import base64

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told)))


def _files(tier: Tier, name: str, given: dict[str, Any]) -> list[Source]:
    path, options = str(given["path"]), dict(given.get("options") or {})
    if "://" not in path:
        # As with other kinds, a bare path lies below the folder for files.
        root = (Path(tier.settings.data_dir) / "files").resolve()
        below = (root / path).resolve()
        path = f"file://{below}"
        if not below.is_relative_to(root):
            msg = f"the input {name!r} leaves the folder for files: {given['path']!r}"
            raise UsageError(msg)
    try:
        system, bare = fsspec.core.url_to_fs(path, **options)
        found = sorted(system.glob(bare)) if "*" in bare else [bare]
        files = [
            below
            for one in found
            for below in (sorted(system.find(one)) if system.isdir(one) else [one])
            if PurePosixPath(below).suffix in _FORMATS or given.get("format")
        ]
    except (OSError, ValueError, ImportError) as error:
        msg = f"the input {name!r} cannot be listed: {error}"
        raise UsageError(msg) from None
    if not files or not system.exists(files[0]):
        msg = f"the input {name!r} names no file of a known format ({', '.join(FORMATS)}): {path}"
        raise UsageError(msg)
    if len(files) > FILES_MAX:
        msg = f"the input {name!r} names {len(files)} files; at most {FILES_MAX}"
        raise UsageError(msg)
    return [
        {
            "url": system.unstrip_protocol(file),
            "options": options,
            "format": given.get("format") or _FORMATS[PurePosixPath(file).suffix],
        }
        for file in files
    ]


def _opened(source: Source) -> Any:
    return fsspec.open(source["url"], "rb", **source["options"])


def _read_file(source: Source) -> pa.Table:
    with _opened(source) as file:
        match source["format"]:
            case "parquet":
                import pyarrow.parquet as pq

                return pq.read_table(file)
            case "feather":
                return pa.ipc.open_file(pa.BufferReader(file.read())).read_all()
            case "csv":
                import pyarrow.csv as csv

                return csv.read_csv(file)
            case "json":
                import pyarrow.json as json_lines

                return json_lines.read_json(file)
            case other:
                msg = f"{other!r} is not a format of files: use {', '.join(FORMATS)}"
                raise UsageError(msg)
