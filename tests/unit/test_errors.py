"""Every error survives pickling with its fields, and has a code of its own."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from noetl_ray import errors

SAMPLES: dict[type[errors.NoetlError], tuple[Any, ...]] = {
    errors.ConfigError: ("runtime.workers", 0, "must be positive"),
    errors.PlaybookError: ("two problems", [{"line": 3, "message": "no such step"}]),
    errors.TemplateError: ("unexpected end", "{{ a"),
    errors.NotInlineError: ("unexpected end", "{{ a", "load"),
    errors.ToolError: ("refused", "http", True, {"status": 503}, {"body": "busy"}),
    errors.VersionConflictError: ("noetl.events.1", 4, 5),
}
CLASSES = [
    item
    for _, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, errors.NoetlError)
]


def make(kind: type[errors.NoetlError]) -> errors.NoetlError:
    return kind(*SAMPLES.get(kind, ("something happened",)))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_pickling_keeps_every_field(kind: type[errors.NoetlError]) -> None:
    error = make(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.args == error.args
    assert vars(copy) == vars(error)
    assert str(copy) == str(error) != ""
    assert copy.retryable == error.retryable


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_fields_equal_constructor_arguments(kind: type[errors.NoetlError]) -> None:
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    if names not in (["args", "kwargs"], ["message"]):
        assert make(kind).args == SAMPLES[kind], f"add a sample for {kind.__name__}"


def test_codes_are_not_shared() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)


def test_the_drawn_tree_names_every_class() -> None:
    for kind in CLASSES:
        assert kind.__name__ in (errors.__doc__ or "")


def test_messages_say_key_and_reason() -> None:
    assert str(make(errors.ConfigError)) == "runtime.workers = 0: must be positive"
    assert "expected version 4" in str(make(errors.VersionConflictError))
