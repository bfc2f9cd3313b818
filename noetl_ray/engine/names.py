"""What templates can name, in the order of the language page (section 2), as one lazy mapping.

The same mapping serves guards in a decision and task templates in a worker; the worker merely has
fewer values in it, those its command carries (P24).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from noetl_ray.engine.cut import CutList, CutMap, restore
from noetl_ray.engine.refs import reference_fields
from noetl_ray.engine.state import LOOP_TIER, LOOP_TIERS, MANIFEST_TIER, loop_result
from noetl_ray.events.canonical import to_jsonable

if TYPE_CHECKING:
    from noetl_ray.dsl.template import Templates

    _Map: TypeAlias = Mapping[str, Any]
    _Parts: TypeAlias = tuple[Templates, _Map, _Map, _Map, dict[str, Any], Callable[[], str] | None]
    """What names are made of, but for the workload: templates, locals, ctx, steps, fixed, now."""

_SELF_ALIASES = frozenset({"data", "result", "context"})
_RENDER_DEPTH_MAX = 2


class StepValue(dict[str, Any]):
    """A mapping result as other steps see it.

    ``step.data.f`` and ``step.result.f`` mean ``step.f``. ``beside`` holds what a result that lies
    in an object offers by name (`_ref` and its like); it is no part of the value.
    """

    beside: Mapping[str, Any] = MappingProxyType({})

    def __missing__(self, key: str) -> Any:
        """Fall back to the value itself for the documented aliases."""
        if key in self.beside:
            return self.beside[key]
        if key in _SELF_ALIASES:
            return self
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        """The aliases count as present."""
        return dict.__contains__(self, key) or key in _SELF_ALIASES or key in self.beside


class LoopValue(StepValue):
    """What a loop gave: ``data`` is the list of its results."""

    def __missing__(self, key: str) -> Any:
        """The results for ``data``, else as for any step."""
        return self["results"] if key == "data" else super().__missing__(key)


class FramedLoopValue(LoopValue):
    """A loop whose results lie in the tier: counts are here, what items gave must be fetched."""

    def __missing__(self, key: str) -> Any:
        """The last result is one of those that are not here."""
        return self["results"][-1] if key == "last_result" else super().__missing__(key)

    def __contains__(self, key: object) -> bool:
        """It is a key like the others, though."""
        return key == "last_result" or super().__contains__(key)


def step_value(value: Any, result: Mapping[str, Any] | None = None) -> Any:
    """A step's result as templates see it; ``result`` is the block it came in, when it matters."""
    if type(value) is not dict:
        return value
    made = StepValue(value)
    beside = reference_fields(result) if result is not None else {}
    if beside:
        made.beside = beside
    return made


def whole_value(result: Mapping[str, Any] | None, value: Any) -> Any:
    """A whole result as templates see it; the block of its event tells a loop's from others."""
    if result is not None and result.get("tier") in LOOP_TIERS:
        return LoopValue(value)
    return step_value(value, result)


def handed_over(value: Any) -> Any:
    """A result as code gets it: with a real ``data`` key, which it may ask for by ``get``."""
    if isinstance(value, StepValue) and not dict.__contains__(value, "data"):
        found = value["data"]
        return {**value, "data": dict(found) if isinstance(found, dict) else found}
    return value


def extracted_value(result: Mapping[str, Any], path: str) -> Any:
    """The value a guard sees of a result block.

    The body when it is inline, else the extracted part.
    """
    if result.get("tier") == "inline":
        return step_value(result.get("body", result.get("extracted")))
    if result.get("tier") == LOOP_TIER:
        parts = [None if p is None else extracted_value(p, path) for p in result["parts"]]
        return loop_value(parts, result["stats"])
    if result.get("tier") == MANIFEST_TIER:
        total = result["manifest"]["total"]
        results = CutList([], total, path, "results")
        return FramedLoopValue(results=results, stats=dict(result["stats"]), count=total)
    value = restore(result.get("extracted"), result.get("truncated") or {}, path)
    beside = reference_fields(result)
    if type(value) is dict:
        # A selected field is whole even where the extracted block has only its mark.
        return step_value({**value, **(result.get("reference") or {}).get("selected", {})}, result)
    if isinstance(value, CutMap):
        dict.update(value, beside)
    return value


def loop_value(results: list[Any], stats: Mapping[str, int]) -> LoopValue:
    """The result of a loop step from those of its iterations, in the order of the collection."""
    return LoopValue(loop_result(results, dict(stats)))


class EventName(str):
    """An event name that equals its synonyms in other dialects (section 10)."""

    __slots__ = ()
    _DONE = frozenset({"call.done", "step.done", "step.exit"})
    _FAILED = frozenset({"call.error", "step.failed"})

    def __eq__(self, other: object) -> bool:
        """Done equals done, failed equals failed, whatever the dialect calls it."""
        mine = str.__str__(self)
        if mine == "loop.done":
            return other in ("loop.done", "step.done", "step.exit")
        for family in (self._DONE, self._FAILED):
            if mine in family:
                return other in family
        return mine == other

    def __ne__(self, other: object) -> bool:
        """The inverse of equality."""
        return not self == other

    __hash__ = str.__hash__


