"""Plain mappings to the settings tree and back, strictly typed, blind to what values mean.

Owns the shape: known keys, types, did-you-mean. Ranges belong to :mod:`noetl_ray.config.checks`. A
field whose dataclass hides it from ``repr`` is a secret and its value is never put into an error.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from noetl_ray.config.settings import Settings
from noetl_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = "<hidden>"
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_INDEX = re.compile(r"\[[0-9]+\]")
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class FromEnvironment(str):
    """Text that came out of the environment: the only text that may become a number or a switch."""

    __slots__ = ()


def to_dict(settings: Settings) -> dict[str, Any]:
    """The whole tree as JSON-ready data, secrets included: for shipping to actors, not showing."""
    tree: dict[str, Any] = _plain(settings)
    return tree


def from_dict(data: Mapping[str, Any]) -> Settings:
    """The inverse of :func:`to_dict`; also accepts a part, the rest being defaults.

    Raises:
        ConfigError: a key is unknown or a value has the wrong type.
    """
    built = _build(Settings, data, "")
    assert isinstance(built, Settings)
    return built


def secret_keys() -> frozenset[str]:
    """Dotted names of all settings that must not be shown."""
    found = set()
    for key, item in _leaves(Settings, ""):
        if not item.repr:
            found.add(key)
        for name, inner in _items_of(key, item).items():
            if not inner.repr:
                found.add(name)
    return frozenset(found)


def known_keys() -> tuple[str, ...]:
    """Dotted names of all settings."""
    return tuple(key for key, _ in _leaves(Settings, ""))


def shown(key: str, value: object) -> object:
    """The value as an error may show it."""
    if _INDEX.sub("[]", key) in secret_keys():
        return HIDDEN
    if isinstance(value, str) and "@" in value and "://" in value:
        scheme, _, rest = value.partition("://")
        return f"{scheme}://{HIDDEN}@{rest.rpartition('@')[2]}"
    return str(value) if isinstance(value, FromEnvironment) else value


def refuse(key: str, value: object, reason: str) -> NoReturn:
    """Raise the one error for a bad setting, with what must not be seen hidden.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(key, shown(key, value), reason)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest known word as a question, or a list of what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(names)}"


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _leaves(kind: type, prefix: str) -> Iterable[tuple[str, dataclasses.Field[Any]]]:
    for item in dataclasses.fields(kind):
        hint = _hints(kind)[item.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from _leaves(hint, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, item


def _items_of(key: str, item: dataclasses.Field[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of what a list setting holds, when those are mappings."""
    kind = next(iter(get_args(_hints(_owner(key))[item.name])), None)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return {}
    return {f"{key}[].{inner.name}": inner for inner in dataclasses.fields(kind)}


def _owner(key: str) -> type:
    """The dataclass that has the setting of a dotted name."""
    kind: type = Settings
    for name in key.split(".")[:-1]:
        kind = _hints(kind)[name]
    return kind


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _build(kind: type, data: Any, prefix: str) -> Any:
    if not hasattr(data, "items"):
        refuse(prefix.rstrip(".") or "settings", HIDDEN, "must be a mapping")
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for name, value in data.items():
        key = f"{prefix}{name}"
        if name not in hints:
            # The value is left out: whatever was misspelt may have been a secret.
            refuse(key, HIDDEN, f"unknown setting; {suggestion(str(name), hints)}")
        hint = hints[name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            values[name] = _build(hint, {} if value is None else value, f"{key}.")
        else:
            values[name] = _typed(hint, value, key)
    return kind(**values)


def _typed(hint: Any, value: Any, key: str) -> Any:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if value not in choices:
            listed = ", ".join(str(choice) for choice in choices)
            refuse(key, value, f"must be one of {listed}")
        return str(value)
    if get_origin(hint) is tuple:
        element = get_args(hint)[0]
        return _texts(value, key) if element is str else _items(element, value, key)
    if isinstance(value, FromEnvironment):
        return _coerced(hint, value, key)
    if hint is float and type(value) is int:
        return float(value)
    # bool is an int to Python; it is not one to us.
    if type(value) is not hint:
        refuse(key, value, f"must be {_NAMES[hint]}")
    return value


_NAMES = {
    str: "text (put it in quotes)",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
}


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if isinstance(value, FromEnvironment):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        refuse(key, value, "must be a list of texts")
    return tuple(str(item) for item in value)


def _items(kind: type, value: Any, key: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        refuse(key, HIDDEN, "must be a list of mappings")
    return tuple(_build(kind, item, f"{key}[{index}].") for index, item in enumerate(value))


def _coerced(hint: Any, value: FromEnvironment, key: str) -> Any:
    text = str(value)
    if hint is str:
        return text
    if hint is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        refuse(key, value, "must be true or false")
    if hint is float:
        try:
            return float(text)
        except ValueError:
            refuse(key, value, "must be a number")
    if not _WHOLE.fullmatch(text):
        refuse(key, value, "must be a whole number")
    return int(text)
