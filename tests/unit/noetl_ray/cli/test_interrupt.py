"""Ctrl-C during ``run``, sent to a real process: once cancels, twice leaves, both end with 130."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 20


@pytest.fixture
def start(gateway: Any, folder: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start ``run`` and wait until it watches the execution."""
    made: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "noetl_ray.cli", "--address", gateway.url),
                *("--token-file", "token", "run", "hello.yaml"),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        made.append(process)
        assert gateway.looked.wait(WAIT_S)
        return process

    yield run
    for process in made:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_once_cancels_and_waits(gateway: Any, start: Any) -> None:
    gateway.statuses = ["RUNNING"]
    process = start()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    assert gateway.cancelled.is_set()
    assert "cancelling execution" in err
    assert "CANCELLED" in err
    assert "Traceback" not in err


def test_twice_leaves_at_once(gateway: Any, start: Any) -> None:
    gateway.statuses = ["RUNNING"]
    gateway.ends_on_cancel = False
    process = start()
    process.send_signal(signal.SIGINT)
    assert gateway.cancelled.wait(WAIT_S)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=5)
    assert process.returncode == 130, err
    assert "left at once" in err
    assert "was asked to stop" in err
    assert "Traceback" not in err
