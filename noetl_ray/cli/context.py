"""What every verb needs: settings, two consoles, and a way to the gateway.

Owns the exit codes and the rule where output goes: machine output on stdout alone, everything for
people that is not the answer itself on stderr. Imports nothing heavy until a verb asks for it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from noetl_ray.config.environ import environ
from noetl_ray.config.load import load_settings
from noetl_ray.config.settings import Settings
from noetl_ray.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from noetl_ray.client import Client

COMPLETED = 0
FAILED = 1
BAD_USE = 2
INTERRUPTED = 130

_INPUT_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Where to send requests."""

    url: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One call of the command line."""

    args: argparse.Namespace
    settings: Settings
    out: Console
    err: Console

    @property
    def json(self) -> bool:
        """Whether stdout belongs to a program."""
        return bool(self.args.json)

    def emit(self, value: Any) -> None:
        """One JSON value on one line of stdout."""
        sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """A line for a person, on stderr; ``text`` is not markup."""
        self.err.print(text, markup=False, highlight=False, soft_wrap=True)

    @property
    def data_dir(self) -> Path:
        """Where a local set lives."""
        return Path(self.settings.data_dir)


def open_context(args: argparse.Namespace) -> Context:
    """Load the settings and make the consoles."""
    overrides: dict[str, object] = {}
    if args.data_dir is not None:
        overrides["data_dir"] = args.data_dir
    settings = load_settings(args.config, environ=environ(), overrides=overrides)
    return Context(args=args, settings=settings, out=Console(), err=Console(stderr=True))


def known_gateway(context: Context) -> Gateway | None:
    """The gateway that was named, or that of the set in the data directory, or None.

    Raises:
        UsageError: the token file cannot be read.
    """
    args = context.args
    token = _token(args.token_file) if args.token_file else context.settings.gateway.token
    if args.address:
        if not args.address.startswith(("http://", "https://")):
            msg = f"--address {args.address!r} must start with http:// or https://"
            raise UsageError(msg)
        return Gateway(url=args.address.rstrip("/"), token=token)
    from actors.local import find

    local = find(context.data_dir)
    if local is None:
        return None
    return Gateway(url=local.gateway_url, token=token or local.token)


def the_gateway(context: Context) -> Gateway:
    """The gateway, compulsory.

    Raises:
        UsageError: there is none, with what to do.
    """
    gateway = known_gateway(context)
    if gateway is None:
        msg = (
            f"nothing runs in {context.data_dir}; start it with `noetl-ray up`, "
            "or name a gateway with --address URL"
        )
        raise UsageError(msg)
    return gateway


@contextlib.asynccontextmanager
async def open_client(context: Context, gateway: Gateway) -> AsyncIterator[Client]:
    """A client of that gateway in the tenant of the settings."""
    from noetl_ray.client import Client

    runtime = context.settings.runtime
    async with Client(
        gateway.url,
        token=gateway.token or None,
        tenant=runtime.tenant_id,
        organization=runtime.organization_id,
    ) as client:
        yield client


def ask(context: Context, action: Callable[[Client], Awaitable[Any]]) -> Any:
    """One question to the compulsory gateway, from outside any event loop."""
    gateway = the_gateway(context)

    async def call() -> Any:
        async with open_client(context, gateway) as client:
            return await action(client)

    return asyncio.run(call())


def read_input(source: str | Path | None) -> str:
    """The text of a file, or of stdin for ``-`` or None.

    Raises:
        UsageError: it cannot be read, or is too large to be meant.
    """
    stdin = source is None or str(source) == "-"
    if stdin and sys.stdin.isatty():
        sys.stderr.write("reading from the terminal; end with Ctrl-D\n")
    try:
        data = sys.stdin.buffer.read() if stdin else Path(str(source)).read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        msg = f"cannot read {source}: {error.strerror}"
        raise UsageError(msg) from None
    except UnicodeDecodeError:
        msg = f"{source} is not UTF-8 text"
        raise UsageError(msg) from None
    if len(data) > _INPUT_BYTES_MAX:
        msg = f"{source} is larger than {_INPUT_BYTES_MAX} bytes"
        raise UsageError(msg)
    return text


def _token(path: Path) -> str:
    token = read_input(path).strip()
    if not token:
        msg = f"token file {path} is empty"
        raise UsageError(msg)
    return token
