"""The hosts on a Ray cluster: made, awaited, described and taken down.

Owns every call to Ray that concerns hosts. Also a small program, ``python -m actors.cluster``:
the local set runs it as a process of its own, so that whoever types ``up`` carries neither Ray's
driver nor its token. Refuses to start or end a Ray cluster; that is :mod:`actors.ray_head`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.util import list_named_actors

from actors.host import HostActor
from actors.options import (
    DEFAULT_FACTORY,
    HEALTH_GROUP,
    HOSTS_POOL,
    NAME_PREFIX,
    POOL_LABEL,
    HostSpec,
    actor_options,
    wanted_hosts,
)
from actors.plasma import stop_caches
from noetl_ray.config.convert import from_dict, to_dict
from noetl_ray.errors import InternalError, NoetlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noetl_ray.config.settings import Settings

START_S = 60.0
STOP_S = 20.0
CALL_S = 2.0
CLOSE_S = 5.0
_POLL_S = 0.05
_EMPTY_LOOKS = 2
"""How often in a row the directory must show no host before a stop is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayDirectory:
    """Hosts as named actors of one namespace. Travels to each host, so that hosts make hosts."""

    namespace: str
    settings: dict[str, Any]
    factory: str
    pooled: bool = False
    """Whether hosts are confined to the nodes kept for them."""

    def existing(self) -> frozenset[str]:
        """Names of host actors that live, start or restart."""
        listed = list_named_actors(all_namespaces=True)
        return frozenset(
            entry["name"]
            for entry in listed
            if entry["namespace"] == self.namespace and entry["name"].startswith(NAME_PREFIX)
        )

    def create(self, spec: HostSpec) -> None:
        """Make a host unless it is there by now."""
        wrap: Any = ray.remote  # its stubs do not know concurrency groups
        remote_class = wrap(concurrency_groups={HEALTH_GROUP: 2})(HostActor)
        options = actor_options(spec, namespace=self.namespace, pooled=self.pooled)
        remote_class.options(**options).remote(
            spec=spec, settings=self.settings, factory=self.factory, directory=self
        )

    def incarnations(self, names: Sequence[str]) -> dict[str, str]:
        """Which process each host is now; empty text for one whose process is dead."""
        handles = _handles(self.namespace, frozenset(names))
        found = {name: "" for name in names if name not in handles}
        calls = {
            handle.health.options(concurrency_group=HEALTH_GROUP).remote(): name
            for name, handle in handles.items()
        }
        ready, _ = (
            ray.wait(list(calls), num_returns=len(calls), timeout=CALL_S) if calls else ([], [])
        )
        for reference in ready:
            try:
                found[calls[reference]] = str(ray.get(reference)["incarnation"])
            except ray.exceptions.RayActorError:
                found[calls[reference]] = ""
            except ray.exceptions.RayError:
                continue
        return found


def start_hosts(
    settings: Settings, *, factory: str = DEFAULT_FACTORY, deadline_s: float = START_S
) -> dict[str, Any]:
    """Make every wanted host and wait until all run.

    Args:
        settings: Where Ray is, and which hosts are wanted. Travels to the hosts.
        factory: ``module:function`` that opens the roles of a host.
        deadline_s: How long all of it may take.

    Returns:
        ``hosts``: health by host name; ``gateway_url``: where the API answers.

    Raises:
        InternalError: A host did not come up in time; the message says which, why, and where
            its log is.
    """
    deadline = time.monotonic() + deadline_s
    with connected(settings):
        directory = _directory(settings, factory)
        wanted = wanted_hosts(settings)
        for spec in wanted:
            directory.create(spec)
        hosts = _await_running(settings, wanted, deadline)
    urls = (health["gateway_url"] for health in hosts.values())
    return {"hosts": hosts, "gateway_url": next((url for url in urls if url), None)}


def stop_hosts(settings: Settings, *, deadline_s: float = STOP_S) -> list[str]:
    """Take all hosts of the namespace down, in order, and see that they stay away.

    Returns:
        Names of the hosts that were there.

    Raises:
        InternalError: Hosts are still registered after the deadline.
    """
    deadline = time.monotonic() + deadline_s
    seen: set[str] = set()
    with connected(settings):
        directory = _directory(settings, "")
        names = directory.existing()
        seen.update(names)
        handles = _handles(settings.ray.namespace, names)
        # First nobody looks after anybody; only then may they end, or the living would remake
        # the dead.
        _call_all([handle.prepare_down.remote() for handle in handles.values()], CALL_S)
        _call_all([handle.close.remote(CLOSE_S) for handle in handles.values()], CLOSE_S + CALL_S)
        empty_looks = 0
        while empty_looks < _EMPTY_LOOKS:
            if time.monotonic() > deadline:
                msg = f"hosts are still registered after {deadline_s:g} s: {sorted(names)}"
                raise InternalError(msg)
            for handle in _handles(settings.ray.namespace, names).values():
                ray.kill(handle, no_restart=True)
            time.sleep(_POLL_S)
            names = directory.existing()
            seen.update(names)
            # A host that was restarting could not be told, and may have remade one in between.
            empty_looks = 0 if names else empty_looks + 1
        stop_caches(settings.ray.namespace)
    return sorted(seen)


