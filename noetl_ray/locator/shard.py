"""The shard function: FNV-1a, 64 bit, over tenant, project and execution (LOC-3, TN-2).

The hashed bytes are the UTF-8 of ``<tenant>/<project>/<execution id in decimal>``. Every producer
and consumer computes it alone; nothing ever looks a shard up. Changing it moves every key: the
vectors are pinned in the tests.
"""

from __future__ import annotations

from functools import lru_cache

SHARD_COUNT_DEFAULT = 16
SEPARATOR = "/"

_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1
_CACHE_SIZE = 65_536


def fnv1a64(data: bytes) -> int:
    """FNV-1a of some bytes as an unsigned 64-bit number."""
    value = _OFFSET_BASIS
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


@lru_cache(maxsize=_CACHE_SIZE)
def shard_of(
    tenant_id: str,
    project_id: str,
    execution_id: int | str,
    shard_count: int = SHARD_COUNT_DEFAULT,
) -> int:
    """The shard an execution lives on, 0 up to ``shard_count - 1``."""
    if shard_count < 1:
        msg = f"shard_count {shard_count} is not positive"
        raise ValueError(msg)
    affinity = SEPARATOR.join((tenant_id, project_id, str(execution_id)))
    return fnv1a64(affinity.encode()) % shard_count
