"""Which hosts there must be, and with which Ray options each is made.

Owns the one table of detached actors: their names, their roles and their options. Refuses to
import ray or to start anything, so that the table can be read and tested anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ConfigError

if TYPE_CHECKING:
    from noetl_ray.config.settings import Settings

DEFAULT_FACTORY = "actors.assembly:open_host"
"""``module:function`` that opens the roles of a host."""
NAME_PREFIX = "noetl/"
HEALTH_GROUP = "health"
"""Concurrency group of calls that touch no connection and answer while the main loop is busy."""
HOT_ROLES = ("conductor", "worker", "keeper")
VIEW_ROLES = ("projector", "materializer", "gateway")
GATEWAY_HOST = "views/0"
POOL_LABEL = "noetl.io/pool"
HOSTS_POOL = "hosts"
"""Value of the pool label on nodes that are kept for hosts, where a cluster has such."""
HOSTS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """One wanted host: a process that runs some roles."""

    name: str
    """Name and number, such as ``hot/0``; unique within a namespace."""
    roles: tuple[str, ...]
    index: int
    """Number of this host among the hosts of its leading role."""

    @property
    def actor_name(self) -> str:
        """Name the actor carries in Ray."""
        return f"{NAME_PREFIX}{self.name}"


def wanted_hosts(settings: Settings) -> list[HostSpec]:
    """Every host the settings ask for, in the order they are made.

    Two hosts serve a laptop: ``hot`` decides and works, ``views`` shows. Conductors and workers
    beyond the first get hosts of their own.

    Args:
        settings: The settings tree; ``runtime.conductors`` and ``runtime.workers`` count.

    Returns:
        The hosts, ``hot/0`` and ``views/0`` first.

    Raises:
        ConfigError: A count is below one, or the hosts are more than the limit.
    """
    runtime = settings.runtime
    counts = {"runtime.conductors": runtime.conductors, "runtime.workers": runtime.workers}
    for key, count in counts.items():
        if not 1 <= count <= HOSTS_MAX:
            raise ConfigError(key, count, f"must be between 1 and {HOSTS_MAX}")
    hosts = [
        HostSpec(name="hot/0", roles=HOT_ROLES, index=0),
        HostSpec(name=GATEWAY_HOST, roles=VIEW_ROLES, index=0),
    ]
    for role, count in (("conductor", runtime.conductors), ("worker", runtime.workers)):
        hosts.extend(
            HostSpec(name=f"{role}/{index}", roles=(role,), index=index)
            for index in range(1, count)
        )
    return hosts


def actor_options(spec: HostSpec, *, namespace: str, pooled: bool = False) -> dict[str, Any]:
    """Options of a host's actor.

    Detached and restarted without end, because nothing owns a host; calls are never retried by Ray,
    because only the log knows whether something was done.

    Args:
        spec: The host.
        namespace: Where its name is registered.
        pooled: Whether it must run on a node kept for hosts. Without CPUs of its own an actor is
            put anywhere, the head included, so a cluster that has such nodes wants this.
    """
    selector = {"label_selector": {POOL_LABEL: HOSTS_POOL}} if pooled else {}
    return {
        "name": spec.actor_name,
        "namespace": namespace,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": 0,
        "num_cpus": 0,
        **selector,
    }
