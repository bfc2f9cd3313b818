"""A real S3 server for a benchmark: seaweedfs on loopback, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import s3fs

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCESS, SECRET = "bench-access", "bench-secret-0123456789"
BUCKET = "bench"
START_S = 60.0
_PORTS = ("s3.port", "s3.port.grpc", "master.port", "master.port.grpc")
_MORE_PORTS = ("volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")


@contextlib.contextmanager
def s3_server(home: Path) -> Iterator[str]:
    """The endpoint of a running server that has one bucket."""
    home.mkdir(parents=True, exist_ok=True)
    credentials = [{"accessKey": ACCESS, "secretKey": SECRET}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "bench", "credentials": credentials, "actions": actions}
    config = home / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = _free_ports(8)
    options = [f"-{name}={port}" for name, port in zip((*_PORTS, *_MORE_PORTS), ports, strict=True)]
    log = (home / "weed.log").open("wb")
    process = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "weed"),
            "server",
            f"-dir={home}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            f"-s3.config={config}",
            f"-s3.localSocket={home / 's3.sock'}",
            f"-filer.localSocket={home / 'filer.sock'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.volumeSizeLimitMB=256",
            "-volume.max=32",
            "-volume.preStopSeconds=0",
            *options,
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=home,
        env={"HOME": str(home), "TMPDIR": str(home)},
    )
    try:
        endpoint = f"http://127.0.0.1:{ports[0]}"
        _await_bucket(process, endpoint)
        yield endpoint
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        log.close()


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def _await_bucket(process: subprocess.Popen[bytes], endpoint: str) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            system = s3fs.S3FileSystem(
                key=ACCESS,
                secret=SECRET,
                endpoint_url=endpoint,
                config_kwargs={"connect_timeout": 2, "read_timeout": 10},
                skip_instance_cache=True,
            )
            if not system.exists(BUCKET):
                system.mkdir(BUCKET)
            system.pipe_file(f"{BUCKET}/ready", b"yes")
        except OSError:
            time.sleep(0.2)
        else:
            return
    msg = "seaweedfs did not start"
    raise RuntimeError(msg)
