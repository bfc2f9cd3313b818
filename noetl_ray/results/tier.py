"""The one function that chooses a result's tier and makes its bytes (TIER-1..TIER-4).

Producer, materializer and recovery all call :func:`decide_tier`; equal values give equal bytes
whoever asks. It owns no names and does no I/O.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.results.codecs import (
    EXTENSIONS,
    MEDIA_FEATHER,
    MEDIA_JSON,
    TableShape,
    encode_feather,
    table_shape,
)
from noetl_ray.results.extracted import EXTRACTED_MAX_BYTES, extract

CONTEXT_MAX_BYTES = 102_400
_GUESS_OFF_BY = 4
"""What is guessed to be so many times over a limit is over it for certain."""

Tier = Literal["inline", "feather", "json"]


class TierDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value goes and, when that is an object, its bytes."""

    tier: Tier
    body: Any
    """The value itself when inline, else None."""
    data: bytes | None
    """The object's bytes, None when inline."""
    media_type: str
    ext: str
    sha256: str
    size_bytes: int
    rows: int | None
    schema_digest: str | None
    extracted: Any
    truncated: dict[str, int]


class Look(NamedTuple):
    """What is found out about a value before it is encoded."""

    surely: bool
    """It is far over the inline budget."""
    shape: TableShape | None
    """Its table, looked for only in what is surely an object."""


def look_at(
    value: Any,
    *,
    context_max_bytes: int = CONTEXT_MAX_BYTES,
    extracted_max_bytes: int = EXTRACTED_MAX_BYTES,
) -> Look:
    """Look at a value, for who asks more of it than :func:`decide_tier` does."""
    surely = is_larger_than(value, _GUESS_OFF_BY * max(context_max_bytes, extracted_max_bytes))
    return Look(surely, table_shape(value) if surely else None)


def decide_tier(
    value: Any,
    *,
    context_max_bytes: int = CONTEXT_MAX_BYTES,
    extracted_max_bytes: int = EXTRACTED_MAX_BYTES,
    force_tier: bool = False,
    look: Look | None = None,
) -> TierDecision:
    """Choose the tier of a value and encode it.

    Args:
        value: Plain JSON data, as ``to_jsonable`` leaves it.
        context_max_bytes: The most canonical JSON bytes that stay in the event.
        extracted_max_bytes: The budget of the extracted block.
        force_tier: Write an object whatever the size (secrets, P28).
        look: What :func:`look_at` said of it under the same limits, where it was asked already.
    """
    # A table far over the budget is not written as JSON first only to see that it is.
    surely, shape = look or look_at(
        value, context_max_bytes=context_max_bytes, extracted_max_bytes=extracted_max_bytes
    )
    if shape is not None:
        return _feather(value, shape, extracted_max_bytes, None)
    data = canonical_json(value)
    extracted, truncated = extract(value, extracted_max_bytes, size_bytes=len(data))
    if len(data) <= context_max_bytes and not force_tier:
        return TierDecision(
            tier="inline",
            body=value,
            data=None,
            media_type=MEDIA_JSON,
            ext=EXTENSIONS[MEDIA_JSON],
            sha256=sha256_hex(data),
            size_bytes=len(data),
            rows=None,
            schema_digest=None,
            extracted=extracted,
            truncated=truncated,
        )
    if not surely and (shape := table_shape(value)) is not None:
        return _feather(value, shape, extracted_max_bytes, len(data))
    return TierDecision(
        tier="json",
        body=None,
        data=data,
        media_type=MEDIA_JSON,
        ext=EXTENSIONS[MEDIA_JSON],
        sha256=sha256_hex(data),
        size_bytes=len(data),
        rows=None,
        schema_digest=None,
        extracted=extracted,
        truncated=truncated,
    )


def _feather(
    value: Any, shape: TableShape, extracted_max_bytes: int, json_bytes: int | None
) -> TierDecision:
    data = encode_feather(shape)
    # It is larger than the block either way; its exact size matters only where nothing of it fits.
    size = extracted_max_bytes + 1 if json_bytes is None else json_bytes
    extracted, truncated = extract(value, extracted_max_bytes, size_bytes=size)
    if extracted is None and json_bytes is None:
        extracted, truncated = extract(value, extracted_max_bytes)
    return TierDecision(
        tier="feather",
        body=None,
        data=data,
        media_type=MEDIA_FEATHER,
        ext=EXTENSIONS[MEDIA_FEATHER],
        sha256=sha256_hex(data),
        size_bytes=len(data),
        rows=len(shape.rows),
        schema_digest=shape.schema_digest,
        extracted=extracted,
        truncated=truncated,
    )


def is_larger_than(value: Any, limit_bytes: int) -> bool:
    """A cheap guess at a value's JSON size, off by a small factor; stops once it is over."""
    left = limit_bytes
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            left -= len(item) + 3
        elif isinstance(item, dict):
            for key, below in item.items():
                left -= len(key) + 4
                stack.append(below)
                if left < 0:
                    return True
        elif isinstance(item, list):
            left -= len(item)
            if left >= 0:
                stack.extend(item)
        else:
            left -= 5
        if left < 0:
            return True
    return False
