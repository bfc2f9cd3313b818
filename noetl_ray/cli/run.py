"""``run`` and ``submit``: a playbook from file to end, with live progress and an orderly Ctrl-C.

Owns the workload given on the command line. The first Ctrl-C cancels the execution and waits a
little, the second leaves at once; a set that ``run`` started itself is stopped in every case.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import yaml
from rich.live import Live

from noetl_ray.cli.catalog import is_file_name, named
from noetl_ray.cli.context import (
    COMPLETED,
    FAILED,
    INTERRUPTED,
    Gateway,
    ask,
    known_gateway,
    open_client,
    read_input,
)
from noetl_ray.cli.interrupts import counted, unbroken
from noetl_ray.cli.render import is_terminal, plain, status_of, status_view, step_lines
from noetl_ray.cli.setup import checked_playbook
from noetl_ray.errors import (
    ConflictError,
    LogUnavailableError,
    NotFoundError,
    StoreUnavailableError,
    UsageError,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine, Iterator

    from noetl_ray.cli.context import Context
    from noetl_ray.cli.interrupts import Presses
    from noetl_ray.client import Client

POLL_S = 0.25
CANCEL_WAIT_S = 10.0
OUTAGE_MAX_S = 30.0
"""How long `run` bears a gateway that does not answer, e.g. while its host restarts."""


def run(context: Context) -> int:
    """Submit and wait; start a set for it when none is up."""
    playbook = _playbook(context)
    workload = workload_of(context.args)
    with started_gateway(context) as gateway:
        return asyncio.run(_run(context, gateway, playbook, workload))


def submit(context: Context) -> int:
    """Submit and return with the id."""
    playbook = _playbook(context)
    workload = workload_of(context.args)
    execution_id = ask(context, lambda client: _submit(context, client, playbook, workload))
    if context.json:
        context.emit({"execution_id": str(execution_id)})
    else:
        context.out.print(str(execution_id), highlight=False)
        context.say(f"follow it with: noetl-ray status {execution_id}")
    return COMPLETED


@contextlib.contextmanager
def started_gateway(context: Context) -> Iterator[Gateway]:
    """The known gateway, or that of a set which lives only as long as this block."""
    gateway = known_gateway(context)
    if gateway is not None:
        yield gateway
        return
    from actors import local

    context.say("nothing is up here; starting a local set for this run")
    made = local.up(context.settings, progress=lambda part: context.say(f"  {part} is up"))
    try:
        yield Gateway(url=made.gateway_url, token=made.token)
    finally:
        # `up` may have found a set that someone else started meanwhile: that one stays.
        if made.started:
            context.say("stopping the local set")
            with unbroken():
                local.down(made.data_dir)


def workload_of(args: argparse.Namespace) -> dict[str, Any]:
    """The workload from ``--workload``, with every ``--set`` on top.

    Raises:
        UsageError: one of them cannot be read.
    """
    workload: dict[str, Any] = {}
    if args.workload is not None:
        given = _yaml(read_input(args.workload), f"workload file {args.workload}")
        if given is not None and not isinstance(given, dict):
            msg = f"workload file {args.workload} must hold a mapping"
            raise UsageError(msg)
        workload.update(given or {})
    for text in args.sets:
        key, mark, value = text.partition("=")
        *outer, last = key.split(".")
        if not mark or not all([*outer, last]):
            msg = f"--set {text!r} must look like KEY=VALUE or OUTER.KEY=VALUE"
            raise UsageError(msg)
        place = workload
        for name in outer:
            inner = place.setdefault(name, {})
            if not isinstance(inner, dict):
                msg = f"--set {text!r}: {name!r} holds a value, so nothing can stand below it"
                raise UsageError(msg)
            place = inner
        place[last] = _yaml(value, f"--set {text!r}")
    return workload


async def submit_and_watch(
    context: Context,
    client: Client,
    submitting: Coroutine[Any, Any, int],
    *,
    timeout_s: float | None = None,
) -> tuple[int, dict[str, Any]]:
    """Show an execution until it ends; returns the exit code and the last status."""
    with counted() as presses:
        execution_id = await presses.bear(submitting)
        context.say(f"execution {execution_id}")
        watcher = _Watcher(context, client, execution_id, timeout_s, presses)
        with watcher.view:
            return await watcher.watch()


def _playbook(context: Context) -> dict[str, Any]:
    """What to submit: the text of a file, checked, or a path and version of the catalog."""
    args = context.args
    if not is_file_name(args.playbook):
        wanted = named(args.playbook, args.playbook_version)
        return {"path": wanted.path, "version": wanted.version}
    if args.playbook_version is not None:
        msg = f"--version is for paths of the catalog, and {args.playbook} is a file"
        raise UsageError(msg)
    return {"playbook": checked_playbook(context)}


async def _run(
    context: Context, gateway: Gateway, playbook: dict[str, Any], workload: dict[str, Any]
) -> int:
    async with open_client(context, gateway) as client:
        code, status = await submit_and_watch(
            context,
            client,
            _submit(context, client, playbook, workload),
            timeout_s=context.args.timeout,
        )
    if context.json:
        context.emit(status)
    return code


async def _submit(
    context: Context, client: Client, playbook: dict[str, Any], workload: dict[str, Any]
) -> int:
    started = await client.submit(
        **playbook, workload=workload, idempotency_key=context.args.idempotency_key
    )
    for warning in started.warnings:
        context.say(f"warning: {warning}")
    if started.duplicate:
        context.say("this idempotency key was used before; this is that execution")
    return started.execution_id


class _Watcher:
    """One execution being watched: what was seen, and what the person asked for meanwhile."""

    def __init__(
        self,
        context: Context,
        client: Client,
        execution_id: int,
        timeout_s: float | None,
        presses: Presses,
    ) -> None:
        self._context = context
        self._client = client
        self._id = execution_id
        self._began = time.monotonic()
        self._timeout_s = timeout_s
        self._status: dict[str, Any] = {"execution_id": str(execution_id), "status": "SUBMITTED"}
        self._answered = self._began
        self._presses = presses
        self._cancelled_at: float | None = None
        self._cancel_arrived = False
        self._live: Live | None = None
        if context.err.is_terminal and not context.json:
            self._live = Live(console=context.err, refresh_per_second=8, transient=False)
        self.view: contextlib.AbstractContextManager[Any] = self._live or contextlib.nullcontext()

    async def watch(self) -> tuple[int, dict[str, Any]]:
        while True:
            await self._look()
            if is_terminal(self._status):
                return self._ended()
            if self._presses.count >= 2:
                self._say_left("left at once")
                return INTERRUPTED, self._status
            if self._presses.count:
                await self._cancel("interrupted from the command line")
            elif self._timed_out():
                await self._cancel(f"not done after {self._timeout_s:g} s")
            if self._cancelled_at is not None and _since(self._cancelled_at) > CANCEL_WAIT_S:
                self._say_left(f"not stopped yet after {CANCEL_WAIT_S:g} s")
                return (INTERRUPTED if self._presses.count else FAILED), self._status
            await self._presses.pause(POLL_S)

    async def _look(self) -> None:
        try:
            status = plain(await self._client.execution(self._id))
        except (NotFoundError, LogUnavailableError, StoreUnavailableError):
            # Just submitted and not projected yet, or the gateway restarts: it comes back.
            if _since(self._answered) > OUTAGE_MAX_S:
                self._say_left("no answer any more")
                raise
            return
        self._answered = time.monotonic()
        if self._live is None:
            for line in step_lines(self._status, status):
                self._context.say(f"  {line}")
        else:
            self._live.update(status_view(status, _since(self._began)))
        self._status = status

    async def _cancel(self, reason: str) -> None:
        if self._cancelled_at is None:
            self._cancelled_at = time.monotonic()
            self._context.say(
                f"cancelling execution {self._id} ({reason}); Ctrl-C again leaves at once"
            )
        if self._cancel_arrived:
            return
        # A gateway that restarts, or does not know the execution yet, is asked again next time;
        # one that says it has ended will show so.
        with contextlib.suppress(
            ConflictError, LogUnavailableError, NotFoundError, StoreUnavailableError
        ):
            await self._client.cancel(self._id, reason)
            self._cancel_arrived = True

    def _ended(self) -> tuple[int, dict[str, Any]]:
        if self._live is not None:
            self._live.update(status_view(self._status, _since(self._began)))
        elif not self._context.json:
            self._context.err.print(status_view(self._status, _since(self._began)))
        word = status_of(self._status)
        if word == "COMPLETED":
            return COMPLETED, self._status
        return (INTERRUPTED if self._presses.count else FAILED), self._status

    def _say_left(self, why: str) -> None:
        asked = "was asked to stop" if self._cancelled_at is not None else "goes on"
        self._context.say(
            f"{why}: execution {self._id} {asked}; look again with: noetl-ray status {self._id}"
        )

    def _timed_out(self) -> bool:
        return self._timeout_s is not None and _since(self._began) > self._timeout_s


def _since(moment: float) -> float:
    return time.monotonic() - moment


def _yaml(text: str, what: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        msg = f"{what} is not YAML: {' '.join(str(error).split())}"
        raise UsageError(msg) from None
