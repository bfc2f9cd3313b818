"""What the driver and the server call an error, in our words; nothing of theirs passes this border.

Owns the table from the driver's exception classes and from the server's answer codes. A test
walks the driver's exception modules and fails when a class is missing here.
"""

from __future__ import annotations

from nats import errors
from nats.js import errors as js_errors

from noetl_ray.errors import (
    ConfigError,
    ConflictError,
    InternalError,
    LogError,
    LogUnavailableError,
    NoetlError,
    NotFoundError,
)

WRONG_LAST_SEQUENCE = 10071
"""The server's err_code for a subject that has another version than the one stated."""
REPLICAS_NOT_SUPPORTED = 10074
"""Comes with code 500 but does not pass: one server cannot keep three copies."""
UNAVAILABLE_CODES = frozenset({408, 429, 500, 503})
"""Answer codes that may pass: overload, no leader, no resources."""

_TABLE: dict[type[Exception], type[NoetlError]] = {
    # The server is not there, not ready or not answering now.
    errors.Error: LogUnavailableError,
    errors.TimeoutError: LogUnavailableError,
    errors.FlushTimeoutError: LogUnavailableError,
    errors.DrainTimeoutError: LogUnavailableError,
    errors.NoRespondersError: LogUnavailableError,
    errors.StaleConnectionError: LogUnavailableError,
    errors.UnexpectedEOF: LogUnavailableError,
    errors.OutboundBufferLimitError: LogUnavailableError,
    errors.ConnectionClosedError: LogUnavailableError,
    errors.ConnectionDrainingError: LogUnavailableError,
    errors.ConnectionReconnectingError: LogUnavailableError,
    errors.NoServersError: LogUnavailableError,
    errors.ProtocolError: LogUnavailableError,
    errors.SlowConsumerError: LogUnavailableError,
    errors.ServerNotInPoolError: LogUnavailableError,
    js_errors.ServiceUnavailableError: LogUnavailableError,
    js_errors.ServerError: LogUnavailableError,
    js_errors.NoStreamResponseError: LogUnavailableError,
    js_errors.TooManyStalledMsgsError: LogUnavailableError,
    js_errors.FetchTimeoutError: LogUnavailableError,
    js_errors.ConsumerSequenceMismatchError: LogUnavailableError,
    # The address, the token or the server's set-up is wrong.
    errors.AuthorizationError: ConfigError,
    errors.InvalidUserCredentialsError: ConfigError,
    errors.SecureConnRequiredError: ConfigError,
    errors.SecureConnWantedError: ConfigError,
    errors.SecureConnFailedError: ConfigError,
    js_errors.KeyValueLimitMarkerTTLNotSupportedError: ConfigError,
    # The thing asked for is not there, or there already.
    js_errors.NotFoundError: NotFoundError,
    js_errors.BucketNotFoundError: NotFoundError,
    js_errors.KeyNotFoundError: NotFoundError,
    js_errors.KeyDeletedError: NotFoundError,
    js_errors.NoKeysError: NotFoundError,
    js_errors.ObjectNotFoundError: NotFoundError,
    js_errors.ObjectDeletedError: NotFoundError,
    js_errors.KeyWrongLastSequenceError: ConflictError,
    js_errors.ObjectAlreadyExists: ConflictError,
    # The server would not do it as asked.
    errors.MaxPayloadError: LogError,
    js_errors.Error: LogError,
    js_errors.APIError: LogError,
    js_errors.BadRequestError: LogError,
    js_errors.ConsumerInvalidResetError: LogError,
    js_errors.BadBucketError: LogError,
    js_errors.KeyValueError: LogError,
    js_errors.DigestMismatchError: LogError,
    # We called the driver wrongly.
    errors.BadSubscriptionError: InternalError,
    errors.BadSubjectError: InternalError,
    errors.BadHeaderError: InternalError,
    errors.BadTimeoutError: InternalError,
    errors.JsonParseError: InternalError,
    errors.InvalidCallbackTypeError: InternalError,
    errors.NotJSMessageError: InternalError,
    errors.MsgAlreadyAckdError: InternalError,
    js_errors.KeyHistoryTooLargeError: InternalError,
    js_errors.InvalidKeyError: InternalError,
    js_errors.InvalidBucketNameError: InternalError,
    js_errors.InvalidObjectNameError: InternalError,
    js_errors.BadObjectMetaError: InternalError,
    js_errors.LinkIsABucketError: InternalError,
}


def is_mapped(kind: type[Exception]) -> bool:
    """Whether the table names exactly this class."""
    return kind in _TABLE


def from_nats(error: BaseException) -> NoetlError:
    """Our error for one of the driver's; what it does not know is our bug."""
    if isinstance(error, NoetlError):
        return error
    if isinstance(error, OSError | TimeoutError):
        return LogUnavailableError(f"NATS: {error or type(error).__name__}")
    for kind in type(error).__mro__:
        ours = _TABLE.get(kind)
        if ours is ConfigError:
            return ConfigError("event_store.url", "", str(error))
        if ours is not None:
            return ours(str(error))
    return InternalError(f"NATS: {type(error).__name__}: {error}")


def from_answer(what: str, code: int, err_code: int, description: str) -> NoetlError:
    """Our error for an error answer of the server."""
    text = f"{what}: {description or 'refused'} (NATS {code}/{err_code})"
    if code in UNAVAILABLE_CODES and err_code != REPLICAS_NOT_SUPPORTED:
        return LogUnavailableError(text)
    if code == 404:
        return NotFoundError(text)
    return LogError(text)
