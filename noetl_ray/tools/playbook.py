"""The ``playbook`` kind: runs another playbook of the catalog.

It owns the words of the kind: what is called, with which workload, what comes back. It waits for
nothing: it parks its pipeline, so that no worker is held while the child runs (P13, P18). Which
version is meant, and what a child came to, the runtime says through the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from noetl_ray.errors import ToolError
from noetl_ray.tools.port import Parked, PlaybookCall, ToolContext, ToolResult

CONFIG_KEYS: frozenset[str] = frozenset(
    {"args", "async", "catalog_id", "input", "path", "payload", "result_step", "return_result"}
    | {"return_step", "version", "wait", "workload"}
)
COMPLETED = "COMPLETED"
STARTED = "STARTED"
TIMED_OUT = "TIMED_OUT"
DEPTH_MAX = 32
"""How deep executions may be nested."""
_WAITS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class PlaybookTool:
    """Calls of other playbooks."""

    kind: ClassVar[str] = "playbook"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = ""
    text_keys: ClassVar[frozenset[str]] = frozenset({"path", "return_step", "result_step"})

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Pin what is called, then let go of the worker until it has ended."""
        if context.pin_playbook is None:
            msg = "a playbook task cannot run here: frames hold their worker while they run"
            raise ToolError(msg, "schema")
        raise Parked(await context.pin_playbook(call_of(config, context.timeout_s)))

    async def close(self) -> None:
        """Nothing is held."""


def call_of(config: Mapping[str, Any], timeout_s: float | None) -> PlaybookCall:
    """A task's config as a call.

    Raises:
        ToolError: it names no playbook, or a value is not what its key takes.
    """
    path, digest = _text(config.get("path")), _text(config.get("catalog_id"))
    if path is None and digest is None:
        msg = "a playbook task needs `path`, the path of a registered playbook"
        raise ToolError(msg, "schema")
    return PlaybookCall(
        path=path,
        digest=None if path else digest,
        version=_version(config.get("version")),
        workload=_workload(config),
        return_step=_text(config.get("return_step")) or _text(config.get("result_step")),
        return_result=_flag(config.get("return_result"), "return_result", default=False),
        waits=_flag(config.get("wait"), "wait", default=True)
        and not _flag(config.get("async"), "async", default=False),
        timeout_s=timeout_s,
    )


def result_of(wait: Mapping[str, Any], ended: Mapping[str, Any], value: Any) -> ToolResult:
    """What a task gives once its child has ended (dsl section 7).

    Args:
        wait: What the task parked for.
        ended: What is known of the child's end.
        value: The result of the step that was asked for.

    Raises:
        ToolError: the child did not complete.
    """
    status = ended["status"]
    pinned = wait["playbook"]
    child = str(ended["child_execution_id"])
    record: dict[str, Any] = {
        "status": str(status).lower(),
        "execution_id": child,
        "path": pinned["path"],
        "version": pinned["version"],
    }
    if status == STARTED:
        return ToolResult(data=record | {"async": True})
    record |= {"completed": status == COMPLETED, "failed": status != COMPLETED}
    if status != COMPLETED:
        raise _failure(wait, ended, record)
    if wait.get("return_result"):
        return ToolResult(data={} if value is None else value)
    if isinstance(value, Mapping):
        return ToolResult(data={**record, **value})
    return ToolResult(data=record if value is None else record | {"result": value})


def _failure(
    wait: Mapping[str, Any], ended: Mapping[str, Any], record: dict[str, Any]
) -> ToolError:
    """A child that failed, was cancelled or took too long: an ordinary error of the task."""
    error = ended.get("error") or {}
    child, status = record["execution_id"], ended["status"]
    where = f"playbook {wait['playbook']['path']!r} (execution {child})"
    # Of calls within calls only the innermost says why.
    cause = error.get("cause") or {
        **{key: error[key] for key in ("kind", "message", "step", "task") if key in error},
        "execution_id": child,
    }
    details = {"child_execution_id": child, "cause": cause}
    if status == TIMED_OUT:
        msg = f"{where} did not end within {wait['timeout_s']:g} s; it was cancelled"
        return ToolError(msg, "timeout", True, details | {"code": "PLAYBOOK_TIMEOUT"}, record)
    if status != "FAILED":
        msg = f"{where} was cancelled: {ended.get('reason') or 'no reason given'}"
        return ToolError(msg, "unknown", False, details | {"code": "PLAYBOOK_CANCELLED"}, record)
    step = f" in step {error['step']!r}" if error.get("step") else ""
    deep = f" (execution {cause['execution_id']})" if cause["execution_id"] != child else ""
    msg = f"{where} failed{step}: {cause.get('message', 'no reason given')}{deep}"
    kind, again = str(error.get("kind") or "unknown"), bool(error.get("retryable"))
    return ToolError(msg, kind, again, details | {"code": "PLAYBOOK_FAILED"}, record)


def _workload(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the child gets: the first of `input`, `payload`, `workload` that says something."""
    for key in ("input", "payload", "workload"):
        given = config.get(key)
        if isinstance(given, Mapping) and given:
            return dict(given)
        if given not in (None, "") and not isinstance(given, Mapping):
            msg = f"`{key}` of a playbook task must be a mapping, not {type(given).__name__}"
            raise ToolError(msg, "schema")
    return {}


def _version(value: Any) -> int | None:
    if value in (None, "", "latest"):
        return None
    try:
        return int(str(value))
    except ValueError:
        msg = f"`version` {value!r} of a playbook task is no number; leave it out for the newest"
        raise ToolError(msg, "schema") from None


def _flag(value: Any, key: str, *, default: bool) -> bool:
    if value in (None, ""):
        return default
    if isinstance(value, bool):
        return value
    found = _WAITS.get(str(value).strip().lower())
    if found is None:
        msg = f"`{key}` of a playbook task must be true or false, not {value!r}"
        raise ToolError(msg, "schema")
    return found


def _text(value: Any) -> str | None:
    text = "" if value is None else str(value).strip()
    return text or None
