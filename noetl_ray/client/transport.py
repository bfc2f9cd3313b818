"""The client's one way to the gateway: a request, an answer or one of our errors.

Owns the mapping of what goes wrong on the way, and of error answers back to the classes they came
from. Refuses to retry: only the caller knows whether a request may be sent twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from noetl_ray import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

UNREACHABLE = "is it running? start it with `noetl-ray up`"

_BY_CODE: dict[str, type[errors.NoetlError]] = {
    kind.code: kind
    for kind in (
        errors.UsageError,
        errors.NotFoundError,
        errors.ConflictError,
        errors.LogError,
        errors.LogUnavailableError,
        errors.EnvelopeError,
        errors.StoreError,
        errors.StoreUnavailableError,
        errors.ObjectMissingError,
        errors.InternalError,
    )
}
_BY_STATUS: dict[int, type[errors.NoetlError]] = {
    404: errors.NotFoundError,
    409: errors.ConflictError,
    502: errors.StoreUnavailableError,
    503: errors.StoreUnavailableError,
    504: errors.StoreUnavailableError,
}


class Transport:
    """An HTTP connection pool with a scope and a token."""

    def __init__(self, http: httpx.AsyncClient, *, owned: bool) -> None:
        self._http = http
        self._owned = owned

    async def close(self) -> None:
        """Let go of connections, if they are ours."""
        if self._owned:
            await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Send and read a JSON object."""
        answer = await self.send(method, path, body=body, params=params, timeout_s=timeout_s)
        return self.decode(answer)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """Send; raises one of our errors unless the answer is a success."""
        headers = {"accept": accept}
        content: bytes | None = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers["content-type"] = "application/json"
        given = {key: value for key, value in (params or {}).items() if value is not None}
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s)
        try:
            answer = await self._http.request(
                method, path, content=content, params=given, headers=headers, timeout=timeout
            )
        except httpx.TimeoutException:
            msg = f"the gateway at {self._http.base_url} gave no answer in time"
            raise errors.StoreUnavailableError(msg) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            msg = f"{self._http.base_url} is not an address of a gateway: {error}"
            raise errors.UsageError(msg) from None
        except httpx.HTTPError as error:
            msg = f"the gateway at {self._http.base_url} cannot be reached ({error}); {UNREACHABLE}"
            raise errors.StoreUnavailableError(msg) from None
        if answer.is_success:
            return answer
        raise error_of(answer)

    def decode(self, answer: httpx.Response) -> dict[str, Any]:
        """An answer's JSON object."""
        try:
            return msgspec.json.decode(answer.content, type=dict[str, Any])
        except msgspec.DecodeError:
            msg = f"{self._http.base_url} does not answer like a noetl-ray gateway"
            raise errors.UsageError(msg) from None


def error_of(answer: httpx.Response) -> errors.NoetlError:
    """The error an answer stands for."""
    try:
        body = msgspec.json.decode(answer.content)["error"]
        code, message = str(body["code"]), str(body["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        kind = _BY_STATUS.get(answer.status_code, errors.UsageError)
        return kind(f"the gateway answered {answer.status_code} {answer.reason_phrase}")
    return error_from(body, code, message, answer.status_code)


def error_from(
    body: dict[str, Any], code: str, message: str, status: int = 400
) -> errors.NoetlError:
    """The error an ``error`` object stands for; its hint is part of the message."""
    if body.get("hint"):
        message = f"{message} ({body['hint']})"
    if code == errors.PlaybookError.code:
        return errors.PlaybookError(message, list(body.get("problems") or ()))
    if code == errors.TemplateError.code:
        return errors.TemplateError(message)
    if code == errors.VersionConflictError.code:
        return errors.ConflictError(message)
    fallback = errors.InternalError if status == 500 else errors.UsageError
    return _BY_CODE.get(code, _BY_STATUS.get(status, fallback))(message)
