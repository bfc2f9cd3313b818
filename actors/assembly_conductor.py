"""Wires a conductor to its ports: the log, its leases and its checkpoints.

What only conductors need of a host is opened here and closed with the host.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from actors.conductor import Conductor
from actors.deciding import ConductorPorts
from actors.gateway import submit_ports
from actors.messages import GONE, decode_gone
from actors.options import wanted_hosts
from actors.ownership import LeasedShards
from noetl_ray.config.environ import node_id
from placement.offer import Place

if TYPE_CHECKING:
    import contextlib

    from actors.assembly import SharedPorts
    from noetl_ray.config.settings import Settings


async def build_conductor(
    settings: Settings,
    ports: SharedPorts,
    stack: contextlib.AsyncExitStack,
    producer: str,
    *,
    host_name: str,
    incarnation: str,
) -> Conductor:
    """A conductor whose shards come by leases and begin at checkpoints."""
    runtime = settings.runtime
    owner = LeasedShards(
        ports.owners,
        ports.log,
        ports.ids,
        ports.clock,
        name=owner_name(settings, host_name),
        incarnation=incarnation,
        producer=producer,
        shard_count=runtime.shard_count,
        lease_s=runtime.shard_lease_sec,
        heartbeat_s=runtime.shard_heartbeat_sec,
        unwanted=_Unwanted(settings),
    )

    def on_gone(_subject: str, data: bytes) -> None:
        gone = decode_gone(data)
        owner.gone(owner_name(settings, gone.host), gone.incarnation)

    stack.push_async_callback(await ports.hints.listen(GONE, on_gone))
    return Conductor(
        ConductorPorts(
            log=ports.log,
            hints=ports.hints,
            programs=ports.programs,
            contexts=ports.contexts,
            results=ports.results,
            ids=ports.ids,
            clock=ports.clock,
            env=ports.env,
            submit=submit_ports(ports, producer),
            frame_defaults=asdict(settings.frame_policy_defaults),
            checkpoints=ports.checkpoints,
        ),
        owner=owner,
        producer=producer,
        near=Place(region=runtime.region, zone=runtime.zone, node=node_id(settings)),
        lease_ms=runtime.worker_lease_ms,
        checkpoint_ms=runtime.checkpoint_interval_ms,
    )


def owner_name(settings: Settings, host_name: str) -> str:
    """Under which name a host owns shards; several clusters may share one log."""
    return f"{settings.runtime.cluster_id}/{host_name}"


class _Unwanted:
    """Owners of this cluster that its settings do not ask for: those of an earlier, larger set."""

    def __init__(self, settings: Settings) -> None:
        self._prefix = owner_name(settings, "")
        self._wanted = {
            owner_name(settings, spec.name)
            for spec in wanted_hosts(settings)
            if "conductor" in spec.roles
        }

    def __call__(self, name: str) -> bool:
        return name.startswith(self._prefix) and name not in self._wanted
