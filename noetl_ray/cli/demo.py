"""``demo``: the whole thing once, from nothing to rows in a table, and everything stopped again.

Owns the fixture API process it starts. Needs the ``examples`` folder of the repository.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

import noetl_ray
from noetl_ray.cli.context import COMPLETED, open_client, read_input
from noetl_ray.cli.render import data_table, steps_of
from noetl_ray.cli.run import started_gateway, submit_and_watch
from noetl_ray.config.environ import environ
from noetl_ray.errors import InternalError, NoetlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.cli.context import Context, Gateway
    from noetl_ray.client import Client

API_START_S = 30.0
API_STOP_S = 5.0
DEMO_TIMEOUT_S = 300.0
_POLL_S = 0.05


def run_demo(context: Context) -> int:
    """Start what is needed, run the demo playbook, show what it did, stop what was started."""
    if context.args.spark:
        return _run_spark(context)
    text = read_input(playbook_path())
    with fixture_api() as api_url, started_gateway(context) as gateway:
        context.say(f"a small API to read from answers at {api_url}")
        code, status = asyncio.run(_run(context, gateway, text, {"api_url": api_url}))
    if context.json:
        context.emit(status)
    elif code == COMPLETED:
        _say_next(context, str(status.get("execution_id", "")))
    return code


def _run_spark(context: Context) -> int:
    """The same for a playbook whose steps aggregate an earlier result on Spark."""
    from noetl_ray.lake.java import find_java

    # Better now than after a minute.
    find_java(context.settings.spark.java_home, environ())
    text = read_input(playbook_path("spark"))
    with started_gateway(context) as gateway:
        context.say("the first step on Spark starts a session in the cluster: half a minute or so")
        code, status = asyncio.run(_run(context, gateway, text, {}))
    if context.json:
        context.emit(status)
    elif code == COMPLETED:
        _say_next(context, str(status.get("execution_id", "")))
    return code


def playbook_path(name: str = "demo") -> Path:
    """A demo playbook in the checkout this package runs from.

    Raises:
        UsageError: there is no checkout around it.
    """
    path = Path(noetl_ray.__file__).resolve().parents[1] / "examples" / name / "playbook.yaml"
    if not path.is_file():
        msg = f"the demo needs a checkout of the repository: there is no {path}"
        raise UsageError(msg)
    return path


@contextlib.contextmanager
def fixture_api(*options: str) -> Iterator[str]:
    """A fixture API that lives as long as this block; options are those of its command line.

    Raises:
        InternalError: it did not come up.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "noetl_ray.testing.fixture_api", "--port", str(port), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Its own group, so that a Ctrl-C in the terminal reaches us alone and we end it in order.
        process_group=0,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _await_answer(f"{url}/health", process)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(API_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _run(
    context: Context, gateway: Gateway, text: str, workload: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    async with open_client(context, gateway) as client:

        async def submit() -> int:
            started = await client.submit(playbook=text, workload=workload)
            return started.execution_id

        code, status = await submit_and_watch(context, client, submit(), timeout_s=DEMO_TIMEOUT_S)
        if code == COMPLETED and not context.json:
            await _show_rows(context, client, int(status["execution_id"]), status)
        return code, status


async def _show_rows(
    context: Context, client: Client, execution_id: int, status: dict[str, Any]
) -> None:
    """The rows of the last step that gave any."""
    last = status.get("final_step")
    names = [str(last)] if last else []
    names += [name for name in reversed(steps_of(status)) if name not in names]
    for name in names:
        try:
            found = await client.result(execution_id, name)
        except NoetlError:
            continue  # Not every step gives something.
        table = data_table(found)
        if table is not None:
            context.out.print(f"\nwhat step {name} gave:", markup=False, highlight=False)
            context.out.print(table)
            return


def _say_next(context: Context, execution_id: str) -> None:
    context.say("\nthe log and the data are kept; look further with:")
    for command in (
        "noetl-ray up",
        f"noetl-ray status {execution_id}",
        f"noetl-ray events {execution_id}",
        "noetl-ray down",
    ):
        context.say(f"  {command}")


def _await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + API_START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            msg = f"the fixture API ended with {process.returncode} instead of answering"
            raise InternalError(msg)
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=1.0).is_success:
                return
        time.sleep(_POLL_S)
    msg = f"the fixture API gave no answer in {API_START_S:g} s"
    raise InternalError(msg)
