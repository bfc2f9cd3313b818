"""The one function that chooses a result's tier and makes its bytes (TIER-1..TIER-4).

Producer, materializer and recovery all call :func:`decide_tier`; equal values give equal bytes
whoever asks. It owns no names and does no I/O.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.results.codecs import (
    EXTENSIONS,
    MEDIA_FEATHER,
    MEDIA_JSON,
    encode_feather,
    table_shape,
)
from noetl_ray.results.extracted import EXTRACTED_MAX_BYTES, extract

CONTEXT_MAX_BYTES = 102_400

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


def decide_tier(
    value: Any,
    *,
    context_max_bytes: int = CONTEXT_MAX_BYTES,
    extracted_max_bytes: int = EXTRACTED_MAX_BYTES,
    force_tier: bool = False,
) -> TierDecision:
    """Choose the tier of a value and encode it.

    Args:
        value: Plain JSON data, as ``to_jsonable`` leaves it.
        context_max_bytes: The most canonical JSON bytes that stay in the event.
        extracted_max_bytes: The budget of the extracted block.
        force_tier: Write an object whatever the size (secrets, P28).
    """
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
    tier: Tier = "json"
    media_type = MEDIA_JSON
    shape = table_shape(value)
    if shape is not None:
        data = encode_feather(shape)
        tier, media_type = "feather", MEDIA_FEATHER
    return TierDecision(
        tier=tier,
        body=None,
        data=data,
        media_type=media_type,
        ext=EXTENSIONS[media_type],
        sha256=sha256_hex(data),
        size_bytes=len(data),
        rows=None if shape is None else len(shape.rows),
        schema_digest=None if shape is None else shape.schema_digest,
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
