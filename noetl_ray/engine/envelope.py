"""What `output` is in templates: the envelope of section 6, and how it falls through to a result.

A step's own `set` and `next` and the rules of its tasks read the same shapes from here.
"""

from __future__ import annotations

from typing import Any

from noetl_ray.engine.names import StepValue, step_value

_HTTP_KEYS = ("status_code", "headers", "body")
_DATA_NAMES = frozenset({"response", "result"})


class HttpValue(StepValue):
    """The result of an http task: a field it lacks is looked up in the body of the answer."""

    def __missing__(self, key: str) -> Any:
        """Fall through to the body, then as for any result."""
        body = dict.get(self, "body")
        if isinstance(body, dict) and key in body:
            return body[key]
        return super().__missing__(key)

    def __contains__(self, key: object) -> bool:
        """Present when a lookup would find it."""
        body = dict.get(self, "body")
        return super().__contains__(key) or (isinstance(body, dict) and key in body)


class Output(dict[str, Any]):
    """The envelope; a field it lacks is looked up in the result."""

    def __missing__(self, key: str) -> Any:
        """Fall through to the result."""
        data = dict.get(self, "data")
        if key in _DATA_NAMES:
            return data
        if isinstance(data, dict) and dict.__contains__(data, key):
            return data[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        """Present when a lookup would find it."""
        if dict.__contains__(self, key) or key in _DATA_NAMES:
            return True
        data = dict.get(self, "data")
        return isinstance(data, dict) and dict.__contains__(data, key)


class ResultOutput(dict[str, Any]):
    """`output` in a task's own `set`: the result as a whole, the envelope by its fields."""

    def __init__(self, result: dict[str, Any] | None, envelope: Output) -> None:
        super().__init__(result or {})
        self.result = result
        self.envelope = envelope

    def __getitem__(self, key: str) -> Any:
        """A field of the envelope, else of the result."""
        return self.envelope[key]

    def __contains__(self, key: object) -> bool:
        """Present when a lookup would find it."""
        return key in self.envelope


def output_value(value: Any) -> Any:
    """A result as `output.data` shows it."""
    if isinstance(value, dict) and all(dict.__contains__(value, key) for key in _HTTP_KEYS):
        made = HttpValue(value)
        if isinstance(value, StepValue):
            made.beside = value.beside
        return made
    return step_value(value)


def shown(output: Output) -> Output:
    """An envelope as templates see it: its result with what it falls through to."""
    return Output({**output, "data": output_value(output["data"])})


def of_task(output: Output) -> Any:
    """`output` as a task's own `set` sees it."""
    data = output["data"]
    return ResultOutput(data, output) if data is None or isinstance(data, dict) else data


def without_envelope(value: Any) -> Any:
    """A rendered value in which a whole `output` of a task's own `set` is just the result."""
    if isinstance(value, ResultOutput):
        return value.result
    if type(value) is dict:
        return {key: without_envelope(item) for key, item in value.items()}
    return [without_envelope(item) for item in value] if type(value) is list else value


def http_block(data: Any, error: dict[str, Any] | None) -> dict[str, Any]:
    """`output.http` of a finished step, as its result or its error tells it; empty for others."""
    found = data if isinstance(data, HttpValue) else {}
    status = found.get("status_code", (error or {}).get("status_code"))
    return {} if status is None else {"status": status, "headers": found.get("headers") or {}}
