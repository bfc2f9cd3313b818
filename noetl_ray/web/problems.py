"""Errors as answers: one shape, the right status, a hint where one helps, never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from noetl_ray.errors import (
    ConfigError,
    ConflictError,
    EnvelopeError,
    InternalError,
    LogUnavailableError,
    NoetlError,
    NotFoundError,
    ObjectMissingError,
    PlaybookError,
    StoreUnavailableError,
    TemplateError,
    UsageError,
    VersionConflictError,
)
from noetl_ray.submit.frames import FrameEndedError
from noetl_ray.web.shapes import json_response

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.responses import Response

STATUS: tuple[tuple[type[NoetlError], int], ...] = (
    (PlaybookError, 422),
    (TemplateError, 422),
    (NotFoundError, 404),
    (ConflictError, 409),
    (VersionConflictError, 409),
    (EnvelopeError, 422),
    (ConfigError, 500),
    (ObjectMissingError, 404),
    (LogUnavailableError, 503),
    (StoreUnavailableError, 503),
    (InternalError, 500),
    (UsageError, 400),
)
"""First match wins; what is not listed is 500."""

_HINTS: dict[str, str] = {
    "log_unavailable": "the log cannot be reached; is NATS up? try again",
    "store_unavailable": "a store cannot be reached; try again",
    "version_conflict": "somebody else was first; read again and retry",
    "REFERENCE_NOT_AVAILABLE": "the object may still be on its way; try again",
}
_HTTP_CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed"}


def status_of(error: NoetlError) -> int:
    """The HTTP status of one of our errors."""
    for kind, status in STATUS:
        if isinstance(error, kind):
            return status
    return 500


def problem(status: int, code: str, message: str, hint: str | None = None, **more: Any) -> Response:
    """An error answer."""
    body = {"code": code, "message": message, "hint": hint, **more}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return json_response({"error": body}, status=status, headers=headers)


def describe(error: NoetlError) -> dict[str, Any]:
    """One of our errors as the ``error`` object of an answer."""
    body: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "hint": _HINTS.get(error.code),
        "retryable": error.retryable,
    }
    if isinstance(error, PlaybookError):
        body["problems"] = error.problems
    if isinstance(error, FrameEndedError):
        body["terminal_event_id"] = str(error.terminal_event_id)
    return body


def install(app: FastAPI) -> None:
    """Make the app answer errors this way."""

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, NoetlError)
        return json_response({"error": describe(error)}, status=status_of(error))

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _HTTP_CODES.get(error.status_code, "http")
        return problem(error.status_code, code, str(error.detail))

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        parts = [
            f"{'.'.join(str(part) for part in found['loc'])}: {found['msg']}"
            for found in error.errors()
        ]
        return problem(422, "usage", "; ".join(parts) or "the request is not valid")

    app.add_exception_handler(NoetlError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
