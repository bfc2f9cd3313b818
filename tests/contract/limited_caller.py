"""A worker process for the limiter's contract test: sends http tasks under shared limits.

Reads one JSON document from the command line and writes the statuses it got as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import HttpLimit
from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ToolError
from noetl_ray.tools.http import HttpTool
from noetl_ray.tools.limiter import limiter_of
from noetl_ray.tools.limiter_nats import NatsLimits
from noetl_ray.tools.port import ToolContext
from noetl_ray.wal.connection import connect


async def main(given: dict[str, Any]) -> None:
    connection = await connect(given["nats"], given["token"])
    limiter = limiter_of(
        [HttpLimit(**limit) for limit in given["limits"]],
        NatsLimits(connection),
        owner=given["owner"],
        clock=SystemClock(),
        wait_max_s=120,
    )
    tool = HttpTool(trust_env=False, limiter=limiter)
    seen: Counter[str] = Counter()

    async def credential(name: str) -> Credential:
        return Credential(name=name, type="bearer", data={"token": "t"})

    async def call(number: int) -> None:
        context = ToolContext(
            execution_id=1,
            step="s",
            task="t",
            attempt=1,
            idempotency_key=f"{given['owner']}/{number}",
            timeout_s=60,
            credential=credential,
            log=lambda _stream, _line: None,
        )
        config = {"url": given["url"], "params": given["params"], "auth": given.get("auth", "")}
        try:
            await tool.run(config, context)
            seen["ok"] += 1
        except ToolError as error:
            seen[error.kind] += 1

    print("ready", flush=True)
    await asyncio.gather(*(call(number) for number in range(given["calls"])))
    await tool.close()
    await connection.close()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
