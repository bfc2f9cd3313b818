"""From a YAML file, the environment and the command line to one checked settings object.

Order, later wins: defaults, file, environment variables, overrides. Refuses what it does not know;
the first problem stops the start with key, value and reason, and no secret is part of the message.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from noetl_ray.config.checks import check
from noetl_ray.config.convert import (
    HIDDEN,
    FromEnvironment,
    from_dict,
    known_keys,
    refuse,
    suggestion,
)
from noetl_ray.config.environ import CONFIG_VARIABLE, VARIABLES, WITHOUT_SETTING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.config.settings import Settings

DEFAULT_FILE = "noetl-ray.yaml"
_FILE_BYTES_MAX = 1_048_576
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


def load_settings(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Load, merge and check.

    Args:
        path: The file; None looks at ``$NOETL_CONFIG``, then ``./noetl-ray.yaml``, then defaults.
        environ: The environment, given so that tests need not touch the process's own.
        overrides: Dotted keys with typed values, as the command line gives them; they win.

    Raises:
        ConfigError: naming key, value and reason.
    """
    found = find_file(path, environ=environ)
    tree = _substituted(_read(found), environ, "") if found is not None else {}
    for name, key in VARIABLES.items():
        if environ.get(name, "") != "":
            _place(tree, key, FromEnvironment(environ[name]))
    for name in sorted(WITHOUT_SETTING.keys() & environ.keys()):
        refuse(name, environ[name], f"{WITHOUT_SETTING[name]}; unset it")
    for key, value in (overrides or {}).items():
        if key not in known_keys():
            refuse(key, HIDDEN, f"unknown setting; {suggestion(key, known_keys())}")
        _place(tree, key, value)
    settings = from_dict(tree)
    check(settings)
    # Roles run in other working directories; only here is a relative path what the person meant.
    return dataclasses.replace(
        settings, data_dir=str(Path(settings.data_dir).expanduser().absolute())
    )


def find_file(path: Path | None, *, environ: Mapping[str, str]) -> Path | None:
    """The file that counts, or None for defaults.

    Raises:
        ConfigError: a file was named and is not there.
    """
    named = path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            refuse("config", str(named), "no such file")
        return named
    default = Path(DEFAULT_FILE)
    return default if default.is_file() else None


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key written twice instead of keeping the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping after looking for repeated keys."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str):
                line = key_node.start_mark.line + 1
                refuse(str(key), HIDDEN, f"line {line}: keys must be text")
            if key in seen:
                line = key_node.start_mark.line + 1
                refuse(key, HIDDEN, f"line {line}: this key stands here twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            refuse("config", str(path), f"larger than {_FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        refuse("config", str(path), f"cannot be read: {error}")
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        refuse("config", str(path), f"{where}{problem}")
    if data is None:
        return {}
    if not isinstance(data, dict):
        refuse("config", str(path), "must be a mapping of sections")
    return data


def _substituted(value: Any, environ: Mapping[str, str], key: str) -> Any:
    if isinstance(value, dict):
        prefix = f"{key}." if key else ""
        return {
            name: _substituted(item, environ, f"{prefix}{name}") for name, item in value.items()
        }
    if isinstance(value, list):
        return [_substituted(item, environ, key) for item in value]
    if isinstance(value, str) and "${" in value:
        return _filled(value, environ, key)
    return value


def _filled(text: str, environ: Mapping[str, str], key: str) -> str:
    taken = False

    def fill(match: re.Match[str]) -> str:
        nonlocal taken
        if match.group(0) == "$${":
            return "${"
        name, default = match.group(1), match.group(2)
        if name is None:
            refuse(key, text, "write ${NAME} or ${NAME:-default}; a plain ${ is $${")
        taken = True
        # As in a shell, ":-" also covers a variable that is set to nothing.
        if environ.get(name, "") != "" or (name in environ and default is None):
            return environ[name]
        if default is None:
            refuse(key, text, f"environment variable {name} is not set")
        return default

    filled = _VARIABLE.sub(fill, text)
    return FromEnvironment(filled) if taken else filled


def _place(tree: dict[str, Any], key: str, value: object) -> None:
    *sections, name = key.split(".")
    for section in sections:
        inner = tree.get(section)
        if inner is None:
            inner = tree[section] = {}
        if not isinstance(inner, dict):
            refuse(section, HIDDEN, "must be a mapping")
        tree = inner
    tree[name] = value
