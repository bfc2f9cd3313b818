"""A task's config with its templates filled in, by the rules of its kind (sections 3 and 7)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.template import DROP
from noetl_ray.engine.names import handed_over
from noetl_ray.errors import TemplateError
from noetl_ray.tools.limits import added_up
from noetl_ray.tools.shell_words import fill_commands

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from noetl_ray.dsl.model import Step, Task
    from noetl_ray.dsl.template import Templates

_COERCED_KEYS = frozenset({"input", "args", "params"})
_DROPPED = frozenset({"params", "headers"})
"""Where an undefined value of a request is left out instead of sent empty."""


def rendered(
    task: Task,
    step: Step,
    given: Mapping[str, Any],
    text_keys: Container[str],
    templates: Templates,
    names: Mapping[str, Any],
) -> tuple[dict[str, Any], float | None]:
    """The config of a task, with ``given`` as its input, and its time limit in seconds.

    Raises:
        TemplateError: a template cannot be rendered, or the time limit is no number.
    """
    config: dict[str, Any] = {}
    for key, value in task.config.items():
        if key in text_keys and task.kind == "shell":
            config[key] = fill_commands(value, task.config, partial(templates.text, names=names))
        elif key in text_keys:
            config[key] = _text(value, templates, names)
        else:
            missing = DROP if task.kind == "http" and key in _DROPPED else ""
            made = templates.value(value, names, coerce=key in _COERCED_KEYS, missing=missing)
            if made is not DROP:
                config[key] = made
    config["input"] = given
    if task.kind == "python":
        config["input"] = {key: handed_over(value) for key, value in given.items()}
    raw = templates.value(task.timeout, names) if task.timeout is not None else None
    if raw is None and step.timeout is not None:
        raw = templates.value(step.timeout, names)
    raw = added_up(raw)
    try:
        timeout = float(raw) if raw not in (None, "") else None
    except (TypeError, ValueError):
        msg = f"timeout {raw!r} is not a number of seconds"
        raise TemplateError(msg, str(task.timeout)) from None
    return config, timeout


def _text(value: Any, templates: Templates, names: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return templates.text(value, names)
    if isinstance(value, list):
        return [_text(item, templates, names) for item in value]
    return value
