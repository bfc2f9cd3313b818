"""The ``nats`` kind: key-value buckets, object buckets and streams of a NATS server.

Each task connects by its credential and leaves again. Names of this runtime (``noetl*``) and the
server's own subjects (``$...``) are refused, whatever server the credential names: a playbook
must reach neither the log nor the stored credentials.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from nats import errors as nats_errors
from nats.aio.client import Client
from nats.js import errors as js_errors
from nats.js.api import KeyValueConfig, ObjectStoreConfig

from noetl_ray.errors import NoetlError, NotFoundError, ToolError
from noetl_ray.tools.auth import Auth, pick, resolve_auth
from noetl_ray.tools.limits import time_limit_s
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.wal.jetstream_errors import from_nats

if TYPE_CHECKING:
    from nats.js.client import JetStreamContext

CONFIG_KEYS: frozenset[str] = frozenset(
    {
        "args",
        "auth",
        "bucket",
        "create",
        "credential",
        "data",
        "headers",
        "input",
        "key",
        "name",
        "operation",
        "seq",
        "stream",
        "subject",
        "timeout",
        "timeout_seconds",
        "value",
    }
)
RESERVED_PREFIX = "noetl"
OBJECT_BYTES_MAX = 64 << 20
TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 5
_CONNECT_AGAIN_S = 0.1
_SCHEMES = ("nats://", "tls://")
_SERVICES = frozenset({"nats"})
_AUTH_HELP = (
    "a nats task needs a server: give it `auth: <credential name>` and add that credential with "
    "`noetl-ray credential add <name> --type nats`, with `url` and `token`, or `user`, `password`"
)


class NatsTool:
    """Does one operation on a NATS server."""

    kind: ClassVar[str] = "nats"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "nats"
    text_keys: ClassVar[frozenset[str]] = frozenset(
        {"bucket", "key", "name", "operation", "stream", "subject"}
    )

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Connect, do the operation, leave."""
        operation = str(config.get("operation") or "")
        act = _OPERATIONS.get(operation)
        if act is None:
            known = ", ".join(_OPERATIONS)
            msg = f"unknown operation {operation!r} of a nats task; there are {known}"
            raise ToolError(msg, "schema")
        task = _Task(operation, config, context.idempotency_key)
        task.refuse_reserved()
        auth = pick(await resolve_auth(config, context), _SERVICES)
        if auth is None:
            raise ToolError(_AUTH_HELP, "auth")
        limit = time_limit_s(config, context.timeout_s, TIMEOUT_S)
        try:
            async with asyncio.timeout(limit):
                data = await _connected(auth, act, task)
        except TimeoutError:
            msg = f"{operation} took longer than {limit:g} s"
            raise ToolError(msg, "timeout", True, {"timeout_s": limit}) from None
        return ToolResult(data={"status": "success", "operation": operation, **data})

    async def close(self) -> None:
        """Nothing outlives a task."""


class _Task:
    """What a task asks for, read with clear words about what is missing."""

    def __init__(self, operation: str, config: dict[str, Any], message_id: str) -> None:
        self.operation = operation
        self.message_id = message_id
        self._config = config

    def name(self, *keys: str) -> str:
        for key in keys:
            value = self._config.get(key)
            if value not in (None, ""):
                return str(value)
        msg = f"{self.operation} needs `{keys[0]}`"
        raise ToolError(msg, "schema")

    def get(self, key: str) -> Any:
        return self._config.get(key)

    def payload(self) -> bytes:
        for key in ("value", "data"):
            if key in self._config:
                value = self._config[key]
                return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        msg = f"{self.operation} needs `value`"
        raise ToolError(msg, "schema")

    def refuse_reserved(self) -> None:
        for key in ("bucket", "stream", "subject"):
            given = str(self._config.get(key) or "").strip()
            bare = given.removeprefix("KV_").removeprefix("OBJ_")
            if bare.lower().startswith(RESERVED_PREFIX) or given.startswith("$"):
                msg = f"{key} {given!r} is refused: it belongs to the runtime or to the server"
                raise ToolError(msg, "auth")
            if (
                key == "subject"
                and self.operation == "js_publish"
                and set(given) & set("*> \t\r\n")
            ):
                msg = f"subject {given!r} cannot be published to: it has blanks or wildcards"
                raise ToolError(msg, "schema")


