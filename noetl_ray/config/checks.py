"""What values of settings mean something: ranges, schemes, and what must go together.

Refuses by raising; never clamps, never repairs (PRJ-9). Shape and types were settled before.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from typing import TYPE_CHECKING, Any

from noetl_ray.config.convert import refuse
from noetl_ray.errors import UsageError
from noetl_ray.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.config.settings import Settings

CONTEXT_MAX_BYTES_LIMIT = 524_288
"""Half of what a NATS server accepts as one message by default: a decision must fit beside it."""

_MS_DAY = 86_400_000
_SPARK_MASTER = re.compile(r"raydp|local(\[(\d+|\*)\])?|spark://[^\s/]+:\d+")

RANGES: Mapping[str, tuple[int, int]] = {
    "runtime.shard_count": (1, 4_096),
    "runtime.worker_slots": (1, 10_000),
    "runtime.worker_lease_ms": (100, _MS_DAY),
    "runtime.announce_ms": (10, 60_000),
    "runtime.conductors": (1, 1_000),
    "runtime.shard_lease_sec": (2, 86_400),
    "runtime.shard_heartbeat_sec": (1, 3_600),
    "runtime.checkpoint_interval_ms": (50, 3_600_000),
    "runtime.workers": (1, 1_000),
    "runtime.python_processes": (1, 1_024),
    "runtime.python_memory_mb": (0, 1 << 24),
    "event_store.ack_timeout_ms": (10, 600_000),
    "event_store.duplicate_window_s": (1, 3_600),
    # The least is one full record: 256 events, 900 000 bytes.
    "event_store.tail_max_events": (256, 1_000_000),
    "event_store.tail_max_bytes": (900_000, 1 << 32),
    "projection_stores.batch_size": (1, 100_000),
    "projection_stores.batch_window_ms": (1, 60_000),
    "projection_stores.poll_ms": (1, 60_000),
    "projection_stores.pool_max": (1, 1_000),
    "results.context_max_bytes": (256, CONTEXT_MAX_BYTES_LIMIT),
    "results.extracted_max_bytes": (256, 65_536),
    "results.memory_cache_mb": (0, 1 << 24),
    "results.plasma_budget_mb": (0, 1 << 24),
    "results.disk_cache_mb": (0, 1 << 30),
    "results.gc_grace_s": (0, 366 * 86_400),
    "results.payload_ttl_days": (0, 36_500),
    "frame_policy_defaults.max_rows": (1, 1_000_000),
    "frame_policy_defaults.max_seconds": (1, 86_400),
    "frame_policy_defaults.max_bytes": (1_024, 1 << 40),
    "frame_policy_defaults.lease_seconds": (1, 86_400),
    "frame_policy_defaults.heartbeat_seconds": (1, 86_400),
    "frame_policy_defaults.max_attempts": (1, 1_000),
    "frame_policy_defaults.row_concurrency": (1, 10_000),
    "frame_policy_defaults.collection_threshold": (0, 1_000_000),
    "frame_policy_defaults.collection_max_rows": (1, 1_000_000),
    "snapshots.interval_events": (10, 1_000_000_000),
    "gateway.port": (0, 65_535),
    "http.limit_wait_s": (1, 86_400),
    "ray.num_cpus": (0, 100_000),
    "ray.object_store_mb": (76, 1 << 24),  # Ray refuses to start below about 75 MB.
    "ray.task_wait_s": (0, 86_400),
    "spark.executors": (1, 10_000),
    "spark.executor_cores": (1, 1_024),
    "spark.executor_memory_mb": (512, 1 << 24),
    "spark.driver_memory_mb": (512, 1 << 24),
    "spark.shuffle_partitions": (1, 100_000),
    "spark.idle_stop_s": (1, 86_400),
    "spark.start_timeout_s": (1, 3_600),
    "lake.split_records": (1, 1_000_000),
    "lake.compact_parts": (2, 10_000),
    "lake.retention_days": (0, 36_500),
    "lake.archive_days": (0, 36_500),
}

SCHEMES: Mapping[str, tuple[str, ...]] = {
    "event_store.url": ("nats", "tls", "ws", "wss"),
    "projection_stores.dsn": ("postgresql", "postgres"),
    "payload_store.url": ("file", "s3"),
    "payload_store.endpoint_url": ("http", "https"),
    "lake.url": ("file", "s3"),
}

_NOT_EMPTY = (
    "data_dir",
    "runtime.project_id",
    "runtime.environment",
    "runtime.cluster_id",
    "runtime.cell",
    "runtime.region",
    "runtime.zone",
    "event_store.stream",
    "gateway.host",
    "ray.namespace",
)


def check(settings: Settings) -> None:
    """Refuse the first value that makes no sense.

    Raises:
        ConfigError: naming key, value and reason.
    """
    for key in _NOT_EMPTY:
        if not str(value_at(settings, key)).strip():
            refuse(key, "", "must not be empty")
    for key, (least, most) in RANGES.items():
        number = value_at(settings, key)
        if not least <= number <= most:
            refuse(key, number, f"must be between {least} and {most}")
    for key, schemes in SCHEMES.items():
        _check_scheme(key, value_at(settings, key), schemes)
    _check_scope(settings)
    _check_relations(settings)
    _check_gateway(settings)
    _check_limits(settings)
    _check_key(settings)
    _check_spark(settings)
    _check_replicas(settings)


def value_at(settings: Settings, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_scheme(key: str, url: str, schemes: tuple[str, ...]) -> None:
    if not url:
        return
    # A list of NATS servers is written with commas; each has its own scheme.
    for part in url.split(",") if key == "event_store.url" else [url]:
        scheme, mark, rest = part.strip().partition("://")
        if not mark or scheme not in schemes or not rest:
            listed = ", ".join(f"{name}://" for name in schemes)
            refuse(key, url, f"must be an address starting with {listed}")


def _check_scope(settings: Settings) -> None:
    for key in ("tenant_id", "organization_id"):
        value = getattr(settings.runtime, key)
        try:
            Scope(tenant_id=value)
        except UsageError as error:
            refuse(f"runtime.{key}", value, str(error))


def _check_relations(settings: Settings) -> None:
    runtime, frames = settings.runtime, settings.frame_policy_defaults
    if runtime.conductors > runtime.shard_count:
        reason = f"more conductors than the {runtime.shard_count} shards they share"
        refuse("runtime.conductors", runtime.conductors, reason)
    if runtime.shard_heartbeat_sec * 2 > runtime.shard_lease_sec:
        reason = "must be at most half of runtime.shard_lease_sec, or live conductors look dead"
        refuse("runtime.shard_heartbeat_sec", runtime.shard_heartbeat_sec, reason)
    if runtime.announce_ms * 2 > runtime.worker_lease_ms:
        reason = "must be at most half of runtime.worker_lease_ms, or live workers look dead"
        refuse("runtime.announce_ms", runtime.announce_ms, reason)
    if frames.heartbeat_seconds * 2 > frames.lease_seconds:
        key = "frame_policy_defaults.heartbeat_seconds"
        reason = "must be at most half of frame_policy_defaults.lease_seconds"
        refuse(key, frames.heartbeat_seconds, reason)
    results = settings.results
    if results.extracted_max_bytes > results.context_max_bytes:
        key = "results.extracted_max_bytes"
        reason = "must not be above results.context_max_bytes"
        refuse(key, results.extracted_max_bytes, reason)


def _check_gateway(settings: Settings) -> None:
    gateway = settings.gateway
    if not is_loopback(gateway.host) and not gateway.token:
        reason = "reachable from outside this machine, so gateway.token must be set"
        refuse("gateway.host", gateway.host, reason)
    if gateway.public_url and not gateway.public_url.startswith(("http://", "https://")):
        refuse("gateway.public_url", gateway.public_url, "must begin with http:// or https://")


def _check_limits(settings: Settings) -> None:
    seen: set[tuple[str, str]] = set()
    for index, limit in enumerate(settings.http.limits):
        key = f"http.limits[{index}]"
        if bool(limit.host) == bool(limit.credential):
            refuse(key, limit.host, "needs either host or credential")
        if (limit.host.lower(), limit.credential) in seen:
            refuse(key, limit.host or limit.credential, "is limited twice")
        seen.add((limit.host.lower(), limit.credential))
        if not limit.max_in_flight and not limit.per_second:
            refuse(key, limit.host or limit.credential, "needs max_in_flight or per_second")
        if not 0 <= limit.max_in_flight <= 100_000:
            refuse(f"{key}.max_in_flight", limit.max_in_flight, "must be between 0 and 100000")
        if not 0 <= limit.per_second <= 100_000:
            refuse(f"{key}.per_second", limit.per_second, "must be between 0 and 100000")


def _check_replicas(settings: Settings) -> None:
    seen = {"primary"}
    for index, replica in enumerate(settings.payload_store.replicas):
        key = f"payload_store.replicas[{index}]"
        if not replica.name.strip() or replica.name in seen:
            refuse(f"{key}.name", replica.name, "must be there, and only once; primary is taken")
        seen.add(replica.name)
        if not replica.url:
            refuse(f"{key}.url", "", "must not be empty")
        _check_scheme(f"{key}.url", replica.url, SCHEMES["payload_store.url"])
        _check_scheme(
            f"{key}.endpoint_url", replica.endpoint_url, SCHEMES["payload_store.endpoint_url"]
        )


def _check_spark(settings: Settings) -> None:
    master = settings.spark.master
    if master and not _SPARK_MASTER.fullmatch(master):
        refuse("spark.master", master, "must be raydp, local, local[N] or spark://host:port")


def _check_key(settings: Settings) -> None:
    store = settings.payload_store
    given = {
        "credentials.key": settings.credentials.key,
        "payload_store.encryption_key": store.encryption_key,
    }
    for key, text in given.items():
        if text and not _is_key(text):
            refuse(key, "<hidden>", "must be 32 bytes in base64")
    old = [text for text in store.encryption_old_keys.split(",") if text.strip()]
    if not all(map(_is_key, old)):
        reason = "each must be 32 bytes in base64, separated by commas"
        refuse("payload_store.encryption_old_keys", "<hidden>", reason)


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text.strip(), validate=True)) == 32
    except (binascii.Error, ValueError):
        return False
