"""The filters a template may use: counted, bounded in what they make, free of chance and clocks.

Jinja's own filters are taken by name from a closed list; those that can grow their input, differ in
meaning (`default` covers None) or leave plain data are written here.
"""

from __future__ import annotations

import base64
import binascii
import html
import itertools
import json
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol, cast

from jinja2 import Undefined, pass_context
from jinja2.filters import FILTERS
from jinja2.utils import _PassArg

from noetl_ray.dsl.budget import Budget, LimitError
from noetl_ray.dsl.percent import format_text

_STOCK = (
    "abs", "capitalize", "count", "dictsort", "first", "groupby", "last",
    "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
    "reverse", "select", "selectattr", "slice", "sort", "title",
    "truncate", "unique", "upper", "wordcount",
)  # fmt: skip
_INDENT_MAX = 16
_STRIP_CHARS_MAX = 100
_PRECISION_MAX = 100
_TEXTUAL = frozenset({"capitalize", "lower", "title", "truncate", "upper", "wordcount"})
_ORDERING = frozenset({"dictsort", "groupby", "max", "min", "sort", "unique"})


class Rendering(Protocol):
    """What a filter needs of the context it runs in."""

    budget: Budget
    eval_ctx: Any
    environment: Any


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text of template data; dates, decimals and ids become text, undefined becomes null."""
    return json.dumps(value, default=_plain, indent=indent)


def replace_text(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    """``text.replace`` that refuses before it grows too long."""
    hits = text.count(old) if count < 0 else min(count, text.count(old))
    budget.text(len(text) + hits * max(0, len(new) - len(old)))
    return text.replace(old, new, count)


def join_text(budget: Budget, separator: str, values: Iterable[Any]) -> str:
    """The values as text, joined, refused before it grows too long."""
    parts: list[str] = []
    chars = 0
    for value in budget.each(values):
        if not isinstance(value, str):
            budget.fits(value)
        parts.append(str(value))
        chars += len(parts[-1]) + len(separator)
        if chars > budget.limits.text_chars:
            budget.text(chars)
    budget.text(chars)
    return separator.join(parts)


def strip_text(method: Callable[..., str]) -> Callable[..., str]:
    """``strip`` and its like, which look every character up among those to take away."""

    def run(budget: Budget, text: str, chars: str | None = None) -> str:
        if chars is not None and len(chars) > _STRIP_CHARS_MAX:
            msg = f"at most {_STRIP_CHARS_MAX} different characters can be stripped"
            raise LimitError(msg)
        return method(text, chars)

    return run


def concat_text(budget: Budget, values: Sequence[Any]) -> str:
    """What ``a ~ b`` gives."""
    return join_text(budget, "", values)


def filter_table() -> dict[str, Callable[..., Any]]:
    """Every filter by name."""
    table = {name: _bounded(_adapt(name)) for name in _STOCK}
    own: dict[str, Callable[..., Any]] = {
        "b64decode": _b64decode,
        "b64encode": _b64encode,
        "batch": _batch,
        "center": _center,
        "d": _default,
        "default": _default,
        "e": _escape,
        "escape": _escape,
        "float": _float,
        "format": _format,
        "from_json": _from_json,
        "fromjson": _from_json,
        "indent": _indent,
        "int": _int,
        "items": _items,
        "join": _join,
        "keys": _keys,
        "replace": _replace,
        "round": _round,
        "split": _split,
        "string": _string,
        "sum": _sum,
        "to_json": _tojson,
        "tojson": _tojson,
        "trim": _trim,
        "urlencode": _urlencode,
        "values": _values,
    }
    table.update({name: _bounded(function) for name, function in own.items()})
    return table


def _adapt(name: str) -> Callable[..., Any]:
    """Give a filter of Jinja the argument it asks for; count what it compares or writes."""
    stock: Callable[..., Any] = FILTERS[name]
    wants = _PassArg.from_obj(stock)
    compares, writes = name in _ORDERING, name in _TEXTUAL

    def call(context: Rendering, value: Any, *args: Any, **kwargs: Any) -> Any:
        if compares:
            context.budget.walk(value)
        if writes:
            value = _text(context, value)
        if wants is _PassArg.context:
            return stock(context, value, *args, **kwargs)
        if wants is _PassArg.eval_context:
            return stock(context.eval_ctx, value, *args, **kwargs)
        if wants is _PassArg.environment:
            return stock(context.environment, value, *args, **kwargs)
        return stock(value, *args, **kwargs)

    return call


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def call(context: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context.budget
        budget.weigh(value)
        for arg in itertools.chain(args, kwargs.values()):
            # batch, slice and truncate make what a number says.
            if isinstance(arg, int) and abs(arg) > budget.limits.text_chars:
                msg = f"a filter may be given numbers up to {budget.limits.text_chars}"
                raise LimitError(msg)
        made = function(context, value, *args, **kwargs)
        if isinstance(made, str):
            budget.text(len(made))
            return str(made) if type(made).__name__ == "Markup" else made
        if isinstance(made, Iterator):
            # Generators would leave the template as such; data stays data.
            return [list(v) if isinstance(v, tuple) else v for v in budget.each(made)]
        return made

    return cast("Callable[..., Any]", call)


def _default(
    context: Rendering, value: Any, default: Any = "", boolean: bool = False, **other: Any
) -> Any:
    default = other.pop("default_value", default)
    if other:
        msg = f"default() has no argument {min(other)!r}"
        raise TypeError(msg)
    if value is None or isinstance(value, Undefined) or (boolean and not value):
        return default
    return value


def _int(context: Rendering, value: Any, default: Any = 0, base: int = 10) -> Any:
    if isinstance(value, Undefined) or value is None:
        return default
    try:
        number = int(value, base) if isinstance(value, str) else int(value)
        # The digits of a base like 16 are not limited by Python itself.
        context.budget.bits(number.bit_length())
        return number
    except (TypeError, ValueError, OverflowError):
        try:
            return int(float(value))
        except (TypeError, ValueError, OverflowError):
            return default


def _round(context: Rendering, value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > _PRECISION_MAX:
        msg = f"round() takes a precision up to {_PRECISION_MAX}"
        raise LimitError(msg)
    return FILTERS["round"](value, precision, method)


def _batch(context: Rendering, value: Any, linecount: int, fill_with: Any = None) -> list[Any]:
    if fill_with is not None:
        context.budget.items(linecount)
        context.budget.spend(max(0, linecount))
    return list(FILTERS["batch"](context.budget.each(value), linecount, fill_with))


def _trim(context: Rendering, value: Any, chars: str | None = None) -> str:
    return strip_text(str.strip)(context.budget, _text(context, value), chars)


def _float(context: Rendering, value: Any, default: Any = 0.0) -> Any:
    if isinstance(value, Undefined):
        return default
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _tojson(context: Rendering, value: Any, indent: int | None = None) -> str:
    if indent is not None and not 0 <= indent <= _INDENT_MAX:
        msg = f"tojson indent may be 0 to {_INDENT_MAX}"
        raise LimitError(msg)
    context.budget.fits(value)
    return to_json(value, indent=indent)


def _from_json(context: Rendering, value: Any) -> Any:
    return json.loads(value) if isinstance(value, (str, bytes)) else value


def _text(context: Rendering, value: Any) -> str:
    if isinstance(value, str):
        return value
    context.budget.fits(value)
    return str(value)


def _string(context: Rendering, value: Any) -> str:
    return _text(context, value)


def _b64encode(context: Rendering, value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    text = value if isinstance(value, str) else _tojson(context, value)
    return base64.b64encode(text.encode()).decode("ascii")


def _b64decode(context: Rendering, value: Any) -> str:
    try:
        return base64.b64decode(_text(context, value), validate=False).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        msg = f"b64decode: {error}"
        raise ValueError(msg) from None


def _replace(context: Rendering, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text = _text(context, value)
    limit = -1 if count is None else count
    return replace_text(context.budget, text, _text(context, old), _text(context, new), limit)


def _join(context: Rendering, value: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        value = [
            context.environment.getitem(item, attribute) for item in context.budget.each(value)
        ]
    return join_text(context.budget, _text(context, d), value)


def _split(context: Rendering, value: Any, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    return _text(context, value).split(sep, maxsplit)


def _format(context: Rendering, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        msg = "format() takes values by position or by name, not both"
        raise TypeError(msg)
    return format_text(context.budget, _text(context, value), kwargs or args)


def _indent(
    context: Rendering, value: Any, width: Any = 4, first: bool = False, blank: bool = False
) -> str:
    text = _text(context, value)
    lead = width if isinstance(width, str) else " " * min(int(width), 1000)
    context.budget.text(len(text) + (text.count("\n") + 1) * len(lead))
    lines = text.split("\n")
    return "\n".join(
        lead + line if (line or blank) and (number or first) else line
        for number, line in enumerate(lines)
    )


def _center(context: Rendering, value: Any, width: int = 80) -> str:
    context.budget.text(width)
    return _text(context, value).center(width)


def _escape(context: Rendering, value: Any) -> str:
    text = _text(context, value)
    context.budget.text(len(text))
    return html.escape(text)


def _urlencode(context: Rendering, value: Any) -> str:
    context.budget.fits(value)
    if isinstance(value, Mapping):
        return urllib.parse.urlencode({str(key): item for key, item in value.items()})
    return urllib.parse.quote(_text(context, value))


def _sum(context: Rendering, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    values: Iterable[Any] = context.budget.each(value)
    if attribute is not None:
        values = [context.environment.getitem(item, attribute) for item in values]
    if isinstance(start, (list, tuple)):
        flat = list(start)
        for part in values:
            context.budget.items(len(flat) + len(part))
            flat.extend(part)
        return flat
    return sum(values, start)


def _items(context: Rendering, value: Any) -> list[list[Any]]:
    return [] if isinstance(value, Undefined) else [list(pair) for pair in value.items()]


def _keys(context: Rendering, value: Any) -> list[Any]:
    return [] if isinstance(value, Undefined) else list(value.keys())


def _values(context: Rendering, value: Any) -> list[Any]:
    return [] if isinstance(value, Undefined) else list(value.values())


def _plain(value: Any) -> Any:
    """What `json` cannot write itself."""
    if isinstance(value, Undefined):
        return None
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    # Ids are known by name: this package imports nothing that could make one.
    if isinstance(value, (Decimal, timedelta)) or type(value).__name__ == "UUID":
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Sequence, range)):
        return list(value)
    msg = f"tojson cannot write a {type(value).__name__}"
    raise TypeError(msg)
