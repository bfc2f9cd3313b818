"""From `loop:` of a step to a Loop: what is gone over, how many at once (section 9).

Reads and checks every mode of the language; which of them can run is one constant here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from noetl_ray.dsl.language import PROCESS, RETRY_MODES, names
from noetl_ray.dsl.model import Loop, Reduce
from noetl_ray.dsl.shape import NOT_YET, Shape, place
from noetl_ray.dsl.tasks import read_tasks

if TYPE_CHECKING:
    from noetl_ray.dsl.source import Node

Mode = Literal["sequential", "parallel", "cursor", "fanout"]

LOOP_MODES: tuple[Mode, ...] = ("sequential", "parallel", "cursor", "fanout")
RUNNABLE_LOOP_MODES: frozenset[str] = frozenset(LOOP_MODES)
"""The modes the engine can run; a loop of another mode is refused by name."""

_ITERATOR = "item"
_LOOP_KEYS = names("loop")
_SPEC_KEYS = names("loop spec")
_CURSOR_NEEDS = names("cursor")
_FRAME_KEYS = names("frame")
_FRAME_ALIASES = {
    "size": "max_rows",
    "duration_ms": "max_seconds",
    "memory_bytes": "max_bytes",
    "parallelism": "row_concurrency",
}
_FRAME_WORDS = {"process": PROCESS, "retry_mode": RETRY_MODES}
_FLAGS = frozenset({"row_barrier"})
_REDUCE_KEYS = names("reduce")
_ROWS_ONLY = ("process", "row_concurrency", "parallelism", "row_barrier")
_FANOUT_ONLY = ("partitions", "max_outstanding")
_PART = "part"
_TAKEN = frozenset(
    {
        "args", "catalog_id", "ctx", "env", "event", "execution_id", "frame", "input", "iter",
        "job", "keychain", "loop", "loop_index", "outcome", "output", "results", "steps",
        "workload", "_attempt", "_index", "_prev", "_task", "_total",
    }
)  # fmt: skip
"""Names with a meaning of their own, which an iterator of that name would hide."""


def read_loop(shape: Shape, step: Node, path: str) -> Loop | None:
    """The loop of a step; None when it has none or when it is no mapping."""
    found = step.get("loop")
    if found is None or found.value in ([], {}):
        return None
    path = f"{path}.loop"
    node = shape.mapping(found, path)
    if node is None:
        return None
    shape.strays(node, path, _LOOP_KEYS, "loop")
    spec = shape.mapping(node.get("spec"), f"{path}.spec")
    if spec is not None:
        shape.strays(spec, f"{path}.spec", _SPEC_KEYS, "loop spec")
    mode = _mode(shape, node, spec, path)
    if mode is not None and mode not in RUNNABLE_LOOP_MODES:
        what = f"the loop mode '{mode}'" if RUNNABLE_LOOP_MODES else "'loop'"
        shape.findings.error(step.key_place("loop"), path, f"{what} is {NOT_YET}")
    _check_source(shape, node, path, mode)
    _check_fanout(shape, node, spec, path, mode)
    items = node.get("in")
    partitions, outstanding = (_counted(shape, spec, path, key) for key in _FANOUT_ONLY)
    return Loop(
        items=items.data() if items is not None else None,
        iterator=_iterator(shape, node, path, _ITERATOR),
        mode=mode or "sequential",
        max_in_flight=_in_flight(shape, node, spec, path),
        cursor=_cursor(shape, node, path),
        frame=_frame(shape, spec, f"{path}.spec.frame"),
        partitions=partitions,
        max_outstanding=outstanding,
        reduce=_reduce(shape, node.get("reduce"), f"{path}.reduce"),
        at=place(node),
    )


def _mode(shape: Shape, node: Node, spec: Node | None, path: str) -> Mode | None:
    found, where = _either(node, spec, path, "mode")
    if found is None:
        return "sequential"
    word = shape.text(found)
    for mode in LOOP_MODES:
        if word == mode:
            return mode
    hint = shape.findings.near(word, LOOP_MODES) or f"modes are {', '.join(LOOP_MODES)}"
    shape.findings.error(found, where, f"unknown loop mode '{word}'", hint)
    return None


def _check_source(shape: Shape, node: Node, path: str, mode: Mode | None) -> None:
    """Exactly one of `in` and `cursor`, and the mode that goes with it."""
    cursor = node.get("cursor")
    if cursor is not None and node.get("in") is not None:
        message = "a loop takes 'in' or 'cursor', not both"
        shape.findings.error(node.key_place("cursor"), f"{path}.cursor", message)
    elif cursor is None and node.get("in") is None:
        hint = 'write in: "{{ ... }}"' if mode != "cursor" else "write cursor: {kind: ...}"
        shape.findings.error(node, path, "the loop has neither 'in' nor 'cursor'", hint)
    elif cursor is not None and mode not in (None, "cursor"):
        message, hint = "a cursor needs the mode 'cursor'", "write spec: {mode: cursor}"
        shape.findings.error(node.key_place("cursor"), f"{path}.cursor", message, hint)
    elif cursor is None and mode == "cursor":
        message = "the loop mode 'cursor' needs a 'cursor' instead of 'in'"
        shape.findings.error(node.key_place("in"), f"{path}.in", message)


def _check_fanout(
    shape: Shape, node: Node, spec: Node | None, path: str, mode: Mode | None
) -> None:
    """A fan-out has a reduce, and says in one way how large a partition is."""
    reduce = node.get("reduce")
    if mode == "fanout" and reduce is None:
        message = "the loop mode 'fanout' needs a 'reduce'"
        hint = "write reduce: {tool: {...}} beside 'in', or use the mode 'parallel'"
        shape.findings.error(node, path, message, hint)
    elif mode not in ("fanout", None) and reduce is not None:
        message, hint = "a 'reduce' needs the mode 'fanout'", "write spec: {mode: fanout}"
        shape.findings.error(node.key_place("reduce"), f"{path}.reduce", message, hint)
    if spec is None:
        return
    for key in _FANOUT_ONLY:
        if mode not in ("fanout", None) and spec.get(key) is not None:
            message = f"'{key}' is for the mode 'fanout'"
            shape.findings.error(spec.key_place(key), f"{path}.spec.{key}", message)
    frame = spec.get("frame")
    sized = frame is not None and frame.is_map and (frame.get("max_rows") or frame.get("size"))
    if sized and spec.get("partitions") is not None:
        message = "'partitions' and 'frame.max_rows' both say how large a partition is"
        where = f"{path}.spec.partitions"
        shape.findings.error(spec.key_place("partitions"), where, message, "write one of them")
    stream = reduce.get("stream") if reduce is not None and reduce.is_map else None
    if spec.get("max_outstanding") is not None and stream is not None and stream.value is False:
        message = "a reduce that waits for all partitions cannot hold them back"
        where = f"{path}.spec.max_outstanding"
        hint = "leave it out, or leave stream: false out"
        shape.findings.error(spec.key_place("max_outstanding"), where, message, hint)


def _counted(shape: Shape, spec: Node | None, path: str, key: str) -> Any:
    found = spec.get(key) if spec is not None else None
    if found is None:
        return None
    _check_number(shape, found, f"{path}.spec.{key}")
    return found.data()


def _reduce(shape: Shape, found: Node | None, path: str) -> Reduce | None:
    """What makes one value of the partitions."""
    node = shape.mapping(found, path)
    if node is None:
        return None
    shape.strays(node, path, _REDUCE_KEYS, "reduce")
    tasks = read_tasks(shape, "reduce", node.get("tool"), f"{path}.tool")
    if not tasks:
        shape.findings.error(node, path, "the reduce has no 'tool'", "write tool: {kind: ...}")
    stream, initial = node.get("stream"), node.get("initial")
    if stream is not None and not isinstance(stream.value, bool):
        shape.findings.error(stream, f"{path}.stream", "'stream' must be true or false")
    frame = node.get("frame")
    for key in _ROWS_ONLY:
        if frame is not None and frame.is_map and frame.get(key) is not None:
            where = f"{path}.frame.{key}"
            message = f"'{key}' is about rows; a reduce takes in partitions, one after the other"
            shape.findings.error(frame.key_place(key), where, message, "leave it out")
    streams = stream is None or stream.value is not False
    if initial is not None and not streams:
        message = "'initial' is what a stream begins with; stream: false has none"
        shape.findings.error(node.key_place("initial"), f"{path}.initial", message)
    return Reduce(
        tasks=tasks,
        iterator=_iterator(shape, node, path, _PART),
        stream=streams,
        initial=initial.data() if initial is not None else None,
        frame=_frame(shape, node, f"{path}.frame"),
    )


def _iterator(shape: Shape, node: Node, path: str, default: str) -> str:
    found = node.get("iterator")
    if found is None:
        return default
    name = shape.name(found) or ""
    if not name.isidentifier():
        message = "'iterator' must be a name of letters, digits and underscores"
        shape.findings.error(found, f"{path}.iterator", message)
        return default
    if name in _TAKEN:
        message = f"the iterator '{name}' hides what '{name}' means in templates"
        shape.findings.warning(found, f"{path}.iterator", message)
    return name


def _in_flight(shape: Shape, node: Node, spec: Node | None, path: str) -> Any:
    found, where = _either(node, spec, path, "max_in_flight")
    if found is None:
        return None
    _check_number(shape, found, where)
    return found.data()


def _cursor(shape: Shape, node: Node, path: str) -> dict[str, Any] | None:
    path = f"{path}.cursor"
    cursor = shape.mapping(node.get("cursor"), path)
    if cursor is None:
        return None
    for key in _CURSOR_NEEDS:
        if cursor.get(key) is None:
            hint = next(filter(None, (shape.findings.near(k, (key,)) for k in cursor.value)), "")
            shape.findings.error(cursor, path, f"the cursor has no '{key}'", hint)
    kind = cursor.get("kind")
    if kind is not None and shape.text(kind) not in shape.known_kinds:
        word = shape.text(kind)
        hint = shape.findings.near(word, sorted(shape.known_kinds))
        shape.findings.error(kind, f"{path}.kind", f"unknown cursor kind '{word}'", hint)
    data: dict[str, Any] = cursor.data()
    return data


def _frame(shape: Shape, spec: Node | None, path: str) -> dict[str, Any]:
    frame = shape.mapping(spec.get("frame"), path) if spec is not None else None
    if frame is None:
        return {}
    shape.strays(frame, path, _FRAME_KEYS, "frame")
    for key in _FRAME_KEYS:
        number = frame.get(key)
        if number is not None and key in _FLAGS:
            _check_flag(shape, number, f"{path}.{key}")
        elif number is not None and key not in _FRAME_WORDS:
            _check_number(shape, number, f"{path}.{key}")
    for key, words in _FRAME_WORDS.items():
        found = frame.get(key)
        if found is not None and shape.text(found) not in words:
            message, hint = f"unknown {key} '{shape.text(found)}'", f"use {' or '.join(words)}"
            shape.findings.error(found, f"{path}.{key}", message, hint)
    data: dict[str, Any] = frame.data()
    return _canonical(shape, frame, data, path)


def _canonical(shape: Shape, frame: Node, data: dict[str, Any], path: str) -> dict[str, Any]:
    """The frame policy by the names of the language, whichever names it was written with."""
    for alias, name in _FRAME_ALIASES.items():
        if alias not in data:
            continue
        if name in data:
            message = f"'{alias}' and '{name}' are two names of one thing"
            shape.findings.error(
                frame.key_place(alias), f"{path}.{alias}", message, f"write {name}"
            )
        value = data.pop(alias)
        if alias == "duration_ms" and isinstance(value, int):
            value = value / 1000
        elif alias == "duration_ms":
            message = "'duration_ms' must be a whole number above 0"
            hint = "write max_seconds for a template"
            shape.findings.error(frame.get(alias), f"{path}.{alias}", message, hint)
        data.setdefault(name, value)
    return data


def _either(node: Node, spec: Node | None, path: str, key: str) -> tuple[Node | None, str]:
    """A key under `spec`, or beside it as older playbooks write it, and its path."""
    found = spec.get(key) if spec is not None else None
    return (found, f"{path}.spec.{key}") if found is not None else (node.get(key), f"{path}.{key}")


def _check_flag(shape: Shape, node: Node, path: str) -> None:
    if isinstance(node.value, bool) or (node.is_text and "{{" in node.raw):
        return
    name = path.rsplit(".", 1)[-1]
    shape.findings.error(node, path, f"'{name}' must be true or false, or a template")


def _check_number(shape: Shape, node: Node, path: str) -> None:
    if type(node.value) is int and node.value > 0:
        return
    if node.is_text and ("{{" in node.raw or "{%" in node.raw):
        return
    name = path.rsplit(".", 1)[-1]
    message = f"'{name}' must be a whole number above 0, or a template"
    shape.findings.error(node, path, message)