_Act = Callable[["JetStreamContext", _Task], Awaitable[dict[str, Any]]]


async def _connected(auth: Auth, act: _Act, task: _Task) -> dict[str, Any]:
    url = str(auth.data.get("url") or auth.data.get("nats_url") or "").strip()
    servers = [part.strip() for part in url.split(",") if part.strip()]
    if not servers or not all(part.startswith(_SCHEMES) for part in servers):
        msg = f"credential {auth.name!r} cannot reach a NATS server: its url must be nats://..."
        raise ToolError(msg, "auth", False, {"credential": auth.name})
    client = Client()
    seen: list[Exception] = []

    async def on_error(error: Exception) -> None:
        seen.append(error)

    try:
        await client.connect(
            servers=servers,
            user=_text(auth.data.get("user") or auth.data.get("username")),
            password=_text(auth.data.get("password")),
            token=_text(auth.data.get("token")),
            name="noetl-ray task",
            allow_reconnect=False,
            # The driver goes round its servers for ever unless it may drop one that failed.
            max_reconnect_attempts=1,
            reconnect_time_wait=_CONNECT_AGAIN_S,  # type: ignore[arg-type]
            connect_timeout=_CONNECT_TIMEOUT_S,
            error_cb=on_error,
        )
        try:
            return await act(client.jetstream(), task)
        except (nats_errors.Error, OSError, ValueError) as error:
            raise _mapped(error, task.operation) from None
    except (nats_errors.Error, OSError) as error:
        reasons = [str(item).lower() for item in (*seen, error)]
        refused = any("authorization" in reason for reason in reasons)
        what = "refuses the credential" if refused else "cannot be reached"
        kind = "auth" if refused else "connection"
        msg = f"the NATS server of credential {auth.name!r} {what}"
        raise ToolError(msg, kind, not refused, {"credential": auth.name}) from None
    finally:
        await client.close()


def _mapped(error: Exception, operation: str) -> ToolError:
    details = {"exception_type": type(error).__name__}
    invalid = (
        js_errors.InvalidKeyError,
        js_errors.InvalidBucketNameError,
        js_errors.InvalidObjectNameError,
        nats_errors.BadSubjectError,
        ValueError,
    )
    if isinstance(error, invalid):
        reason = str(error) or type(error).__name__
        return ToolError(f"{operation}: {reason}", "schema", False, details)
    if isinstance(error, js_errors.NoStreamResponseError):
        msg = f"{operation}: no stream takes messages of this subject"
        return ToolError(msg, "not_found", False, details)
    ours: NoetlError = from_nats(error)
    if isinstance(ours, NotFoundError):
        kind = "not_found"
    else:
        kind = "connection" if ours.retryable else "client_error"
    reason = str(error) or type(error).__name__
    return ToolError(f"{operation}: {reason}", kind, ours.retryable, details)


def _text(value: Any) -> str | None:
    return None if value in (None, "") else str(value)


def _shown(data: bytes | None) -> dict[str, Any]:
    """Stored bytes: JSON as data, other text as text, anything else as base64."""
    raw = data or b""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return {"value": base64.b64encode(raw).decode("ascii"), "encoding": "base64"}
    try:
        return {"value": msgspec.json.decode(text), "encoding": "json"}
    except msgspec.DecodeError:
        return {"value": text, "encoding": "text"}


async def _kv(stream: JetStreamContext, task: _Task, *, create: bool = False) -> Any:
    bucket = task.name("bucket")
    try:
        return await stream.key_value(bucket)
    except js_errors.BucketNotFoundError:
        if create and task.get("create") is True:
            return await stream.create_key_value(KeyValueConfig(bucket=bucket))
        raise _no_bucket(bucket) from None


async def _objects(stream: JetStreamContext, task: _Task, *, create: bool = False) -> Any:
    bucket = task.name("bucket")
    try:
        return await stream.object_store(bucket)
    except js_errors.BucketNotFoundError:
        if create and task.get("create") is True:
            return await stream.create_object_store(bucket, ObjectStoreConfig())
        raise _no_bucket(bucket) from None