class Names(Mapping[str, Any]):
    """The lazy mapping a template is rendered with."""

    __slots__ = ("_ctx", "_fixed", "_locals", "_now", "_steps", "_templates", "_workload")

    def __init__(
        self,
        templates: Templates,
        *,
        execution_id: int,
        workload: Mapping[str, Any],
        ctx: Mapping[str, Any],
        steps: Mapping[str, Any],
        env: Mapping[str, str],
        locals_: Mapping[str, Any] | None = None,
        keychain: Mapping[str, Any] | None = None,
        now: Callable[[], str] | None = None,
    ) -> None:
        """``now`` tells the time as ISO text: a decision's own, so that its events record it."""
        self._templates = templates
        self._now = now
        self._locals: Mapping[str, Any] = locals_ or {}
        self._ctx = ctx
        self._steps = steps
        identity = str(execution_id)
        self._fixed: dict[str, Any] = {
            "job": {"uuid": identity, "execution_id": identity, "id": identity},
            "execution_id": identity,
            "catalog_id": identity,
            "env": env,
            "steps": steps,
            "keychain": {} if keychain is None else keychain,
        }
        self._workload = _Rendered(
            workload, (templates, self._locals, ctx, steps, self._fixed, now)
        )

    @classmethod
    def _of(cls, parts: _Parts, workload: _Rendered) -> Names:
        made = object.__new__(cls)
        made._templates, made._locals, made._ctx, made._steps, made._fixed, made._now = parts
        made._workload = workload
        return made

    def with_locals(self, locals_: Mapping[str, Any]) -> Names:
        """The same names with other pipeline locals in front."""
        parts = (self._templates, locals_, self._ctx, self._steps, self._fixed, self._now)
        return Names._of(parts, self._workload)

    def with_ctx(self, ctx: Mapping[str, Any]) -> Names:
        """The same names over other variables, for what must not see what others write."""
        other = self.with_locals(self._locals)
        other._ctx = ctx
        return other

    @property
    def seed(self) -> Mapping[str, Any]:
        """The workload as it was given, which variables start from."""
        return self._workload.values_as_given

    def __getitem__(self, name: str) -> Any:
        """First hit in the order of section 2; KeyError when nothing has the name."""
        if name in self._locals:
            return self._locals[name]
        if name == "ctx":
            return _Bag(self._ctx, self._workload)
        if name == "workload":
            return self._workload
        if name in self._fixed:
            return self._fixed[name]
        if name in self._steps:
            return self._steps[name]
        if name in self._ctx:
            return self._ctx[name]
        if name == "now" and self._now is not None and name not in self._workload:
            return self._now
        return self._workload[name]

    def __contains__(self, name: object) -> bool:
        """Whether a lookup would find something."""
        return (
            name in self._locals
            or name == "ctx"
            or name == "workload"
            or name in self._fixed
            or name in self._steps
            or name in self._ctx
            or name in self._workload
        )

    def __iter__(self) -> Iterator[str]:
        """Every name once."""
        return iter(
            dict.fromkeys(
                [
                    *self._locals,
                    "ctx",
                    "workload",
                    *self._fixed,
                    *self._steps,
                    *self._ctx,
                    *self._workload,
                ]
            )
        )

    def __len__(self) -> int:
        """How many names there are."""
        return sum(1 for _ in self)


class _Rendered(Mapping[str, Any]):
    """The workload, whose strings are rendered once, when they are read (section 2).

    It knows what names are made of, not the names it belongs to: a circle would keep everything a
    decision saw until the garbage collector comes by.
    """

    __slots__ = ("_cache", "_depth", "_parts", "_values")

    def __init__(self, values: Mapping[str, Any], parts: _Parts) -> None:
        self._values = values
        self._parts = parts
        self._cache: dict[tuple[str, int], Any] = {}
        self._depth = 0

    @property
    def values_as_given(self) -> Mapping[str, Any]:
        return self._values

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if not has_template(value):
            return value
        # What a string gives depends on how deep it is read, so what was read first must not count.
        at = key, self._depth
        if at in self._cache:
            return self._cache[at]
        if self._depth >= _RENDER_DEPTH_MAX:
            return value
        self._depth += 1
        try:
            names = Names._of(self._parts, self)
            rendered = names._templates.value(value, names)
        finally:
            self._depth -= 1
        self._cache[at] = rendered
        return rendered

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __len__(self) -> int:
        return len(self._values)


class _Bag(Mapping[str, Any]):
    """``ctx``: the variables, seeded from the workload."""

    __slots__ = ("_ctx", "_workload")

    def __init__(self, ctx: Mapping[str, Any], workload: Mapping[str, Any]) -> None:
        self._ctx = ctx
        self._workload = workload

    def __getitem__(self, key: str) -> Any:
        return self._ctx[key] if key in self._ctx else self._workload[key]

    def __contains__(self, key: object) -> bool:
        return key in self._ctx or key in self._workload

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._ctx, *self._workload]))

    def __repr__(self) -> str:
        return repr(dict(self))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def has_template(value: Any) -> bool:
    """Whether a value holds template text anywhere."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, dict):
        return any(has_template(item) for item in value.values())
    if isinstance(value, list):
        return any(has_template(item) for item in value)
    return False


def plain_names(names: Mapping[str, Any], wanted: Collection[str] | None = None) -> dict[str, Any]:
    """The render context as plain data, for code that asks for it; without secrets.

    Args:
        names: The render context.
        wanted: Just these names; None takes all.
    """
    return {
        key: msgspec.to_builtins(to_jsonable(_dict(handed_over(names[key]))))
        for key in (names if wanted is None else [name for name in wanted if name in names])
        if key != "keychain"
    }


def _dict(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) and not isinstance(value, dict) else value
