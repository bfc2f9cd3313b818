"""The door of the API: host and origin check, bearer token, body size, metrics, and no tracebacks.

A plain ASGI layer, so that it also covers what no route takes. On a loopback address there may be
no token; then the host check stops a foreign page that resolved its own name to this machine, and
the origin check stops one that posts here directly.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from noetl_ray.web.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from noetl_ray.web.metrics import Metrics

BODY_BYTES_MAX = 64 * 1024 * 1024
OPEN_PATHS = frozenset({"/api/health"})
OPEN_PREFIX = "/api/callbacks/"
"""What follows it is a permission of its own."""
LONG_POLLS = ("/wait",)

_log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _TooLargeError(Exception):
    """The body went over the limit while it was read."""


class Guard:
    """Wraps the app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        token: str,
        metrics: Metrics,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._app = app
        self._loopback = is_loopback(host)
        self._token = token.encode()
        self._metrics = metrics
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on and watch."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, watched_send)
            else:
                await self._app(scope, self._limited(receive), watched_send)
        except _TooLargeError:
            await self._too_large()(scope, receive, watched_send)
        except Exception:
            _log.exception("request failed: %s %s", scope["method"], scope["path"])
            if status:
                raise
            answer = problem(500, "internal", "an internal error; the gateway's log says more")
            await answer(scope, receive, watched_send)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            self._metrics.requests.labels(route, scope["method"], str(status)).inc()
            if not route.endswith(LONG_POLLS):
                self._metrics.seconds.labels(route).observe(time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if self._loopback and not is_loopback(_hostname(headers.get("host", ""))):
            hint = "use the address the gateway printed"
            return problem(403, "forbidden", "this host name is not served here", hint)
        origin = headers.get("origin")
        if self._loopback and origin and not is_loopback(urlsplit(origin).hostname or ""):
            return problem(403, "forbidden", "pages of other sites may not call this API")
        path = scope["path"]
        is_open = path in OPEN_PATHS or path.startswith(OPEN_PREFIX)
        if self._token and not is_open and not self._known(headers):
            hint = "send Authorization: Bearer TOKEN (gateway.token, NOETL_GATEWAY_TOKEN)"
            return problem(401, "unauthorized", "a valid bearer token is needed", hint)
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._body_bytes_max:
            return self._too_large()
        return None

    def _known(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), self._token
        )

    def _limited(self, receive: Receive) -> Receive:
        """Count what really comes: a chunked body states no length."""
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._body_bytes_max:
                raise _TooLargeError
            return message

        return counted

    def _too_large(self) -> ASGIApp:
        limit = self._body_bytes_max
        return problem(413, "too_large", f"the body is over {limit} bytes")


def _hostname(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""
