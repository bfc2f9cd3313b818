"""The `keychain:` of a playbook: named secrets that tasks read (section 12).

Owns what an entry may say and where its values may be read. Only tasks may read them: whatever the
conductor decides by (arcs, conditions, step `set`, loops) lies in the log and never sees one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from noetl_ray.dsl.language import KEYCHAIN_KINDS, KEYCHAIN_OUTSIDE, names
from noetl_ray.dsl.model import KeychainEntry
from noetl_ray.dsl.shape import Shape, place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from noetl_ray.dsl.source import Node

KEYCHAIN = "keychain"
PLUGIN_GROUP = "noetl_ray.keychain"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
_NEEDED = {"static": ("map",), "bearer": ("token",), "oauth2": ("endpoint",)}
_SETS = frozenset({"set", "set_ctx", "set_iter"})
_DECIDED = _SETS | {"when", "next", "vars"}
_SECRET = re.compile(r"(password|passwd|secret|token|api_?key|private_key)$", re.IGNORECASE)
_UNREADABLE = frozenset({"ctx", "steps", "iter", "output", "outcome", "_prev", "results"})


def read_keychain(shape: Shape, root: Node) -> tuple[KeychainEntry, ...]:
    """The entries in order; findings for what cannot be resolved."""
    node = root.get(KEYCHAIN)
    entries: dict[str, KeychainEntry] = {}
    for index, item in enumerate(shape.items(node, KEYCHAIN)):
        path = f"{KEYCHAIN}[{index}]"
        entry = _entry(shape, item, path, entries)
        if entry is not None:
            entries[entry.name] = entry
    return tuple(entries.values())


def check_uses(shape: Shape, root: Node, entries: tuple[KeychainEntry, ...]) -> None:
    """Report every template outside `keychain:` that reads it where it cannot be read."""
    known = [entry.name for entry in entries]
    workflow = root.get("workflow")
    if workflow is None or not workflow.is_list:
        return
    for index, step in enumerate(workflow.value):
        if not step.is_map:
            continue
        for text, path in _texts(step, f"workflow[{index}]"):
            _check_use(shape, text, path, known)


def _entry(
    shape: Shape, item: Node, path: str, earlier: dict[str, KeychainEntry]
) -> KeychainEntry | None:
    if not item.is_map:
        message = "a keychain entry must be a mapping with a 'name' and a 'kind'"
        shape.findings.error(item, path, message)
        return None
    name = shape.name(item.get("name"))
    if name is None:
        shape.findings.error(item, path, "the keychain entry has no 'name'")
        return None
    if not _NAME.fullmatch(name):
        message = f"'{name}' cannot name a keychain entry"
        hint = "use letters, digits, _ and -, beginning with a letter"
        shape.findings.error(item.get("name"), f"{path}.name", message, hint)
        return None
    if name in earlier:
        message = f"the keychain entry '{name}' is defined twice"
        hint = f"first in line {earlier[name].at.line}"
        shape.findings.error(item.get("name"), f"{path}.name", message, hint)
        return None
    kind = _kind(shape, item, path)
    shape.slips(item, path, names("keychain entry"), "keychain entry")
    shape.check_templates(item, path)
    _check_reads(shape, item, path, name, earlier)
    if kind is None:
        return None
    _check_needed(shape, item, path, kind)
    _check_literals(shape, item, path)
    own = {"name", "kind"} if item.get("kind") is not None else {"name", "type"}
    config = {key: node.data() for key, node in item.value.items() if key not in own}
    return KeychainEntry(name=name, kind=kind, config=config, at=place(item))


def _kind(shape: Shape, item: Node, path: str) -> str | None:
    node = item.get("kind") or item.get("type")
    kind = shape.name(node)
    if kind is None:
        hint = f"kinds are {', '.join(KEYCHAIN_KINDS)}"
        shape.findings.error(node or item, path, "the keychain entry has no 'kind'", hint)
        return None
    if kind in KEYCHAIN_OUTSIDE:
        hint = f"workers need a package with an entry point '{kind}' in the group '{PLUGIN_GROUP}'"
        message = f"the keychain kind '{kind}' is not built in"
        shape.findings.warning(node, f"{path}.kind", message, hint)
    elif kind not in KEYCHAIN_KINDS:
        hint = shape.findings.near(kind, KEYCHAIN_KINDS) or f"kinds are {', '.join(KEYCHAIN_KINDS)}"
        message = f"unknown keychain kind '{kind}'"
        shape.findings.error(node, f"{path}.kind", message, hint)
        return None
    return kind


def _check_needed(shape: Shape, item: Node, path: str, kind: str) -> None:
    for key in _NEEDED.get(kind, ()):
        if item.get(key) is None:
            message = f"a keychain entry of kind '{kind}' needs '{key}'"
            shape.findings.error(item, path, message)
    if kind == "env" and item.get("map") is None and item.get("variable") is None:
        message = "a keychain entry of kind 'env' needs 'map' or 'variable'"
        shape.findings.error(item, path, message)
    for key in ("map", "headers"):
        shape.mapping(item.get(key), f"{path}.{key}")


def _check_literals(shape: Shape, item: Node, path: str) -> None:
    """Warn about a secret that is written out: whoever reads the catalog reads it."""
    for text, where in _texts(item, path):
        field = where.rsplit(".", 1)[-1]
        if _SECRET.search(field) and text.value.strip() and "{{" not in text.value:
            message = f"'{field}' stands in the playbook for everybody to read"
            hint = "store it with 'noetl-ray credential add' and use kind: credential"
            shape.findings.warning(text, where, message, hint)


def _check_reads(shape: Shape, item: Node, path: str, name: str, earlier: Collection[str]) -> None:
    for text, where in _texts(item, path):
        for read in sorted(shape.templates.reads(text.value)):
            if read[0] in _UNREADABLE:
                message = f"a keychain entry cannot read '{read[0]}'"
                hint = "it can read workload, env and earlier entries"
                shape.findings.error(text, where, message, hint)
            elif read[0] == KEYCHAIN and len(read) > 1 and read[1] not in earlier:
                itself = "itself" if read[1] == name else f"'{read[1]}'"
                message = f"'{name}' reads {itself}, which is no entry before it"
                shape.findings.error(text, where, message, shape.findings.near(read[1], earlier))


def _check_use(shape: Shape, text: Node, path: str, known: list[str]) -> None:
    read = [read for read in shape.templates.reads(text.value) if read[0] == KEYCHAIN]
    if not read:
        return
    parts = re.findall(r"[^.\[\]]+", path)
    if _is_decided(parts):
        message = "a keychain value cannot be read here: this is decided in the log"
        shape.findings.error(text, path, message, "read it in the config of a task")
        return
    if _SETS & set(parts):
        message = "a keychain value is never kept in a variable"
        shape.findings.warning(text, path, message, "read it in the config of each task")
    for name in sorted({one[1] for one in read if len(one) > 1} - set(known)):
        message = f"the keychain has no entry '{name}'"
        shape.findings.warning(text, path, message, shape.findings.near(name, known))


def _is_decided(parts: list[str]) -> bool:
    """Whether the conductor renders what stands at this place of a step."""
    place_in_step = parts[2:]
    match place_in_step:
        case ["loop", "cursor", *_]:
            return False
        case ["spec", "policy", *_] | ["loop", *_]:
            return True
        case [key, *_]:
            return key in _DECIDED
    return False


def _texts(node: Node, path: str) -> Iterator[tuple[Node, str]]:
    stack = [(node, path)]
    while stack:
        found, where = stack.pop()
        if isinstance(found.value, dict):
            stack.extend((child, f"{where}.{key}") for key, child in found.value.items())
        elif isinstance(found.value, list):
            stack.extend((child, f"{where}[{i}]") for i, child in enumerate(found.value))
        elif isinstance(found.value, str):
            yield found, where
