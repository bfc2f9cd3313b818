"""The ``http`` kind: sends one request and judges the answer by the table of dsl section 6.

It owns the pooled clients, limits and the mapping of httpx's errors. It keeps no cookies, because
tasks of many executions share the clients, and gives credential headers to the named host only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, ClassVar

import httpx

from noetl_ray.errors import ToolError
from noetl_ray.tools.auth import pick, resolve_auth
from noetl_ray.tools.http_body import body_value, read_body
from noetl_ray.tools.http_request import Prepared, prepare
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ArtifactStore, ToolContext, ToolResult

if TYPE_CHECKING:
    from noetl_ray.tools.limiter import Limiter

CONFIG_KEYS: frozenset[str] = frozenset(
    {
        "args",
        "auth",
        "body",
        "credential",
        "data",
        "endpoint",
        "follow_redirects",
        "form",
        "headers",
        "idempotency_header",
        "input",
        "json",
        "method",
        "output_select",
        "params",
        "payload",
        "timeout",
        "timeout_seconds",
        "url",
        "verify",
        "verify_ssl",
    }
)
TIMEOUT_DEFAULT_S = 60.0
REDIRECTS_MAX = 10
_PORTS = {"http": 80, "https": 443}
_SERVICES = frozenset({"http", "bearer", "api_key", "basic", "oauth2"})
_SAFE_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)
"""All that another origin gets to see after a redirect."""
_FALSE_TEXTS = frozenset({"false", "0", "no", "off"})


class HttpTool:
    """Sends requests over kept-alive connections."""

    kind: ClassVar[str] = "http"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "http"
    text_keys: ClassVar[frozenset[str]] = frozenset({"url", "endpoint", "method"})

    def __init__(
        self,
        *,
        connections_max: int = 100,
        trust_env: bool = True,
        limiter: Limiter | None = None,
    ) -> None:
        """Make the tool.

        Args:
            connections_max: Open at once, over all hosts.
            trust_env: Lets httpx take proxies and certificates from outside.
            limiter: Limits that workers share.
        """
        self._limiter = limiter
        self._limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=20)
        self._trust_env = trust_env
        self._clients: dict[bool, httpx.AsyncClient] = {}

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Send the request; anything but a 2xx answer is a ToolError that carries R as its data."""
        auth = pick(await resolve_auth(config, context), _SERVICES)
        prepared = prepare(config, auth, context.idempotency_key)
        for name in prepared.secret_headers:
            # An echo of it would show the secret in another spelling, such as base64.
            context.conceal(prepared.headers[name].rpartition(" ")[2])
        limit = time_limit_s(config, context.timeout_s, TIMEOUT_DEFAULT_S)
        verify = _flag(config.get("verify_ssl", config.get("verify")), default=True)
        follow = _flag(config.get("follow_redirects"), default=True)
        client = self._client(verify)
        async with self._place(prepared, auth.name if auth else ""):
            # The wait for a place is no part of the exchange; the lease may have run out (P22).
            if self._limiter is not None:
                await context.still_ours()
            started = time.perf_counter()
            response, body = await self._send(client, prepared, follow, limit, context)
        value = body_value(response, body)
        result = _result(prepared, response, value, time.perf_counter() - started)
        if response.is_success:
            meta = {"status": response.status_code, "headers": result["headers"]}
            return ToolResult(data=result, meta=meta, ref=body if isinstance(body, dict) else None)
        raise _refused(prepared, response, result)

    def _place(self, prepared: Prepared, credential: str) -> AbstractAsyncContextManager[None]:
        if self._limiter is None:
            return contextlib.nullcontext()
        url = prepared.url
        return self._limiter.slot(url.host, url.port or _PORTS.get(url.scheme), credential)

    async def _send(
        self,
        client: httpx.AsyncClient,
        prepared: Prepared,
        follow: bool,
        limit: float | None,
        context: ToolContext,
    ) -> tuple[httpx.Response, bytes | dict[str, Any]]:
        try:
            async with asyncio.timeout(limit):
                return await _exchange(client, prepared, follow, context.artifacts)
        except TimeoutError:
            msg = f"{_where(prepared)} gave no answer within {limit:g} s"
            raise ToolError(msg, "timeout", True, {"timeout_s": limit}) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise map_error(error, _where(prepared)) from None
        except (ValueError, TypeError) as error:
            # httpx refuses header text it cannot put on the wire with the plain built-in errors.
            msg = f"{_where(prepared)} cannot be sent: {type(error).__name__}"
            raise ToolError(msg, "client_error") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._limiter is not None:
            await self._limiter.close()
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()

    def _client(self, verify: bool) -> httpx.AsyncClient:
        client = self._clients.get(verify)
        if client is None:
            client = httpx.AsyncClient(
                verify=verify,
                limits=self._limits,
                timeout=None,  # one limit over the whole exchange is set around it
                follow_redirects=False,
                trust_env=self._trust_env,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                headers={"user-agent": "noetl-ray"},
            )
            self._clients[verify] = client
        return client


