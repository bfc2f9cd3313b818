"""The language as JSON Schema (draft 2020-12), for editors; made from the description of its keys.

Never refuses what the parser takes, and cannot see what only the parser sees: names that must
exist, templates that must compile. ``python -m noetl_ray.dsl.schema --write`` renews the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.language import CONFIG, CONSTRUCTS, KINDS, REFUSED, WORKBOOK
from noetl_ray.dsl.tool_schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.dsl.language import Key

SCHEMA_FILE = Path(__file__).with_name("playbook.schema.json")

_ROOT = "playbook"
_SCALAR = ["string", "number", "boolean"]
_TEMPLATE = {"type": "string", "pattern": r"\{\{|\{%"}
_NOTHING = {"type": "null"}
_TYPED: dict[str, Any] = {
    "resources": {"anyOf": [{"$ref": "#/$defs/resources"}, _TEMPLATE, _NOTHING]},
    "runtime_env": {"anyOf": [{"$ref": "#/$defs/runtime_env"}, _TEMPLATE, _NOTHING]},
}
"""Config that has a shape of its own; only python tasks read it."""


def playbook_schema() -> dict[str, Any]:
    """The schema of a whole playbook."""
    parts = {_id(name): _construct(name) for name in CONSTRUCTS if name != _ROOT}
    parts["task"]["allOf"] = [_config(kind) for kind in sorted(CONFIG)]
    parts["loop"]["anyOf"] = [_only("in", "cursor"), _only("cursor", "in"), {"maxProperties": 0}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "NoETL playbook",
        **_construct(_ROOT),
        "$defs": dict(sorted({**parts, **_shapes()}.items())),
    }


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(playbook_schema(), indent=2, ensure_ascii=False) + "\n"


def main(argv: Sequence[str]) -> int:
    """Write the file, or the schema to standard output."""
    if "--write" in argv:
        SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    else:
        sys.stdout.write(schema_text())
    return 0


def _construct(name: str) -> dict[str, Any]:
    keys = CONSTRUCTS[name]
    made: dict[str, Any] = {"type": "object", "properties": {k.name: _key(k) for k in keys}}
    needed = [key.name for key in keys if key.needed]
    return {**made, "required": needed} if needed else made


def _key(key: Key) -> Any:
    if key.type == REFUSED:
        return _NOTHING
    typed = _type(key.type)
    if not key.needed and typed:
        # An absent value may be written as null.
        typed = {"anyOf": [typed, _NOTHING]}
    return {"description": key.text, **typed} if key.text else typed


def _type(word: str) -> dict[str, Any]:
    first, _, rest = word.partition(" ")
    if word.startswith("one of "):
        return {"enum": word.removeprefix("one of ").split("|")}
    if first == "perhaps":
        return {"anyOf": [{"enum": rest.split("|")}, {}]}
    plain: dict[str, dict[str, Any]] = {
        "any": {},
        "attempts": {"anyOf": [{"type": "number", "minimum": 1}, {"not": {"type": "number"}}]},
        "flag": {"type": "boolean"},
        "kind": {"enum": sorted({*KINDS, WORKBOOK})},
        "mapping": {"type": "object"},
        "name": {"type": _SCALAR},
        "number": {"anyOf": [{"type": "integer", "minimum": 1}, _TEMPLATE]},
        "scalar": {"type": _SCALAR},
    }
    return plain[word] if word in plain else {"$ref": f"#/$defs/{_id(word)}"}


def _shapes() -> dict[str, Any]:
    """The types that are lists or choices of constructs."""
    task = _type("task")
    labelled = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": task,
        "not": {"required": ["kind"]},
    }
    name = _type("name")
    item = {"anyOf": [name, _type("arc")]}
    next_map = CONSTRUCTS["next"]
    chooser = {"type": "object", "properties": {key.name: _key(key) for key in next_map}}
    return {
        "arcs": {"type": "array", "items": item},
        "else": {"anyOf": [_type("action"), {"type": "object", "required": ["then"]}]},
        "keychain": {"type": "array", "items": _type("keychain entry")},
        "maybe_loop": {"anyOf": [_type("loop"), {"type": "array", "maxItems": 0}]},
        "next": {"anyOf": [name, {"type": "array", "items": item}, chooser]},
        "rules": {"type": "array", "items": _type("rule")},
        "steps": {"type": "array", "items": _type("step"), "minItems": 1},
        "tool": {"anyOf": [task, {"type": "array", "items": {"anyOf": [task, labelled]}}]},
        "workbook": {
            "anyOf": [{"type": "array", "items": _type("workbook item")}, {"type": "object"}]
        },
    }


def _config(kind: str) -> dict[str, Any]:
    """What a task of a kind reads, offered only once the kind is written."""
    texts = SCHEMAS[kind].keys if kind in SCHEMAS else {}
    offered: dict[str, Any] = {
        key: ({"description": texts[key]} if key in texts else {}) | _TYPED.get(key, {})
        for key in CONFIG[kind]
    }
    if kind == "python":
        offered["spec"] = {"properties": _TYPED}
    return {
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {"properties": offered},
    }


def _only(one: str, other: str) -> dict[str, Any]:
    given = {one: {"not": _NOTHING}, other: _NOTHING}
    return {"required": [one], "properties": given}


def _id(name: str) -> str:
    return name.replace(" ", "_")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