def describe(settings: Settings) -> dict[str, Any]:
    """What runs now: every registered host with what it says of itself."""
    with connected(settings):
        names = _directory(settings, "").existing()
        handles = _handles(settings.ray.namespace, names)
        answers = {
            name: _ask(handle.summary.remote(), CALL_S) or {"state": "unreachable"}
            for name, handle in handles.items()
        }
        return {
            "namespace": settings.ray.namespace,
            "hosts": answers,
            "resources": ray.cluster_resources(),  # type: ignore[no-untyped-call]
            "missing": [
                spec.actor_name for spec in wanted_hosts(settings) if spec.actor_name not in names
            ],
        }


@contextlib.contextmanager
def connected(settings: Settings) -> Iterator[None]:
    """Be a driver of the cluster; one that was connected already is left as it was.

    Raises:
        UsageError: No cluster answers at the address.
    """
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(
            address=settings.ray.address or "auto",
            namespace=settings.ray.namespace,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        msg = f"no Ray cluster can be joined at {settings.ray.address or 'auto'}: {error}"
        raise UsageError(msg) from error
    try:
        yield
    finally:
        ray.shutdown()


def _directory(settings: Settings, factory: str) -> RayDirectory:
    return RayDirectory(
        namespace=settings.ray.namespace,
        settings=to_dict(settings),
        factory=factory,
        pooled=_has_pool(),
    )


def _has_pool() -> bool:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return any(
        node["Alive"] and (node.get("Labels") or {}).get(POOL_LABEL) == HOSTS_POOL for node in nodes
    )


def _await_running(
    settings: Settings, wanted: list[HostSpec], deadline: float
) -> dict[str, dict[str, Any]]:
    running: dict[str, dict[str, Any]] = {}
    last: dict[str, dict[str, Any]] = {}
    while True:
        waiting = [spec for spec in wanted if spec.name not in running]
        names = {spec.actor_name for spec in waiting}
        handles = _handles(settings.ray.namespace, frozenset(names))
        for spec in waiting:
            handle = handles.get(spec.actor_name)
            if handle is None:
                continue
            call = handle.health.options(concurrency_group=HEALTH_GROUP).remote()
            health = _ask(call, min(CALL_S, max(_POLL_S, deadline - time.monotonic())))
            if health is not None and health["state"] == "running":
                running[spec.name] = health
            elif health is not None and (health["error"] or spec.name not in last):
                last[spec.name] = health
        if len(running) == len(wanted):
            return running
        if time.monotonic() > deadline:
            missing = [spec.name for spec in wanted if spec.name not in running]
            raise InternalError(_not_up(missing, last))
        time.sleep(_POLL_S)


def _not_up(missing: list[str], last: Mapping[str, dict[str, Any]]) -> str:
    lines = []
    for name in missing:
        health = last.get(name)
        if health is None:
            lines.append(f"{name} never answered (is there room for it? see `ray status`)")
        else:
            reason = health["error"] or "still " + health["state"]
            lines.append(f"{name}: {reason}; its log is {health['log'] or 'in the Ray session'}")
    return "hosts did not come up: " + "; ".join(lines)


def _handles(namespace: str, names: frozenset[str]) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    for name in sorted(names):
        # It may have gone since it was listed.
        with contextlib.suppress(ValueError):
            handles[name] = ray.get_actor(name, namespace=namespace)
    return handles


def _ask(reference: Any, wait_s: float) -> dict[str, Any] | None:
    """An answer, or None from a host that is dead, restarting or silent."""
    try:
        answer: dict[str, Any] = ray.get(reference, timeout=wait_s)
    except (ray.exceptions.RayError, TimeoutError):
        return None
    return answer


def _call_all(references: list[Any], wait_s: float) -> None:
    # Best effort: a dead or restarting host has nothing left to put in order.
    if references:
        ray.wait(references, num_returns=len(references), timeout=wait_s)


def main(arguments: list[str]) -> int:
    """Do ``start``, ``stop`` or ``describe`` for the request on standard input, answer in JSON."""
    request = json.loads(sys.stdin.readline() or "null")
    # Ray and what it loads may print; only the answer belongs on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = {"ok": _serve(arguments[0], request)}
        except NoetlError as error:
            answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 1 if "error" in answer else 0


def _serve(verb: str, request: dict[str, Any]) -> Any:
    settings = from_dict(request["settings"])
    if verb == "start":
        return start_hosts(
            settings, factory=request["factory"], deadline_s=float(request["deadline_s"])
        )
    if verb == "stop":
        return stop_hosts(settings)
    if verb == "describe":
        return describe(settings)
    msg = f"no such verb: {verb}"
    raise UsageError(msg)


if __name__ == "__main__":
    # Classes of a program's own main module would be pickled by value and not found in the hosts.
    from actors.cluster import main as importable_main

    sys.exit(importable_main(sys.argv[1:]))