async def _exchange(
    client: httpx.AsyncClient, prepared: Prepared, follow: bool, store: ArtifactStore | None
) -> tuple[httpx.Response, bytes | dict[str, Any]]:
    request = client.build_request(
        prepared.method, prepared.url, headers=prepared.headers, content=prepared.content
    )
    origin = _origin(request.url)
    for _ in range(REDIRECTS_MAX + 1):
        response = await client.send(request, stream=True)
        following = response.next_request if follow else None
        try:
            if following is None:
                return response, await read_body(response, store)
        finally:
            await response.aclose()
        if _origin(following.url) != origin:
            # Any other header may carry a secret, whatever it is called.
            for name in set(following.headers) - _SAFE_HEADERS:
                del following.headers[name]
        request = following
    msg = f"more than {REDIRECTS_MAX} redirects"
    raise httpx.TooManyRedirects(msg, request=request)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _result(
    prepared: Prepared, response: httpx.Response, value: Any, elapsed_s: float
) -> dict[str, Any]:
    return {
        "status_code": response.status_code,
        "headers": dict(response.headers),
        "url": prepared.shown_url(response.url),
        "elapsed": round(elapsed_s, 6),
        "data": value,
        "body": value,
    }


def _refused(prepared: Prepared, response: httpx.Response, result: dict[str, Any]) -> ToolError:
    status = response.status_code
    kind, retryable = status_kind(status)
    details: dict[str, Any] = {
        "status": status,
        "status_code": status,
        "http_status": status,
        "code": status,
        "headers": result["headers"],
    }
    wait = retry_after_s(response.headers.get("retry-after"))
    if wait is not None:
        details["retry_after"] = wait
    reason = f" {response.reason_phrase}" if response.reason_phrase else ""
    msg = f"{_where(prepared)} answered {status}{reason}"
    return ToolError(msg, kind, retryable, details, result)


def status_kind(status: int) -> tuple[str, bool]:
    """Kind and whether to retry, for a status that is not 2xx."""
    match status:
        case 429:
            return "rate_limit", True
        case 401 | 403:
            return "auth", False
        case 404:
            return "not_found", False
        case _ if status >= 500:
            return "server_error", True
        case _:
            return "client_error", False


def retry_after_s(text: str | None) -> float | None:
    """Seconds of a Retry-After header, which may also be a date; None when it says nothing."""
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, round((when - datetime.now(UTC)).total_seconds(), 3))


def map_error(error: Exception, where: str) -> ToolError:
    """An httpx error as ours. The text of httpx is kept only where it cannot hold a secret."""
    details = {"exception_type": type(error).__name__}
    match error:
        case httpx.TimeoutException():
            return ToolError(f"{where} gave no answer in time", "timeout", True, details)
        case httpx.TooManyRedirects():
            return ToolError(f"{where}: {error}", "client_error", False, details)
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            msg = f"{where} led to an address that is not http or https"
            return ToolError(msg, "client_error", False, details)
        case httpx.LocalProtocolError():
            return ToolError(f"{where} is not a valid request", "client_error", False, details)
        case httpx.DecodingError():
            return ToolError(f"{where}: the answer cannot be decoded", "parse", False, details)
        case httpx.TransportError():
            reason = str(error) or type(error).__name__
            return ToolError(f"{where} failed: {reason}", "connection", True, details)
        case _:
            return ToolError(f"{where} failed: {type(error).__name__}", "unknown", False, details)


def _where(prepared: Prepared) -> str:
    """Method and address without its query, which may hold keys."""
    return f"{prepared.method} {prepared.shown_url(prepared.url.copy_with(query=None))}"


def _flag(value: Any, *, default: bool) -> bool:
    if value is None or value == "":
        return default
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE_TEXTS
    return bool(value)
