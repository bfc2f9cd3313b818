"""The only place that reads the process environment, and the names of it that are settings.

Owns the table from variable to setting (CFG-2, CFG-3, CFG-4). Refuses the variables of the original
system that this one has no setting for: ignoring one would let someone believe a switch was thrown.
"""

from __future__ import annotations

import os
import platform
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.config.settings import Settings

CONFIG_VARIABLE = "NOETL_CONFIG"

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "NOETL_DATA_DIR": "data_dir",
        "NOETL_TENANT_ID": "runtime.tenant_id",
        "NOETL_ORGANIZATION_ID": "runtime.organization_id",
        "NOETL_CLUSTER_ID": "runtime.cluster_id",
        "NOETL_REGION": "runtime.region",
        "NOETL_ZONE": "runtime.zone",
        "NOETL_NODE_ID": "runtime.node_id",
        "NOETL_SHARD_COUNT": "runtime.shard_count",
        "NOETL_SHARD_HEARTBEAT_SEC": "runtime.shard_heartbeat_sec",
        "NOETL_SHARD_LEASE_SEC": "runtime.shard_lease_sec",
        "NOETL_CHECKPOINT_INTERVAL_MS": "runtime.checkpoint_interval_ms",
        "NOETL_SIDE_EFFECT_BARRIER": "runtime.side_effect_barrier",
        "NOETL_PROJECTION_BATCH_SIZE": "projection_stores.batch_size",
        "NOETL_PROJECTION_BATCH_WINDOW_MS": "projection_stores.batch_window_ms",
        "NOETL_PROJECTION_POLL_MS": "projection_stores.poll_ms",
        "NOETL_EVENT_RESULT_CONTEXT_MAX_BYTES": "results.context_max_bytes",
        "NOETL_RESULT_PRODUCER_STAGE": "results.producer_stage",
        "NOETL_RESULT_MATERIALIZER_ENABLED": "results.materializer_enabled",
        "NOETL_RESULT_TIER_GC": "results.gc_enabled",
        "NOETL_RESULT_TIER_DR": "results.dr_enabled",
        "NOETL_NATS_URL": "event_store.url",
        "NOETL_NATS_TOKEN": "event_store.token",
        "NOETL_POSTGRES_DSN": "projection_stores.dsn",
        "NOETL_PAYLOAD_URL": "payload_store.url",
        "NOETL_PAYLOAD_ENCRYPT": "payload_store.encrypt",
        "NOETL_PAYLOAD_KEY": "payload_store.encryption_key",
        "NOETL_RAY_ADDRESS": "ray.address",
        "NOETL_GATEWAY_TOKEN": "gateway.token",
        "NOETL_CREDENTIAL_KEY": "credentials.key",
        "NOETL_CREDENTIAL_KEY_FILE": "credentials.key_file",
        "NOETL_COMPACTOR_ENABLED": "lake.compactor_enabled",
        "NOETL_RETENTION_DAYS": "lake.retention_days",
    }
)
"""Environment variable to dotted setting; these win over the file."""

WITHOUT_SETTING: Mapping[str, str] = MappingProxyType(
    {
        "NOETL_DEFAULT_STORE_TIER": (
            "there is no tier to choose: it follows from a result's size, see "
            "results.context_max_bytes"
        ),
        "NOETL_RESULT_MINT_AUTHORITATIVE": (
            "there is nothing to switch: writers and readers alike derive a result's name"
        ),
        "NOETL_RESULT_URI_ACCEPT": (
            "there is nothing to switch: names of the older grammar are always read"
        ),
        "NOETL_SHARD_ID": (
            "nobody has a shard by setting: conductors lease shards under the names of their hosts"
        ),
    }
)
"""Names of CFG-2 to CFG-4 that nothing here reads, and why; setting one stops the start."""

_NOT_SAFE = re.compile(r"[^A-Za-z0-9_-]+")


def environ() -> Mapping[str, str]:
    """The environment of this process, read-only."""
    return MappingProxyType(os.environ)


def set_environ(changes: Mapping[str, str]) -> None:
    """Change the environment of this process, for the sake of those it starts."""
    os.environ.update(changes)


def node_id(settings: Settings) -> str:
    """This host's identity: the setting, or the host's own name made safe for subjects and keys.

    Not filled in at load time, because settings travel to other hosts and each has its own name.
    """
    return settings.runtime.node_id or _NOT_SAFE.sub("-", platform.node()).strip("-") or "node"
