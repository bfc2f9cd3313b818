"""A running set under fire: the work it is given, what can be done to it, and the verdict after.

The log and the payload store lie on small file systems of their own where this process may mount
some, so that a full disk is a full disk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from actors import state_file
from actors.local import LocalSet, down, up
from actors.processes import is_alive
from actors.ray_head import forget
from noetl_ray.cli.demo import fixture_api
from noetl_ray.config.settings import RaySettings, RuntimeSettings, Settings
from noetl_ray.wal.port import Recorded
from tests.support.history import Verdict, Work, judge
from tests.support.journal import records_of
from tests.support.patient import ask_patiently, ended, until
from tests.support.ray_agent import RayAgent

BOOK = (Path(__file__).parent / "faults.yaml").read_text()
HOSTS = ("noetl/hot/0", "noetl/views/0", "noetl/conductor/1", "noetl/worker/1")
SERVERS = ("nats", "postgres")
STORES = {"nats": "1800m", "objects": "24m"}
"""Folders of a set that get a file system of their own, and how large it is. What tasks print may
take 1 GiB, which the server reserves when it starts."""
LEFT_BYTES = 48 << 20
LEASE_MS = 5_000
ENDED_S = 240.0


@dataclass(slots=True, kw_only=True)
class Fire:
    """A set, the world outside it, and everything that was asked of it."""

    running: LocalSet
    ray: RayAgent
    api_url: str
    mounted: bool
    asked: list[Work] = field(default_factory=list)

    # Work

    def submit(self, count: int, *, delay_s: float) -> list[int]:
        """So many executions; the gateway may be away for a while."""
        workload = {"api_url": self.api_url, "delay_s": delay_s}
        ids: list[int] = []
        for number in range(count):
            key = f"fire-{len(self.asked)}-{number}-{time.monotonic_ns()}"
            started = ask_patiently(
                self.running,
                lambda client, key=key: client.submit(
                    playbook=BOOK, workload=workload, idempotency_key=key
                ),
                ENDED_S,
            )
            ids.append(started.execution_id)
            self.asked.append(_work(started.execution_id))
        return ids

    def begun(self, ids: list[int], step: str) -> None:
        """Wait until a payment of all these executions is under way."""
        wanted = {_key(each, step) for each in ids}
        until(lambda: wanted <= self._effects()["begun"].keys(), f"{step} of {ids}", wait_s=120)

    def has_begun(self, ids: list[int], step: str) -> list[int]:
        """Of which of these executions a payment was under way by now."""
        begun = self._effects()["begun"]
        return [each for each in ids if _key(each, step) in begun]

    def verdict(self) -> Verdict:
        """Wait for everything asked for, then judge all of it."""
        for work in self.asked:
            with contextlib.suppress(AssertionError):
                ended(self.running, work.execution_id, ENDED_S)
        found: list[Recorded] = []
        for work in self.asked:
            found += records_of(self.running, work.execution_id)
        order = httpx.get(f"{self.api_url}/api/v1/effects/order", timeout=30).json()["order"]
        ours = {str(work.execution_id) for work in self.asked}
        return judge(
            self.asked,
            [key for key in order if key.split("-")[0] in ours],
            sorted(found, key=lambda each: each.position),
        )

    def _effects(self) -> dict[str, Any]:
        return dict(httpx.get(f"{self.api_url}/api/v1/effects", timeout=30).json())

    # Faults

    def kill_host(self, name: str) -> str:
        """Kill -9; the incarnation that is no more."""
        told = self.ray.running(name)
        os.kill(told["pid"], signal.SIGKILL)
        return str(told["incarnation"])

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        pid = self.ray.running(name)["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_server(self, title: str) -> None:
        """Kill -9 of NATS or Postgres; the caretaker starts it again."""
        (ref,) = (each for each in self._record().processes if each.title == title)
        os.kill(ref.pid, signal.SIGKILL)
        until(lambda: not is_alive(ref), f"the end of {title}")

    def server_is_back(self, title: str) -> None:
        """Wait for the caretaker."""
        until(
            lambda: any(e.title == title and is_alive(e) for e in self._record().processes),
            f"{title} again",
            wait_s=60,
        )

    @contextlib.contextmanager
    def full(self, store: str) -> Iterator[None]:
        """Not one byte is left for the log or the payload store."""
        assert self.mounted
        ballast = Path(self.running.data_dir) / store / "ballast"
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size):
                        pass
        try:
            yield
        finally:
            ballast.unlink()

    def _record(self) -> state_file.SetRecord:
        record = state_file.read(Path(self.running.data_dir))
        assert record is not None
        return record


def _key(execution_id: int, step: str) -> str:
    return f"{execution_id}-{step}-1/{step}_task/1"


def _work(execution_id: int) -> Work:
    stages = (("pay_a", "pay_b"), ("pay_c",), ("pay_d",))
    return Work(
        execution_id=execution_id,
        stages=tuple(frozenset(_key(execution_id, step) for step in stage) for stage in stages),
    )


@contextlib.contextmanager
def fire(folder: Path, *, lease_ms: int = LEASE_MS) -> Iterator[Fire]:
    """A set with a second conductor and a second worker, until the block ends."""
    folder.chmod(0o711)
    settings = Settings(
        data_dir=str(folder),
        runtime=RuntimeSettings(conductors=2, workers=2, worker_lease_ms=lease_ms),
        ray=RaySettings(dashboard=False, num_cpus=2),
    )
    with _small_disks(folder) as mounted, fixture_api() as api_url:
        try:
            running = up(settings)
            if mounted:
                _leave_little(folder / "nats")
            agent = RayAgent(running)
            try:
                yield Fire(running=running, ray=agent, api_url=api_url, mounted=mounted)
            finally:
                agent.close()
        finally:
            down(folder)
            forget(folder)


def _leave_little(folder: Path) -> None:
    """Take most of a file system, so that filling the rest is a matter of a moment."""
    with (folder / "filler").open("wb") as file:
        space = os.statvfs(folder)
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - LEFT_BYTES)


@contextlib.contextmanager
def _small_disks(folder: Path) -> Iterator[bool]:
    made: list[Path] = []
    try:
        for name, size in STORES.items():
            place = folder / name
            place.mkdir(mode=0o700)
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(place)],
                check=False,
                capture_output=True,
            )
            if done.returncode:
                break
            made.append(place)
        yield len(made) == len(STORES)
    finally:
        for place in made:
            subprocess.run(["umount", "-l", str(place)], check=False)
