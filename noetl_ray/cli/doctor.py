"""``doctor``: every check, a table of what is well and what is not, and what to do about it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from noetl_ray.cli import checks
from noetl_ray.cli.context import COMPLETED, FAILED, Gateway, known_gateway, open_client
from noetl_ray.cli.render import styled
from noetl_ray.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from noetl_ray.cli.checks import Finding
    from noetl_ray.cli.context import Context


def doctor(context: Context) -> int:
    """Check, report, and return 1 when something stands in the way."""
    findings = examine(context)
    failed = any(finding.state == "fail" for finding in findings)
    if context.json:
        for finding in findings:
            context.emit(dataclasses.asdict(finding))
        return FAILED if failed else COMPLETED
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "what", "found"):
        table.add_column(title, no_wrap=title != "found")
    for finding in findings:
        found = Text(finding.detail)
        if finding.advice:
            found.append(f"\n→ {finding.advice}", style="dim")
        table.add_row(styled(finding.state), finding.name, found)
    context.out.print(table)
    context.say("something stands in the way; see fail above" if failed else "ready")
    return FAILED if failed else COMPLETED


def examine(context: Context) -> list[Finding]:
    """All findings, in the order a person would mend them."""
    settings = context.settings
    gateway = known_gateway(context)
    findings = [
        checks.check_python(),
        checks.check_packages(),
        checks.check_java(context.settings),
        checks.check_data_dir(context.data_dir),
        checks.check_shared_memory(settings),
        checks.check_port(settings, is_up=gateway is not None),
    ]
    return findings + asyncio.run(_reachable(context, gateway))


async def _reachable(context: Context, gateway: Gateway | None) -> list[Finding]:
    settings = context.settings
    work: list[Awaitable[Finding]] = []
    if settings.event_store.url:
        work.append(checks.check_nats(settings))
    if settings.projection_stores.dsn:
        work.append(checks.check_postgres(settings))
    if settings.payload_store.url:
        work.append(checks.check_objects(settings))
    if settings.ray.address:
        work.append(checks.check_ray(settings))
    work.append(_check_set(context, gateway))
    return list(await asyncio.gather(*work))


async def _check_set(context: Context, gateway: Gateway | None) -> Finding:
    if gateway is None:
        detail = f"nothing is up in {context.data_dir}; `noetl-ray up` starts it"
        return checks.Finding(name="local set", state="ok", detail=detail)
    advice = "see the logs in the data directory; `noetl-ray down` and `up` start afresh"
    try:
        async with open_client(context, gateway) as client:
            health = await asyncio.wait_for(client.health(), checks.WAIT_S)
    except TimeoutError:
        detail = f"{gateway.url} gave no answer in {checks.WAIT_S:g} s"
    except NoetlError as error:
        detail = error.message
    else:
        detail = f"{gateway.url} answers, version {health.version}"
        return checks.Finding(name="gateway", state="ok", detail=detail)
    return checks.Finding(name="gateway", state="fail", detail=detail, advice=advice)
