"""The Jinja environment templates run in: plain data only, counted, no way to the Python behind it.

Refuses by construction rather than by a list of bad names: an attribute is a key of the data, or
one of a few reading methods named here, or undefined. Python's own attribute lookup is never used
on a value. Names come from a lazy mapping, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from jinja2 import ChainableUndefined, Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import _PassArg, missing

from noetl_ray.dsl.filters import (
    concat_text,
    filter_table,
    join_text,
    replace_text,
    strip_text,
)
from noetl_ray.dsl.percent import format_text

if TYPE_CHECKING:
    from noetl_ray.dsl.budget import Budget

# Names with a blank cannot be written in a template, so only our own rewriting reaches these.
EACH = " each"
LENGTH = " length"
CONCAT = " concat"
WEIGHED = " weighed"

_ABSENT: Any = object()
_LOOP_FIELDS = frozenset(
    {
        "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem",
        "previtem", "revindex", "revindex0",
    }
)  # fmt: skip
_Run = Callable[..., Any]


class Missing(ChainableUndefined):
    """An undefined value: falsy, empty as text, undefined in every part, smaller than nothing."""

    __slots__ = ()

    def __lt__(self, *_other: Any, **_named: Any) -> Any:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    @property
    def _undefined_message(self) -> str:
        # A key that is no data is shown by its type's name for itself, which tells of insides.
        name: object = self._undefined_name
        if isinstance(name, str | int | float | None):
            return super()._undefined_message
        return "there is no such element"


class Method:
    """A reading method of a value, ready to be called from a template and good for nothing else."""

    __slots__ = ("run", "target")

    def __init__(self, target: Any, run: _Run) -> None:
        self.target = target
        self.run = run

    def __str__(self) -> str:
        return ""

    def __bool__(self) -> bool:
        return False


class DataContext(Context):
    """A Jinja context that asks a mapping for each name when it is needed."""

    def __init__(self, environment: Sandbox, names: Mapping[str, Any], budget: Budget) -> None:
        # The base class would want a dict of everything; only what generated code uses is set.
        self.environment = environment
        self.names = names
        self.budget = budget
        self.parent = {}
        self.vars = {}
        self.exported_vars = set()
        self.eval_ctx = environment.eval_ctx
        self.name = None
        self.blocks = {}
        self.globals_keys = set()

    def resolve_or_missing(self, key: str) -> Any:
        """A name set in the template, else one of the caller's, else one of ours."""
        if key in self.vars:
            return self.vars[key]
        try:
            return self.names[key]
        except KeyError:
            return self.environment.globals.get(key, missing)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment itself; one serves any number of renderings."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            undefined=Missing, optimized=False, keep_trailing_newline=True, cache_size=0
        )
        self.eval_ctx = EvalContext(self, None)
        self.finalize = _finalize
        self.globals = {"range": _range}
        self.tests = {name: _weighing(test) for name, test in TESTS.items()}
        self.filters = filter_table()
        self.filters[EACH] = _each
        self.filters[LENGTH] = _length
        self.filters[CONCAT] = _concat
        self.filters[WEIGHED] = _weighed

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A key of the data first, then a reading method, else undefined."""
        if type(obj) is dict:
            found = obj.get(attribute, _ABSENT)
            if found is not _ABSENT:
                return found
        elif isinstance(obj, Undefined):
            return obj
        elif isinstance(obj, Mapping):
            try:
                return obj[attribute]
            except KeyError:
                pass
        elif isinstance(obj, LoopContext):
            if attribute in _LOOP_FIELDS:
                return getattr(obj, attribute)
            return self.undefined(obj=None, name=attribute)
        run = _methods(obj).get(attribute)
        return Method(obj, run) if run is not None else self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An element of the data, else undefined."""
        if isinstance(obj, Undefined):
            return obj
        if isinstance(obj, (Mapping, Sequence)):
            try:
                return obj[argument]
            except (KeyError, IndexError, TypeError):
                pass
        return self.undefined(obj=obj, name=argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Nothing of Python is reachable as an attribute, should anything of Jinja ask."""
        return False

    def is_safe_callable(self, obj: Any) -> bool:
        """Functions the caller put among the names, and reading methods."""
        return isinstance(obj, (Method, FunctionType, MethodType, partial))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what may be called, counted."""
        budget: Budget = __context.budget  # type: ignore[attr-defined]
        budget.spend(1)
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if isinstance(__obj, Method):
            budget.weigh(__obj.target)
            return __obj.run(budget, __obj.target, *args, **kwargs)
        if __obj is _range:
            return _range(budget, *args)
        if isinstance(__obj, Undefined):
            msg = f"{__obj._undefined_message}, so it cannot be called"
            raise SecurityError(msg)
        if not __self.is_safe_callable(__obj):
            msg = "this value cannot be called in a template"
            raise SecurityError(msg)
        return __obj(*args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic that refuses to make what would not fit."""
        budget: Budget = context.budget  # type: ignore[attr-defined]
        check = _CHECKS.get(operator)
        if operator == "%" and isinstance(left, str):
            return format_text(budget, left, tuple(right) if isinstance(right, list) else right)
        if check is not None:
            check(budget, left, right)
        elif isinstance(left, int) and isinstance(right, int):
            # Literals and data may bring long numbers; dividing them is slow.
            budget.bits(max(left.bit_length(), right.bit_length()))
        made = self.binop_table[operator](left, right)
        if type(made) is complex:
            msg = "a negative number has no such root"
            raise SecurityError(msg)
        return made


def _check_add(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, (str, bytes)) and isinstance(right, (str, bytes)):
        budget.text(len(left) + len(right))
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        budget.items(len(left) + len(right))


def _check_times(budget: Budget, left: Any, right: Any) -> None:
    for value, times in ((left, right), (right, left)):
        if not isinstance(times, int):
            continue
        if isinstance(value, (str, bytes)):
            budget.text(len(value) * max(times, 0))
        elif isinstance(value, (list, tuple)):
            budget.items(len(value) * max(times, 0))
            budget.spend(budget.walk(value) * max(times, 0))
        elif isinstance(value, int):
            budget.bits(value.bit_length() + times.bit_length())


def _check_power(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and right > 0:
        budget.bits(left.bit_length() * right)


_CHECKS: dict[str, Callable[[Budget, Any, Any], None]] = {
    "+": _check_add,
    "*": _check_times,
    "**": _check_power,
}


def _range(budget: Budget, *bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > budget.limits.range_items:
        msg = f"range() may give at most {budget.limits.range_items} numbers"
        raise SecurityError(msg)
    budget.spend(len(numbers) >> 2)
    return list(numbers)


@pass_context
def _finalize(context: Any, value: Any) -> Any:
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, (FunctionType, MethodType, partial, Method)):
        return ""
    context.budget.fits(value)
    return value


@pass_context
def _each(context: Any, values: Any, weight: int = 1) -> Any:
    return context.budget.each(values, weight)


@pass_context
def _length(context: Any, value: Any) -> Any:
    context.budget.weigh(value)
    return value


@pass_context
def _concat(context: Any, values: Any) -> str:
    return concat_text(context.budget, values)


@pass_context
def _weighed(context: Any, value: Any) -> Any:
    context.budget.walk(value)
    return value


def _weighing(test: Any) -> Callable[..., Any]:
    """A test of Jinja, counted by what it may have to compare."""
    wants = _PassArg.from_obj(test)

    @pass_context
    def call(context: Any, value: Any, *args: Any) -> Any:
        context.budget.spend(1)
        for arg in args:
            context.budget.walk(arg)
        return test(context.environment, value, *args) if wants else test(value, *args)

    return call


def _plain(method: Callable[..., Any]) -> _Run:
    def run(budget: Budget, target: Any, *args: Any) -> Any:
        return method(target, *args)

    return run


_TEXT: dict[str, _Run] = {
    name: _plain(getattr(str, name))
    for name in (
        "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit",
        "isnumeric", "lower", "removeprefix", "removesuffix", "rsplit",
        "split", "splitlines", "startswith", "title", "upper",
    )
} | {
    "join": join_text, "replace": replace_text, "strip": strip_text(str.strip),
    "lstrip": strip_text(str.lstrip), "rstrip": strip_text(str.rstrip),
}  # fmt: skip
_MAPPING: dict[str, _Run] = {
    "get": lambda _budget, target, key, default=None: _get(target, key, default),
    "items": lambda _budget, target: [list(pair) for pair in target.items()],
    "keys": lambda _budget, target: list(target.keys()),
    "values": lambda _budget, target: list(target.values()),
}
_LIST: dict[str, _Run] = {
    "count": lambda budget, target, value: _walked(budget, target).count(value),
    "index": lambda budget, target, value: _index(_walked(budget, target), value),
}
_NONE: dict[str, _Run] = {}

METHOD_NAMES = frozenset(_TEXT) | frozenset(_MAPPING) | frozenset(_LIST)


def _index(target: Sequence[Any], value: Any) -> int:
    if value not in target:
        # Python's own message would show the value.
        msg = "the list has no such element"
        raise ValueError(msg)
    return target.index(value)


def _walked(budget: Budget, target: Any) -> Any:
    budget.walk(target)
    return target


def _methods(obj: Any) -> dict[str, _Run]:
    if isinstance(obj, str):
        return _TEXT
    if isinstance(obj, Mapping):
        return _MAPPING
    return _LIST if isinstance(obj, (list, tuple)) else _NONE


def _get(target: Mapping[str, Any], key: Any, default: Any) -> Any:
    try:
        return target[key]
    except (KeyError, TypeError):
        return default
