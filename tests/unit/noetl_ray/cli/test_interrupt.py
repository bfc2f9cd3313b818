"""Ctrl-C during ``run``, sent to a real process: once cancels, twice leaves, both end with 130."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WAIT_S = 20


@pytest.fixture
def start(gateway: Any, folder: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start ``run`` and wait until it watches the execution, or its submit is held up."""
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
        moment = gateway.looked if gateway.may_submit.is_set() else gateway.submitting
        assert moment.wait(WAIT_S)
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


def test_once_while_the_submit_is_under_way_cancels_what_comes_of_it(
    gateway: Any, start: Any
) -> None:
    gateway.statuses = ["RUNNING"]
    gateway.cancel_refusals = 2
    gateway.may_submit.clear()
    process = start()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    gateway.may_submit.set()
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    assert gateway.cancelled.is_set()
    assert "CANCELLED" in err
    assert "Traceback" not in err


def test_twice_while_the_submit_is_under_way_leaves(gateway: Any, start: Any) -> None:
    gateway.may_submit.clear()
    process = start()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, err = process.communicate(timeout=WAIT_S)
    gateway.may_submit.set()
    assert process.returncode == 130, err
    assert err == "interrupted\n"
