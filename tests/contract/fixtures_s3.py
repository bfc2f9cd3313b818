"""A real S3 server for contract tests: seaweedfs on loopback, in a folder of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import s3fs

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 45.0
STOP_S = 2.0
SOCKETS = Path("/tmp")
ACCESS_KEY = "contract-access"
SECRET_KEY = "contract-secret-0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """Where it listens and one bucket made for the tests."""

    endpoint_url: str
    bucket: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End the server and keep its files: what a client sees when a store is down."""
        self.process.kill()
        self.process.wait(STOP_S)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests of the session."""
    with running_s3(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@contextmanager
def running_s3(home: Path) -> Iterator[S3Server]:
    """A server of one's own, for those who want to stop it."""
    home.mkdir(parents=True, exist_ok=True)
    config = home / "s3.json"
    config.write_text(json.dumps(_config()))
    ports = _free_ports(8)
    with (home / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            [_weed(), "server", *_options(home, config, ports)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={"HOME": str(home), "TMPDIR": str(home)},
        )
        try:
            endpoint = f"http://127.0.0.1:{ports[0]}"
            _await_bucket(process, endpoint, home / "weed.log")
            yield S3Server(endpoint_url=endpoint, bucket="contract", process=process)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S)
            _remove_sockets(ports)


def _remove_sockets(ports: list[int]) -> None:
    """A killed seaweedfs leaves sockets where only its own code says: take away ours, by port."""
    for port in ports:
        for left in SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
            left.unlink(missing_ok=True)


def _weed() -> str:
    return str(Path(sys.executable).parent / "weed")


def _config() -> dict[str, object]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "contract", "credentials": credentials, "actions": actions}]}


def _options(home: Path, config: Path, ports: list[int]) -> list[str]:
    names = ("s3.port", "s3.port.grpc", "master.port", "master.port.grpc")
    names += ("volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    return [
        f"-dir={home}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        f"-s3.config={config}",
        f"-s3.localSocket={home / 's3.sock'}",
        f"-filer.localSocket={home / 'filer.sock'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=32",
        "-volume.preStopSeconds=0",
        *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
    ]


def _free_ports(count: int) -> list[int]:
    """Ports free at this moment; held together while choosing, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def _await_bucket(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    """Wait until a bucket can be made and written: the parts of the server come up one by one."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx.get(endpoint, timeout=1.0)
            system = s3fs.S3FileSystem(
                key=ACCESS_KEY,
                secret=SECRET_KEY,
                endpoint_url=endpoint,
                config_kwargs={"connect_timeout": 2, "read_timeout": 10},
                skip_instance_cache=True,
            )
            if not system.exists("contract"):
                system.mkdir("contract")
            system.pipe_file("contract/ready", b"yes")
            system.rm_file("contract/ready")
        except (OSError, httpx.HTTPError):
            time.sleep(0.2)
        else:
            return
    msg = f"seaweedfs did not start:\n{log.read_text(errors='replace')[-2_000:]}"
    raise RuntimeError(msg)
