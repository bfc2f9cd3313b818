"""The client: one method per thing the API can do, typed values in and out.

    async with Client("http://127.0.0.1:8082") as client:
        started = await client.submit(path="examples/hello", workload={"name": "Ada"})
        execution = await client.wait(started.execution_id)
        print(await client.result(started.execution_id, "start"))

Owns long polls and following; leaves retries of submits to the caller, who has the idempotency key.
"""

from __future__ import annotations

import asyncio
import io
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx

from noetl_ray.client.catalog import CatalogCalls
from noetl_ray.client.transport import Transport, error_from
from noetl_ray.client.upkeep import UpkeepCalls
from noetl_ray.client.values import (
    TERMINAL,
    CredentialSummary,
    Event,
    Execution,
    ExecutionStatus,
    Health,
    LogEntry,
    Request,
    Started,
    read,
)
from noetl_ray.errors import NoetlError, NotFoundError, StoreUnavailableError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    import pyarrow as pa

ARROW_FILE = "application/vnd.apache.arrow.file"
POLL_S = 0.2
LONG_POLL_S = 30.0
GRACE_S = 15.0
"""What a long poll's answer may take beyond the time asked for."""
PAGE = 1_000


class Client(CatalogCalls, UpkeepCalls):
    """An async client of one gateway, for one tenant and organization."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tenant: str | None = None,
        organization: str | None = None,
        timeout_s: float = 30.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            url: Where the gateway listens, as `noetl-ray status` shows it.
            token: The gateway's bearer token, where it has one.
            tenant: Whose executions; None leaves it to the gateway.
            organization: Likewise.
            timeout_s: How long one answer may take, long polls apart.
            http: A ready httpx client instead, left open on close.
        """
        headers = {
            "authorization": f"Bearer {token}" if token else "",
            "x-noetl-tenant": tenant or "",
            "x-noetl-organization": organization or "",
        }
        headers = {name: value for name, value in headers.items() if value}
        if http is None:
            made = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s)
            self._transport = Transport(made, owned=True)
        else:
            http.headers.update(headers)
            self._transport = Transport(http, owned=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of connections."""
        await self._transport.close()

    async def submit(
        self,
        path: str | None = None,
        *,
        playbook: str | None = None,
        digest: str | None = None,
        version: int | None = None,
        workload: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
        parent_execution_id: int | None = None,
    ) -> Started:
        """Submit an execution of a registered path or digest, or of a playbook's text."""
        asked = Request(
            path=path,
            playbook=playbook,
            digest=digest,
            version=version,
            workload=workload or {},
            idempotency_key=idempotency_key,
            parent_execution_id=parent_execution_id,
        )
        return read(Started, await self._call("POST", "/api/execute", asdict(asked)))

    async def submit_many(self, items: Sequence[Request]) -> list[Started | NoetlError]:
        """Submit many at once; an item that was refused has its error in its place."""
        body = {"items": [asdict(item) for item in items]}
        answer = await self._call("POST", "/api/execute/batch", body)
        found: list[Started | NoetlError] = []
        for item in answer["items"]:
            error = item.get("error")
            if error is None:
                found.append(read(Started, item))
            else:
                found.append(error_from(error, error["code"], error["message"]))
        return found

    async def execution(self, execution_id: int) -> Execution:
        """One execution."""
        return read(Execution, await self._call("GET", _at(execution_id)))

    async def status(self, execution_id: int) -> ExecutionStatus:
        """The short form, with variables."""
        return read(ExecutionStatus, await self._call("GET", _at(execution_id, "status")))

    async def executions(
        self,
        *,
        status: str | None = None,
        path: str | None = None,
        parent: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Newest first; ``before`` is the execution id to read on from.

        ``parent`` gives the children of that execution only.
        """
        answer = await self._get(
            "/api/executions", status=status, path=path, parent=parent, before=before, limit=limit
        )
        return [read(Execution, item) for item in answer["executions"]]

    async def wait(self, execution_id: int, *, timeout_s: float | None = None) -> Execution:
        """Wait until an execution has ended.

        Raises:
            StoreUnavailableError: it has not ended in time.
        """
        ended = await self.wait_many([execution_id], timeout_s=timeout_s)
        if execution_id not in ended:
            msg = f"execution {execution_id} has not ended within {timeout_s} s"
            raise StoreUnavailableError(msg)
        return ended[execution_id]

    async def wait_many(
        self, execution_ids: Iterable[int], *, timeout_s: float | None = None
    ) -> dict[int, Execution]:
        """Wait until all have ended or time is over; gives those that have."""
        pending = list(dict.fromkeys(execution_ids))
        ended: dict[int, Execution] = {}
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while pending:
            rest = LONG_POLL_S if deadline is None else deadline - time.monotonic()
            window = max(0.0, min(rest, LONG_POLL_S))
            chunk = pending[:PAGE]
            answer = await self._transport.call(
                "POST",
                "/api/executions/wait",
                body={"ids": [str(each) for each in chunk], "timeout": window},
                timeout_s=window + GRACE_S,
            )
            for item in answer["executions"]:
                found = read(Execution, item)
                ended[found.execution_id] = found
            pending = [each for each in pending if each not in ended]
            if deadline is not None and time.monotonic() >= deadline:
                break
        return ended

    async def events(
        self, execution_id: int, *, after: int = 0, follow: bool = False
    ) -> AsyncIterator[Event]:
        """Events in log order; ``follow`` goes on until the execution has ended."""
        path = _at(execution_id, "events")
        async for item in self._follow(path, "events", {}, after, follow):
            yield read(Event, item)

    async def logs(
        self,
        execution_id: int,
        *,
        step: str | None = None,
        after: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogEntry]:
        """Printed lines in order; ``follow`` goes on until the execution has ended."""
        path = _at(execution_id, "logs")
        async for item in self._follow(path, "lines", {"step": step}, after, follow):
            yield read(LogEntry, item)

    async def result(self, execution_id: int, step: str) -> Any:
        """What a step gave, as plain objects."""
        answer = await self._call("GET", _at(execution_id, "results", step))
        return answer["result"]

    async def result_table(self, execution_id: int, step: str) -> pa.Table:
        """What a step gave, as an Arrow table.

        Raises:
            UsageError: the result is not a table.
        """
        # Imported here so that a client without tables starts without Arrow.
        from pyarrow import ArrowInvalid, feather

        path = _at(execution_id, "results", step)
        answer = await self._transport.send("GET", path, accept=ARROW_FILE)
        try:
            return feather.read_table(io.BytesIO(answer.content))
        except ArrowInvalid:
            msg = f"the result of step {step!r} did not come as an Arrow file"
            raise UsageError(msg) from None

    async def cancel(
        self, execution_id: int, reason: str = "cancelled by request", *, cascade: bool = True
    ) -> None:
        """Ask an execution, and with ``cascade`` those it started, to stop; wait to see it end."""
        body = {"reason": reason, "cascade": cascade}
        await self._call("POST", _at(execution_id, "cancel"), body)

    async def pause(self, execution_id: int, reason: str = "paused by request") -> None:
        """Ask that nothing new of an execution begins; what runs finishes."""
        await self._call("POST", _at(execution_id, "pause"), {"reason": reason})

    async def resume(self, execution_id: int) -> None:
        """Let a paused execution go on."""
        await self._call("POST", _at(execution_id, "resume"), {})

    async def answer(
        self, execution_id: int, step: str, data: Any = None, *, index: int | None = None
    ) -> bool:
        """Answer what a step waits for; False when the same answer was given before."""
        query = "" if index is None else f"?index={index}"
        path = _at(execution_id, "callbacks", step) + query
        answer = await self._call("POST", path, {} if data is None else data)
        return not answer["duplicate"]

    async def tell(
        self,
        execution_id: int,
        name: str,
        data: dict[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> int:
        """Leave a fact in an execution's inbox; gives its event id, the first one's for a key."""
        body = {
            "execution_id": str(execution_id),
            "name": name,
            "data": data or {},
            "idempotency_key": idempotency_key,
        }
        return int((await self._call("POST", "/api/events", body))["event_id"])

    async def commands(
        self, execution_id: int, *, status: str | None = None
    ) -> list[dict[str, Any]]:
        """The commands of an execution in the order they were issued."""
        answer = await self._get("/api/commands", execution_id=execution_id, status=status)
        return list(answer["commands"])

    async def rerun(self, execution_id: int, *, from_step: str | None = None) -> Started:
        """Submit the same playbook version and workload anew.

        With ``from_step`` it goes on there and reuses what was done before; an empty one means the
        step that failed.
        """
        body = {} if from_step is None else {"from_step": from_step}
        return read(Started, await self._call("POST", _at(execution_id, "rerun"), body))

    async def credential_add(
        self, name: str, kind: str, data: dict[str, Any], *, description: str = ""
    ) -> None:
        """Add or replace a credential."""
        body = {"name": name, "type": kind, "data": data, "description": description}
        await self._call("POST", "/api/credentials", body)

    async def credential_list(self) -> list[CredentialSummary]:
        """All credentials, without their data."""
        answer = await self._call("GET", "/api/credentials")
        return [read(CredentialSummary, item) for item in answer["credentials"]]

    async def credential_remove(self, name: str) -> bool:
        """Remove a credential; False when there was none."""
        try:
            await self._call("DELETE", f"/api/credentials/{quote(name, safe='')}")
        except NotFoundError:
            return False
        return True

    async def health(self) -> Health:
        """How the gateway is; raises when it is not well."""
        answer = await self._call("GET", "/api/health")
        return read(Health, {**answer, "facts": answer})

    async def shards(self) -> list[dict[str, Any]]:
        """Every shard that was ever claimed: its owner, and how far it is kept."""
        answer = await self._call("GET", "/api/shards")
        return list(answer["shards"])

    async def workers(self) -> list[dict[str, Any]]:
        """Every worker ever seen, newest change first."""
        answer = await self._call("GET", "/api/workers")
        return list(answer["workers"])

    async def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        return await self._transport.call(method, path, body=body)

    async def _follow(
        self, path: str, items: str, params: dict[str, Any], after: int, follow: bool
    ) -> AsyncIterator[dict[str, Any]]:
        """Pages until there are no more; following, until none come after the end was seen."""
        ended_before = False
        while True:
            asked = {**params, "after": after, "limit": PAGE}
            answer = await self._transport.call("GET", path, params=asked)
            for item in answer[items]:
                yield item
            after = int(answer["next_after"])
            if answer[items]:
                ended_before = False
                continue
            ended = answer["status"] in TERMINAL
            # The end is seen before the last lines are: one more empty page after it is the end.
            if not follow or (ended and ended_before):
                return
            ended_before = ended
            await asyncio.sleep(POLL_S)


def _at(execution_id: int, *rest: str) -> str:
    parts = ("api", "executions", str(execution_id), *(quote(part, safe="") for part in rest))
    return "/" + "/".join(parts)
