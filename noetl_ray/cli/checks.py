"""What ``doctor`` looks at, one function per thing. Looks only; starts and changes nothing.

Every wait is bounded, and a check that cannot be made is a finding, not an error.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from noetl_ray.config.environ import environ
from noetl_ray.errors import NoetlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from noetl_ray.config.settings import PayloadStoreSettings, Settings

WAIT_S = 5.0
_DISTRIBUTION = "noetl-ray"
_PYTHON_MIN = (3, 11)
_RAY_WORKER_PORTS = range(10_002, 20_000)
_DISK_MIN_BYTES = 1 << 30
_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)")

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report; ``advice`` says what to do when it is not ok."""

    name: str
    state: State
    detail: str
    advice: str = ""


def check_python() -> Finding:
    """The interpreter."""
    version = platform.python_version()
    if sys.version_info[:2] >= _PYTHON_MIN:
        return Finding(name="python", state="ok", detail=version)
    return Finding(name="python", state="fail", detail=version, advice="use Python 3.11 or newer")


def check_packages() -> Finding:
    """Installed versions against what this release was tested with."""
    try:
        wanted = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        advice = "install it with: pip install -e . (or make check)"
        detail = f"{_DISTRIBUTION} itself is not installed"
        return Finding(name="packages", state="warn", detail=detail, advice=advice)
    missing, other = [], []
    pins = [_PIN.match(line) for line in wanted if "extra ==" not in line]
    for pin in (match for match in pins if match):
        name, version = pin.groups()
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{name}=={version}")
            continue
        if installed != version:
            other.append(f"{name} {installed} (tested: {version})")
    advice = "install the tested set with: pip install -r requirements.lock"
    if missing:
        detail = f"missing: {', '.join(missing)}"
        return Finding(name="packages", state="fail", detail=detail, advice=advice)
    if other:
        return Finding(name="packages", state="warn", detail=", ".join(other), advice=advice)
    return Finding(name="packages", state="ok", detail=f"{len(pins)} at their tested versions")


def check_java(settings: Settings | None = None) -> Finding:
    """Java 17, which only Spark needs."""
    from noetl_ray.lake.java import ADVICE, WANTED, find_java

    named = settings.spark.java_home if settings else ""
    try:
        home = find_java(named, environ())
    except UsageError as error:
        detail = error.message.partition(f"; {ADVICE}")[0]
        advice = f"only Spark needs it: {ADVICE}"
        return Finding(name="java", state="warn", detail=detail, advice=advice)
    return Finding(name="java", state="ok", detail=f"{WANTED} at {home}")


def check_port(settings: Settings, *, is_up: bool) -> Finding:
    """The gateway's port, when one is fixed."""
    host, port = settings.gateway.host, settings.gateway.port
    if port == 0:
        return Finding(name="gateway port", state="ok", detail="a free one is taken at start")
    if port in _RAY_WORKER_PORTS:
        detail = f"{port} is in the range Ray gives to its workers"
        advice = "choose gateway.port below 10002 or above 19999"
        return Finding(name="gateway port", state="warn", detail=detail, advice=advice)
    if is_up:
        return Finding(name="gateway port", state="ok", detail=f"{port}, in use by the set here")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            advice = "set gateway.port to another one, or 0 for any"
            detail = f"{host}:{port}: {error.strerror}"
            return Finding(name="gateway port", state="fail", detail=detail, advice=advice)
    return Finding(name="gateway port", state="ok", detail=f"{port} is free")


def check_shared_memory(settings: Settings, folder: Path = Path("/dev/shm")) -> Finding:
    """Room for Ray's object store, when Ray is started here."""
    wanted_mb = settings.ray.object_store_mb
    if settings.ray.address:
        detail = "not needed here: Ray runs elsewhere"
        return Finding(name="shared memory", state="ok", detail=detail)
    if not folder.is_dir():
        detail = f"{folder} is not there; Ray falls back to slower files"
        return Finding(name="shared memory", state="warn", detail=detail, advice="mount a tmpfs")
    free_mb = shutil.disk_usage(folder).free >> 20
    detail = f"{free_mb} MB free in {folder}, {wanted_mb} MB wanted"
    if free_mb >= wanted_mb:
        return Finding(name="shared memory", state="ok", detail=detail)
    advice = "lower ray.object_store_mb, or give more (docker: --shm-size=1g)"
    return Finding(name="shared memory", state="warn", detail=detail, advice=advice)


