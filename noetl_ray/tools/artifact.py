"""The ``artifact`` kind: reads stored values by reference, and keeps values under names.

``action`` get, put or list. It owns the words of the kind; where bytes lie and who may read them is
the store's.
"""

from __future__ import annotations

from typing import Any, ClassVar

from noetl_ray.errors import ObjectMissingError, ToolError, UsageError
from noetl_ray.tools.port import ArtifactStore, ToolContext, ToolResult

CONFIG_KEYS: frozenset[str] = frozenset(
    {"action", "args", "content", "data", "input", "key", "name", "prefix", "ref", "result_ref"}
    | {"uri", "value"}
)
ACTIONS = ("get", "put", "list")
_REF_KEYS = ("result_ref", "uri", "ref", "key", "name")
_NAME_KEYS = ("key", "name")
_VALUE_KEYS = ("value", "data", "content")


class ArtifactTool:
    """Stored values for tasks."""

    kind: ClassVar[str] = "artifact"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = ""
    text_keys: ClassVar[frozenset[str]] = frozenset()

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Do one action."""
        if context.artifacts is None:
            msg = "there is no store for artifacts here"
            raise ToolError(msg, "schema")
        given = {**config, **(config.get("input") or {})}
        action = str(given.get("action") or "get")
        try:
            match action:
                case "get":
                    return ToolResult(data=await _get(given, context.artifacts))
                case "put":
                    return ToolResult(data=await _put(given, context.artifacts))
                case "list":
                    return ToolResult(data=await _list(given, context.artifacts))
        except ObjectMissingError as error:
            raise ToolError(
                error.message, "not_found", True, {"code": ObjectMissingError.code}
            ) from None
        except UsageError as error:
            raise ToolError(error.message, "schema") from None
        msg = f"unknown action {action!r} of an artifact task: use {', '.join(ACTIONS)}"
        raise ToolError(msg, "schema")

    async def close(self) -> None:
        """Nothing is held."""


async def _get(given: dict[str, Any], store: ArtifactStore) -> Any:
    ref = _first(given, _REF_KEYS)
    if ref is None:
        msg = "an artifact task that gets needs `result_ref`, `uri` or `key`"
        raise ToolError(msg, "schema")
    value = await store.get(ref)
    # Fields at the top; what has none is read as `.data`.
    return value if isinstance(value, dict) else {"data": value}


async def _put(given: dict[str, Any], store: ArtifactStore) -> dict[str, Any]:
    # `name` of a task is its label; it means the artifact only under `input`.
    name = _first(given, _NAME_KEYS)
    if not isinstance(name, str) or not name.strip():
        msg = "an artifact task that puts needs `key`"
        raise ToolError(msg, "schema")
    if not any(key in given for key in _VALUE_KEYS):
        msg = "an artifact task that puts needs `value`"
        raise ToolError(msg, "schema")
    value = next(given[key] for key in _VALUE_KEYS if key in given)
    record = await store.put(name.strip(), value)
    return {"name": record["name"], "result_ref": record, "uri": record["ref"], **record["meta"]}


async def _list(given: dict[str, Any], store: ArtifactStore) -> dict[str, Any]:
    prefix = _first(given, ("prefix", *_NAME_KEYS))
    records = await store.list(str(prefix or ""))
    return {"items": records, "names": [one["name"] for one in records], "count": len(records)}


def _first(given: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((given[key] for key in keys if given.get(key) not in (None, "")), None)
