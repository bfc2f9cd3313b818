"""The local set: NATS, Postgres, Ray and the hosts on one machine, by one call.

Starts what the settings do not name an address for, all at once, and remembers in ``state.json``
exactly what it started. Refuses to touch any other process: ``down`` ends the recorded ones, told
apart by start time, and the processes that carry this set's mark.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from actors import caretaker, preflight, ray_head, state_file
from actors.driver import HostsDriver
from actors.options import DEFAULT_FACTORY
from actors.processes import ProcessRef, end, exclusive, identify, is_alive
from actors.state_file import SetRecord
from noetl_ray.config.convert import to_dict
from noetl_ray.config.environ import environ
from noetl_ray.config.settings import RaySettings, Settings
from noetl_ray.embedded.nats import NatsProcess, start_nats
from noetl_ray.embedded.ports import free_port
from noetl_ray.embedded.postgres import (
    ensure_database,
    start_postgres,
    stop_postgres,
    with_database,
)
from noetl_ray.errors import ConfigError, InternalError, NoetlError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOSTS_START_S = 60.0
HOSTS_STOP_S = 45.0
DEMO_DATABASE = "demo_noetl"
DEMO_CREDENTIAL = "pg_local"
_RAY_GRACE_S = 1.0
_NATS_GRACE_S = 10.0
_MENDING_S = 60.0
_HTTP_S = 10.0

_children: list[NatsProcess] = []
"""Servers this process started; dropping one would complain that its process still runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSet:
    """A running local set and how to reach its parts."""

    gateway_url: str
    token: str = field(repr=False)
    nats_url: str
    nats_token: str = field(repr=False)
    postgres_dsn: str = field(repr=False)
    ray_address: str
    dashboard_url: str
    data_dir: str
    pids: dict[str, int]
    """Essential processes that this set started, by what they are."""
    started: bool = False
    """Whether this call started it; False when it ran already."""
    timings_s: dict[str, float] = field(default_factory=dict)