def check_data_dir(data_dir: Path) -> Finding:
    """Whether data can be kept."""
    existing = data_dir
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        advice = "choose another with --data-dir, or change who may write there"
        detail = f"{data_dir}: {existing} cannot be written"
        return Finding(name="data directory", state="fail", detail=detail, advice=advice)
    free = shutil.disk_usage(existing).free
    detail = f"{data_dir}, {free >> 30} GB free"
    if free < _DISK_MIN_BYTES:
        advice = "make room: the log and the results lie there"
        return Finding(name="data directory", state="warn", detail=detail, advice=advice)
    return Finding(name="data directory", state="ok", detail=detail)


async def check_nats(settings: Settings) -> Finding:
    """The configured NATS server."""

    async def attempt() -> str:
        from noetl_ray.wal.connection import connect

        store = settings.event_store
        client = await connect(store.url, store.token or None, name="noetl-doctor")
        try:
            info = await client.jetstream().account_info()
        finally:
            await client.close()
        return f"reachable, JetStream with {info.streams} streams"

    advice = "check event_store.url and event_store.token, and that JetStream is enabled"
    return await _attempt("nats", attempt(), advice)


async def check_postgres(settings: Settings) -> Finding:
    """The configured Postgres."""

    async def attempt() -> str:
        import asyncpg

        connection = await asyncpg.connect(settings.projection_stores.dsn, timeout=WAIT_S)
        try:
            version = await connection.fetchval("show server_version")
        finally:
            await connection.close(timeout=WAIT_S)
        return f"reachable, version {version}"

    advice = "check projection_stores.dsn and that the server lets this machine in"
    return await _attempt("postgres", attempt(), advice)


async def check_objects(settings: Settings) -> Finding:
    """The configured object store: listing is enough to know address, bucket and rights."""

    async def attempt() -> str:
        await asyncio.to_thread(_list_objects, settings.payload_store)
        return f"reachable at {settings.payload_store.url}"

    advice = "check payload_store.url, endpoint_url and the keys, and that the bucket exists"
    return await _attempt("object store", attempt(), advice)


async def check_ray(settings: Settings) -> Finding:
    """The configured Ray cluster: whether its port answers."""
    address = settings.ray.address
    parts = urlsplit(address if "://" in address else f"ray://{address}")

    async def attempt() -> str:
        if parts.hostname is None or parts.port is None:
            return f"{address} is resolved by Ray at start"
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.close()
        await writer.wait_closed()
        return f"port answers at {address}"

    advice = "check ray.address and that `ray status` works on the head"
    return await _attempt("ray", attempt(), advice)


async def _attempt(name: str, work: Awaitable[str], advice: str) -> Finding:
    try:
        detail = await asyncio.wait_for(work, WAIT_S * 2)
    except TimeoutError:
        detail = f"no answer in {WAIT_S * 2:g} s"
    except NoetlError as error:
        detail = error.message
    except Exception as error:  # drivers raise what they like; here it is only shown
        detail = f"{type(error).__name__}: {error}"
    else:
        return Finding(name=name, state="ok", detail=detail)
    return Finding(name=name, state="fail", detail=" ".join(detail.split()), advice=advice)


def _list_objects(store: PayloadStoreSettings) -> None:
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {}
    if store.url.startswith("s3://"):
        options = {"key": store.access_key or None, "secret": store.secret_key or None}
        if store.endpoint_url:
            options["endpoint_url"] = store.endpoint_url
    system, root = url_to_fs(store.url, use_listings_cache=False, **options)
    if store.url.startswith(("file://", "memory://")):
        return  # Made on first use.
    system.ls(root.split("/")[0], detail=False)