def _no_bucket(bucket: str) -> ToolError:
    msg = f"there is no bucket {bucket!r}; a put that says `create: true` makes it"
    return ToolError(msg, "not_found", False, {"bucket": bucket})


async def _kv_put(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    key, value = task.name("key"), task.payload()
    bucket = await _kv(stream, task, create=True)
    return {"key": key, "revision": await bucket.put(key, value)}


async def _kv_get(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    key = task.name("key")
    entry = await (await _kv(stream, task)).get(key)
    return {"key": key, "revision": entry.revision, **_shown(entry.value)}


async def _kv_delete(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    key = task.name("key")
    await (await _kv(stream, task)).delete(key)
    return {"key": key, "deleted": True}


async def _kv_purge(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    key = task.name("key")
    await (await _kv(stream, task)).purge(key)
    return {"key": key, "purged": True}


async def _kv_keys(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    try:
        keys = sorted(await (await _kv(stream, task)).keys())
    except js_errors.NoKeysError:
        keys = []
    return {"keys": keys, "count": len(keys)}


async def _object_put(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    name, value = task.name("key", "name"), task.payload()
    info = await (await _objects(stream, task, create=True)).put(name, value)
    return {"key": name, "size": info.size, "digest": info.digest}


async def _object_get(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    name = task.name("key", "name")
    bucket = await _objects(stream, task)
    size = (await bucket.get_info(name)).size or 0
    if size > OBJECT_BYTES_MAX:
        msg = f"object {name!r} has {size} bytes, more than {OBJECT_BYTES_MAX}"
        raise ToolError(msg, "schema")
    result = await bucket.get(name)
    return {"key": name, "size": size, **_shown(result.data)}


async def _object_delete(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    name = task.name("key", "name")
    await (await _objects(stream, task)).delete(name)
    return {"key": name, "deleted": True}


async def _object_list(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    bucket = await _objects(stream, task)
    try:
        found = await bucket.list(ignore_deletes=True)
    except js_errors.NotFoundError:
        found = []
    listed = [{"name": item.name, "size": item.size} for item in found if not item.deleted]
    return {"objects": listed, "count": len(listed)}


async def _js_publish(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    given = task.get("headers") or {}
    if not isinstance(given, dict):
        msg = f"headers must be a mapping, not {type(given).__name__}"
        raise ToolError(msg, "schema")
    # The server drops a second message of this id, so a repeated task does not publish twice.
    headers = {"Nats-Msg-Id": task.message_id, **{str(k): str(v) for k, v in given.items()}}
    ack = await stream.publish(
        task.name("subject"), task.payload(), stream=_text(task.get("stream")), headers=headers
    )
    return {"stream": ack.stream, "seq": ack.seq, "duplicate": bool(ack.duplicate)}


async def _js_get_msg(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    name, seq, subject = task.name("stream"), task.get("seq"), _text(task.get("subject"))
    if seq in (None, "") and subject is None:
        msg = "js_get_msg needs `seq`, or `subject` for the last one of it"
        raise ToolError(msg, "schema")
    try:
        number = None if seq in (None, "") else int(str(seq))
    except ValueError:
        msg = f"seq must be a whole number, not {seq!r}"
        raise ToolError(msg, "schema") from None
    if number is not None:
        message = await stream.get_msg(name, number)
    else:
        message = await stream.get_last_msg(name, str(subject))
    return {
        "stream": name,
        "subject": message.subject,
        "seq": message.seq,
        "headers": dict(message.headers or {}),
        **_shown(message.data),
    }


async def _js_stream_info(stream: JetStreamContext, task: _Task) -> dict[str, Any]:
    info = await stream.stream_info(task.name("stream"))
    state = info.state
    return {
        "stream": info.config.name,
        "subjects": list(info.config.subjects or ()),
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "consumer_count": state.consumer_count,
    }


_OPERATIONS: dict[str, _Act] = {
    "kv_put": _kv_put,
    "kv_get": _kv_get,
    "kv_delete": _kv_delete,
    "kv_keys": _kv_keys,
    "kv_purge": _kv_purge,
    "object_put": _object_put,
    "object_get": _object_get,
    "object_delete": _object_delete,
    "object_list": _object_list,
    "js_publish": _js_publish,
    "js_get_msg": _js_get_msg,
    "js_stream_info": _js_stream_info,
}
