"""What a python task may ask of Ray: `resources` and `runtime_env`. Owns which values make sense.

Works on plain data, so that the validator can ask with the playbook's values and the tool with the
rendered ones. A template is left alone: what it gives is checked when it has been rendered.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl_ray.dsl.shape import Shape
    from noetl_ray.dsl.source import Node

RESOURCE_KEYS = ("num_cpus", "num_gpus", "memory")
"""Resources Ray knows by itself; every other key is the name of a custom one."""
RUNTIME_ENV_KEYS = ("env_vars", "pip", "working_dir")
_RESERVED = {
    "cpu": "num_cpus",
    "cpus": "num_cpus",
    "gpu": "num_gpus",
    "gpus": "num_gpus",
    "num_cpu": "num_cpus",
    "num_gpu": "num_gpus",
    "mem": "memory",
    "object_store_memory": "memory",
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?b?|b)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_ZIP = re.compile(r"(https|s3|gs|file)://\S+\.zip")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUANTITY_LEAST = 0.0001
"""Ray counts resources in ten-thousandths."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One value that makes no sense; ``key`` is empty when it is the whole mapping."""

    key: str
    message: str
    hint: str = ""


def resource_flaws(value: Any) -> list[Flaw]:
    """What is wrong with a task's `resources`."""
    if value is None or _is_template(value):
        return []
    if not isinstance(value, dict):
        return [Flaw("", "'resources' must be a mapping")]
    found = (_resource_flaw(str(key), item) for key, item in value.items())
    return [flaw for flaw in found if flaw is not None]


def runtime_env_flaws(value: Any) -> list[Flaw]:
    """What is wrong with a task's `runtime_env`."""
    if value is None or _is_template(value):
        return []
    if not isinstance(value, dict):
        return [Flaw("", "'runtime_env' must be a mapping")]
    checks = {"env_vars": _env_vars_flaw, "pip": _pip_flaw, "working_dir": _working_dir_flaw}
    found: list[Flaw] = []
    for key, item in value.items():
        if key not in checks:
            near = difflib.get_close_matches(str(key), RUNTIME_ENV_KEYS, n=1, cutoff=0.6)
            hint = f"did you mean '{near[0]}'?" if near else f"keys are {', '.join(checks)}"
            found.append(Flaw(str(key), f"a runtime_env has no key '{key}'", hint))
        elif item is not None and not _is_template(item):
            flaw = checks[key](item)
            if flaw is not None:
                found.append(flaw)
    return found


def check_wish(shape: Shape, holder: Node, path: str) -> None:
    """Report what a task, or its `spec`, asks of Ray that makes no sense."""
    for name, flaws_of in (("resources", resource_flaws), ("runtime_env", runtime_env_flaws)):
        found = holder.get(name)
        if found is None:
            continue
        for flaw in flaws_of(found.data()):
            at = found.key_place(flaw.key) if flaw.key else found
            where = f"{path}.{name}.{flaw.key}" if flaw.key else f"{path}.{name}"
            shape.findings.error(at, where, flaw.message, flaw.hint)


def quantity(value: Any) -> float | None:
    """A number of something, also from text as templates give it; None when it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def size_bytes(value: Any) -> int | None:
    """Bytes from a number or from text with a unit, such as ``2GiB``; None when it is neither."""
    if isinstance(value, int | float):
        number = quantity(value)
        return None if number is None else int(number)
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    unit = (found[2] or "").lower().removesuffix("b")
    return int(float(found[1]) * {**_UNITS, **_BINARY_UNITS}[unit])


def _resource_flaw(key: str, value: Any) -> Flaw | None:
    meant = _RESERVED.get(key.lower())
    if meant is not None:
        return Flaw(key, f"'{key}' is no resource of its own", f"use {meant}")
    if value is None or _is_template(value):
        return None
    if key == "memory":
        size = size_bytes(value)
        if size is None or size <= 0:
            message = "'memory' must be a number of bytes above 0, or text such as 2GiB"
            return Flaw(key, message)
        return None
    number = quantity(value)
    if number is None or number < 0 or 0 < number < _QUANTITY_LEAST:
        return Flaw(key, f"'{key}' must be 0 or a number from {_QUANTITY_LEAST:g}")
    if number > 1 and not number.is_integer():
        return Flaw(key, f"'{key}' above 1 must be a whole number")
    return None


def _env_vars_flaw(value: Any) -> Flaw | None:
    if not isinstance(value, dict):
        return Flaw("env_vars", "'env_vars' must be a mapping")
    for name, item in value.items():
        if _ENV_NAME.fullmatch(str(name)) is None:
            return Flaw("env_vars", f"'{name}' is no name of an environment variable")
        if str(name).startswith("RAY_"):
            return Flaw("env_vars", f"'{name}' belongs to Ray itself")
        if isinstance(item, dict | list):
            return Flaw("env_vars", f"the environment variable '{name}' must be text")
    return None


def _pip_flaw(value: Any) -> Flaw | None:
    if not isinstance(value, list) or not all(isinstance(i, str) and i.strip() for i in value):
        message = "'pip' must be a list of requirements"
        hint = f"write pip: [{value}]" if isinstance(value, str) else ""
        return Flaw("pip", message, hint)
    return None


def _working_dir_flaw(value: Any) -> Flaw | None:
    if not isinstance(value, str) or _ZIP.fullmatch(value) is None:
        message = "'working_dir' must be the address of a zip file"
        return Flaw("working_dir", message, "it starts with https://, s3://, gs:// or file://")
    return None


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and ("{{" in value or "{%" in value)
