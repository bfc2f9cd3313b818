"""What every object store refuses, and how drivers' errors become ours; shared by the adapters.

A key is relative, has no empty, ``.`` or ``..`` segment and no control character, so no adapter
can be led out of its root.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from noetl_ray.errors import ObjectMissingError, StoreError, StoreUnavailableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY_BYTES_MAX = 1_024
"""What S3 allows."""

_NO_SUCH_OBJECT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_DRIVERS = frozenset({"aiobotocore", "aiohttp", "botocore", "fsspec", "s3fs"})


def check_key(key: str) -> str:
    """Give a safe key back.

    Raises:
        UsageError: the key is empty, too long, absolute, or could leave the store's root.
    """
    if not key or len(key.encode(errors="replace")) > KEY_BYTES_MAX:
        msg = f"object key {key[:80]!r} must have 1..{KEY_BYTES_MAX} bytes"
        raise UsageError(msg)
    if not key.isprintable() or "\\" in key:
        msg = f"object key {key[:80]!r} holds a character that is not allowed"
        raise UsageError(msg)
    if any(segment in {"", ".", ".."} for segment in key.split("/")):
        msg = f"object key {key[:80]!r} could leave the root of its store"
        raise UsageError(msg)
    return key


def check_prefix(prefix: str) -> str:
    """Give a folder prefix back without its last slash; empty means the whole store."""
    bare = prefix.rstrip("/")
    return check_key(bare) if bare else ""


def map_error(error: Exception, action: str, key: str) -> StoreError | None:
    """Our error for a driver's; None when it is not a driver's and must pass unchanged."""
    detail = f"cannot {action} {key}: {type(error).__name__}: {error}"
    if isinstance(error, StoreError):
        return error
    if isinstance(error, _NO_SUCH_OBJECT) and action == "read":
        return ObjectMissingError(f"no object at {key}")
    if isinstance(error, FileNotFoundError | PermissionError):
        return StoreError(detail)
    if isinstance(error, OSError | TimeoutError):
        return StoreUnavailableError(detail)
    if type(error).__module__.partition(".")[0] in _DRIVERS:
        if "Credentials" in type(error).__name__:
            return StoreError(detail)
        return StoreUnavailableError(detail)
    return None


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write that appears at its path only when all of it was written."""
    part = Path(f"{path}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
