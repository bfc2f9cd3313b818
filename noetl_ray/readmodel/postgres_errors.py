"""What an error of the Postgres driver means to us: come back later, or this will never work.

The table goes by SQLSTATE class, the first two letters of the code, with single codes before it.
Nothing of asyncpg passes this border.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg

from noetl_ray.errors import StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

RETRYABLE_CODES = frozenset({"25006", "57014", "42P01", "3F000"})
"""A standby that takes no writes yet; a statement that was cancelled or took too long; tables that
a projector has not made yet, or that were dropped to be rebuilt."""

RETRYABLE_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
"""Connection, rolled back, out of resources, in use, shut down, system error."""

REFUSED_CLASSES = frozenset(
    {
        "01", "02", "03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23",
        "24", "25", "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "42",
        "44", "54", "72", "F0", "HV", "P0", "XX",
    }
)  # fmt: skip
"""All else Postgres can say: data, syntax, rights, constraints. Trying again changes nothing."""

RETRYABLE_CLIENT: tuple[type[BaseException], ...] = (
    asyncpg.InternalClientError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.exceptions.PostgresConnectionError,
)
"""Driver errors without a code of the server that mean a broken connection or a lost race."""


def map_error(error: BaseException) -> StoreError:
    """Our error for one of the driver's or of the operating system's."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or "08000"
        if code in RETRYABLE_CODES or code[:2] in RETRYABLE_CLASSES:
            return StoreUnavailableError(f"Postgres cannot do this now ({code}): {text}")
        return StoreError(f"Postgres refuses ({code}): {text}")
    if isinstance(error, RETRYABLE_CLIENT):
        return StoreUnavailableError(f"Postgres cannot do this now: {text}")
    if isinstance(error, asyncpg.InterfaceError):
        # A closed connection or pool arrives as a bare InterfaceError; its subclasses are misuse.
        if type(error) is asyncpg.InterfaceError:
            return StoreUnavailableError(f"Postgres cannot be asked now: {text}")
        return StoreError(f"the Postgres driver refuses: {text}")
    return StoreUnavailableError(f"Postgres cannot be reached: {text}")


@contextmanager
def store_errors() -> Iterator[None]:
    """Let nothing of the driver out of this block."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
    ) as error:
        raise map_error(error) from error
