"""What a loop runs over and what each iteration is given. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noetl_ray.engine.cut import whole
from noetl_ray.engine.state import LOOP_TIER, MANIFEST_TIER
from noetl_ray.errors import TemplateError
from noetl_ray.events.canonical import to_jsonable

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Step
    from noetl_ray.dsl.template import Templates
    from noetl_ray.engine.names import Names
    from noetl_ray.engine.state import LoopState

PARALLEL_WINDOW = 10
"""Iterations of a parallel loop at once where `max_in_flight` does not say."""
WINDOW_MAX = 1_000
ITEMS_MAX = 1_000_000


def plan_loop(step: Step, templates: Templates, names: Names) -> dict[str, Any]:
    """The collection, its size and how many iterations may run at once.

    Raises:
        TemplateError: the collection or the limit cannot be worked out.
    """
    loop = step.loop
    assert loop is not None
    found = whole(templates.value(loop.items, names, coerce=True))
    items = _collection(to_jsonable(found), step.name)
    if len(items) > ITEMS_MAX:
        msg = f"the loop of {step.name!r} has {len(items)} items, at most {ITEMS_MAX}"
        raise TemplateError(msg, str(loop.items)[:200])
    return {
        "total": len(items),
        "iterator": loop.iterator,
        "window": 1 if loop.mode == "sequential" else _window(step, templates, names),
        "items": items,
    }


def iteration_of(loop: LoopState, items: list[Any]) -> dict[str, Any]:
    """The next iteration of a loop."""
    return {
        "index": loop.issued,
        "total": loop.total,
        "iterator": loop.iterator,
        "item": items[loop.issued],
    }


def iteration_names(iteration: Mapping[str, Any], item: Any) -> dict[str, Any]:
    """What templates of an iteration can name beside everything else (section 9)."""
    index, total, iterator = iteration["index"], iteration["total"], iteration["iterator"]
    inner = {
        iterator: item,
        "_index": index,
        "index": index,
        "_first": index == 0,
        "_last": index == total - 1,
    }
    return {
        "iter": inner,
        iterator: item,
        "_index": index,
        "loop_index": index,
        "_total": total,
        "loop": {"index": index, "total": total},
    }


def result_bytes(result: Mapping[str, Any] | None) -> int:
    """How many bytes of objects the whole of a result takes."""
    if result is None:
        return 0
    if result.get("tier") == LOOP_TIER:
        return sum(result_bytes(part) for part in result["parts"])
    if result.get("tier") == MANIFEST_TIER:
        return int(result["manifest"]["bytes"])
    reference = result.get("reference") or {}
    return int(reference.get("bytes") or 0)


def _collection(value: Any, step: str) -> list[Any]:
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping | str):
        return [value]
    if isinstance(value, tuple):
        return list(value)
    msg = f"the loop of {step!r} runs over {type(value).__name__}; give it a list"
    raise TemplateError(msg)


def _window(step: Step, templates: Templates, names: Names) -> int:
    loop = step.loop
    assert loop is not None
    if loop.max_in_flight is None:
        return PARALLEL_WINDOW
    value = templates.value(loop.max_in_flight, names, coerce=True)
    try:
        window = int(value)
    except (TypeError, ValueError):
        window = 0
    if not 1 <= window <= WINDOW_MAX or isinstance(value, bool):
        msg = (
            f"max_in_flight of {step.name!r} is {value!r}; give it a number from 1 to {WINDOW_MAX}"
        )
        raise TemplateError(msg, str(loop.max_in_flight)[:200])
    return window