def up(
    settings: Settings,
    *,
    factory: str = DEFAULT_FACTORY,
    python_path: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> LocalSet:
    """Start the local set of ``settings.data_dir``, or find it running.

    Args:
        settings: What to start; parts with an address of their own are used, not started.
        factory: ``module:function`` that opens the roles of a host.
        python_path: More folders the hosts import from.
        progress: Told what has come up.

    Returns:
        The set, all hosts running.

    Raises:
        ConflictError: Another ``up`` or ``down`` of this directory is under way.
        ConfigError, LogUnavailableError, StoreUnavailableError: A setting names what cannot be
            used; nothing was started.
        InternalError: Something did not come up; all that was started has been stopped again.
    """
    data_dir = Path(settings.data_dir).expanduser().absolute()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(data_dir):
        stale = state_file.read(data_dir)
        if stale is not None and stale.is_standing():
            with contextlib.suppress(NoetlError):
                stale = caretaker.mend(stale)
        if stale is not None and stale.is_whole():
            return _local_set(stale)
        if stale is not None:
            _take_down(stale)
        preflight.check(settings)
        start = _Start(replace(settings, data_dir=str(data_dir)), factory, python_path, progress)
        try:
            return start.run()
        except BaseException:
            start.abandon()
            raise


def find(data_dir: str | Path) -> LocalSet | None:
    """The set that runs in this directory, or None."""
    record = state_file.read(Path(data_dir).expanduser().absolute())
    if record is None or not (record.is_whole() or record.is_standing()):
        return None
    return _local_set(record)


def down(data_dir: str | Path) -> bool:
    """End the set of a directory: hosts, Ray, Postgres, NATS; data stay.

    Returns:
        Whether there was anything to end.

    Raises:
        ConflictError: An ``up`` or ``down`` of this directory is under way.
        InternalError: A process would not end; the message names it.
    """
    folder = Path(data_dir).expanduser().absolute()
    if not state_file.state_path(folder).exists():
        return False
    with _locked(folder):
        record = state_file.read(folder)
        if record is None:
            state_file.forget(folder)
            return False
        ended = _take_down(record)
        ray_head.forget(folder)
        return ended


def _locked(data_dir: Path) -> contextlib.AbstractContextManager[None]:
    return exclusive(
        data_dir / "up.lock",
        purpose="starting or stopping",
        patient_with=caretaker.MENDING,
        wait_s=_MENDING_S,
    )


class _Start:
    """One ``up`` under way: what is resolved so far and what must be undone if it fails."""

    def __init__(
        self,
        settings: Settings,
        factory: str,
        python_path: Sequence[str],
        progress: Callable[[str], None] | None,
    ) -> None:
        if settings.event_store.durability == "replicated" and not settings.event_store.url:
            key = "event_store.durability"
            reason = "one embedded server cannot replicate; set event_store.url to a NATS cluster"
            raise ConfigError(key, "replicated", reason)
        self._settings = settings
        self._data_dir = Path(settings.data_dir)
        self._factory = factory
        self._python_path = python_path
        self._progress = progress or (lambda _: None)
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._timings_s: dict[str, float] = {}
        self._driver: HostsDriver | None = None
        self._record = SetRecord(
            set_id=secrets.token_hex(8),
            data_dir=settings.data_dir,
            namespace=settings.ray.namespace,
            token=settings.gateway.token,
            nats_url=settings.event_store.url,
            nats_token=settings.event_store.token,
            postgres_dsn=settings.projection_stores.dsn,
            ray_address=settings.ray.address,
            ray_is_ours=not settings.ray.address,
            durability=settings.event_store.durability,
        )

    def run(self) -> LocalSet:
        """All of it."""
        state_file.save(self._record)
        if self._record.ray_is_ours:
            ray_head.ensure_token(self._data_dir)
        # The driver loads Ray while the servers start; it waits for its request.
        self._driver = _driver("start", self._record, self._data_dir, self._python_path)
        parts = self._missing_parts()
        with ThreadPoolExecutor(max_workers=len(parts) or 1) as pool:
            futures = [pool.submit(part) for part in parts]
            for future in futures:
                future.result()
        settings = self._resolved()
        request = {
            "settings": to_dict(settings),
            "factory": self._factory,
            "deadline_s": HOSTS_START_S,
        }
        answer = self._driver.ask(request, wait_s=HOSTS_START_S + HOSTS_STOP_S)
        self._note("hosts", gateway_url=answer["gateway_url"] or "")
        self._add_demo_credential(settings)
        refs = ray_head.processes(self._record.set_id) if self._record.ray_is_ours else []
        with self._lock:
            self._record = replace(
                self._record, ready=True, processes=(*self._record.processes, *refs)
            )
            state_file.save(self._record)
        self._timings_s["all"] = round(time.monotonic() - self._began, 2)
        return replace(_local_set(self._record), started=True, timings_s=self._timings_s)

    def abandon(self) -> None:
        """Undo whatever was started."""
        if self._driver is not None:
            self._driver.abandon()
        _take_down(self._record)

    def _missing_parts(self) -> list[Callable[[], None]]:
        parts: list[Callable[[], None]] = []
        if self._record.ray_is_ours:
            parts.append(self._start_ray)
        if not self._settings.projection_stores.dsn:
            parts.append(self._start_postgres)
        if not self._settings.event_store.url:
            parts.append(self._start_nats)
        return parts

    def _start_nats(self) -> None:
        token = secrets.token_hex(24)
        durability = self._settings.event_store.durability
        server = start_nats(
            self._data_dir / "nats",
            token=token,
            durability="disk" if durability == "disk" else "process",
            detached=True,
        )
        _children.append(server)
        self._note("nats", server.pid, nats_url=server.url, nats_token=token)

    def _start_postgres(self) -> None:
        folder = _postgres_dir(self._data_dir)
        server = start_postgres(folder, detached=True)
        self._note("postgres", server.pid, postgres_dsn=server.dsn)
        asyncio.run(ensure_database(server.dsn, DEMO_DATABASE))

    def _start_ray(self) -> None:
        head = ray_head.start_ray(
            self._settings.ray,
            self._data_dir,
            set_id=self._record.set_id,
            python_path=self._python_path,
        )
        self._note("ray", ray_address=head.address, dashboard_url=head.dashboard_url or "")

    def _note(self, title: str, pid: int | None = None, **facts: str) -> None:
        """Remember at once what now runs: an ``up`` that is killed here can still be cleaned up."""
        with self._lock:
            self._timings_s[title] = round(time.monotonic() - self._began, 2)
            self._record = replace(self._record, **facts)  # type: ignore[arg-type]
            ref = identify(pid, title) if pid is not None else None
            if pid is not None and ref is None:
                msg = f"{title} ended right after its start"
                raise InternalError(msg)
            if ref is not None:
                self._record = self._record.with_process(ref)
            state_file.save(self._record)
        self._progress(title)

    def _resolved(self) -> Settings:
        """The settings as the hosts need them: every address filled in."""
        settings, record = self._settings, self._record
        gateway = settings.gateway
        # A fixed port, so that the gateway has the same address after its host restarts.
        port = gateway.port or free_port()
        return replace(
            settings,
            event_store=replace(settings.event_store, url=record.nats_url, token=record.nats_token),
            projection_stores=replace(settings.projection_stores, dsn=record.postgres_dsn),
            gateway=replace(gateway, port=port),
            ray=replace(settings.ray, address=record.ray_address),
        )

    def _add_demo_credential(self, settings: Settings) -> None:
        if not self._record.gateway_url or self._settings.projection_stores.dsn:
            return
        dsn = with_database(self._record.postgres_dsn, DEMO_DATABASE)
        token = settings.gateway.token
        response = httpx.post(
            f"{self._record.gateway_url}/api/credentials",
            json={"name": DEMO_CREDENTIAL, "type": "postgres", "data": {"dsn": dsn}},
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_HTTP_S,
        )
        if response.is_error:
            msg = f"cannot register credential {DEMO_CREDENTIAL}: {response.text[:500]}"
            raise InternalError(msg)


def _take_down(record: SetRecord) -> bool:
    """End everything a record names, hosts first; raises when something survives."""
    data_dir = Path(record.data_dir)
    ours = ray_head.processes(record.set_id) if record.ray_is_ours else []
    recorded = [ref for ref in record.processes if is_alive(ref)]
    had_any = bool(ours or recorded)
    # Without its servers Ray cannot be asked, and its hosts are dead or dying.
    answers = {ref.title for ref in ours} >= {"gcs_server", "raylet"} or not record.ray_is_ours
    if record.ray_address and answers:
        _stop_hosts(record, data_dir)
    servers = [ref for ref in recorded if ref.title in state_file.SERVERS]
    survivors = end(_ray_processes(record), grace_s=_RAY_GRACE_S)
    # Once more: a raylet that was being ended may still have begun a worker.
    survivors += end(_ray_processes(record), grace_s=0)
    if any(ref.title == "postgres" for ref in servers):
        stop_postgres(_postgres_dir(data_dir))
    survivors += end(servers, grace_s=_NATS_GRACE_S)
    if survivors := [ref for ref in survivors if is_alive(ref)]:
        names = ", ".join(f"{ref.title} ({ref.pid})" for ref in survivors)
        msg = f"these processes would not end: {names}"
        raise InternalError(msg)
    for child in _children:
        if child.process is not None:
            child.process.poll()
    state_file.forget(data_dir)
    return had_any


def _ray_processes(record: SetRecord) -> list[ProcessRef]:
    """What runs of our Ray now, and what was recorded of it and has lost its parents since."""
    if not record.ray_is_ours:
        return []
    recorded = {ref for ref in record.processes if ref.title not in state_file.SERVERS}
    return list(recorded.union(ray_head.processes(record.set_id)))


def _stop_hosts(record: SetRecord, data_dir: Path) -> None:
    settings = Settings(ray=RaySettings(address=record.ray_address, namespace=record.namespace))
    driver = _driver("stop", record, data_dir, ())
    try:
        driver.ask({"settings": to_dict(settings)}, wait_s=HOSTS_STOP_S)
    except InternalError:
        # A Ray that no longer answers must not keep us from ending it.
        if not record.ray_is_ours:
            raise


def _driver(
    verb: str, record: SetRecord, data_dir: Path, python_path: Sequence[str]
) -> HostsDriver:
    joining = ray_head.client_environment(data_dir) if record.ray_is_ours else {}
    return HostsDriver(
        verb,
        log_path=data_dir / f"hosts-{verb}.log",
        environment={
            **environ(),
            **joining,
            "PYTHONPATH": ray_head.import_path(python_path),
        },
    )


def _postgres_dir(data_dir: Path) -> Path:
    return data_dir / "postgres"


def _local_set(record: SetRecord) -> LocalSet:
    return LocalSet(
        gateway_url=record.gateway_url,
        token=record.token,
        nats_url=record.nats_url,
        nats_token=record.nats_token,
        postgres_dsn=record.postgres_dsn,
        ray_address=record.ray_address,
        dashboard_url=record.dashboard_url,
        data_dir=record.data_dir,
        pids={ref.title: ref.pid for ref in record.processes if ref.title in state_file.ESSENTIAL},
    )
