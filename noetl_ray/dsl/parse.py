"""From playbook text to a Playbook, or to the list of everything that is wrong with it.

Owns the document's own keys.
Never raises anything but PlaybookError, whatever the text.
"""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.flow import check_graph
from noetl_ray.dsl.keychain import check_uses, read_keychain
from noetl_ray.dsl.language import DOCUMENT_KINDS, VERSIONS, names
from noetl_ray.dsl.model import Playbook, Step
from noetl_ray.dsl.problems import Findings, Problem, playbook_error
from noetl_ray.dsl.shape import Shape
from noetl_ray.dsl.source import Node, read_source
from noetl_ray.dsl.steps import read_step
from noetl_ray.dsl.template import Templates
from noetl_ray.dsl.tool_schemas import installed_kinds
from noetl_ray.dsl.workbook import read_workbook

if TYPE_CHECKING:
    from collections.abc import Collection

PARSED_MAX = 256
"""Parsed texts that a process keeps."""
_ROOT_KEYS = names("playbook")


def parse_playbook(
    text: str, *, source: str = "playbook", known_kinds: Collection[str] | None = None
) -> Playbook:
    """Read a playbook.

    Args:
        text: The YAML.
        source: What to call it in messages, such as a file name.
        known_kinds: The tool kinds that can run; None means the installed ones.

    Raises:
        PlaybookError: When anything is wrong; its ``problems`` list every finding of this one pass.
    """
    playbook, problems = _read(text, known_kinds)
    if playbook is None:
        raise playbook_error(problems, source)
    return playbook


def parsed_playbook(text: str, known_kinds: frozenset[str] | None = None) -> Playbook:
    """The same, once per process: a text is its own name, and a playbook never changes."""
    return _parsed(text, installed_kinds() if known_kinds is None else known_kinds)


@lru_cache(maxsize=PARSED_MAX)
def _parsed(text: str, known_kinds: frozenset[str]) -> Playbook:
    return parse_playbook(text, known_kinds=known_kinds)


def check_playbook(
    text: str, *, source: str = "playbook", known_kinds: Collection[str] | None = None
) -> list[Problem]:
    """Every finding about a playbook, warnings included, in the order of the text.

    ``source`` is accepted so that both entry points take the same arguments; a finding names only
    its place, and `Problem.shown` puts the name in front.
    """
    del source
    return _read(text, known_kinds)[1]


@cache
def _templates() -> Templates:
    return Templates()


def _read(text: str, known_kinds: Collection[str] | None) -> tuple[Playbook | None, list[Problem]]:
    findings = Findings()
    shape = Shape(findings, installed_kinds() if known_kinds is None else known_kinds, _templates())
    root = read_source(text, findings)
    playbook = None
    if root is None or root.value is None:
        if not findings.failed():
            findings.error(Node(1, 1, None), "", "the playbook is empty")
    elif not root.is_map:
        message = "a playbook must be a mapping with apiVersion, kind, metadata and workflow"
        findings.error(root, "", message)
    else:
        playbook = _document(shape, root, text)
    return (None if findings.failed() else playbook), findings.sorted()


def _document(shape: Shape, root: Node, text: str) -> Playbook | None:
    _header(shape, root)
    name, path, description = _metadata(shape, root)
    keychain = read_keychain(shape, root)
    shape.workbook = read_workbook(shape, root)
    if root.get("vars") is not None:
        at = root.key_place("vars")
        shape.findings.warning(at, "vars", "'vars' at the root is ignored", "use workload")
    _root_slips(shape, root)
    workload = shape.data(root.get("workload"), "workload")
    # A workload string is only a template to whoever reads it, so a broken one may be plain text.
    shape.check_templates(root.get("workload"), "workload", error=False)
    steps = _workflow(shape, root)
    check_uses(shape, root, keychain)
    if not steps:
        return None
    entry = _entry(shape, root, steps)
    playbook = Playbook(
        name=name,
        path=path,
        workload=workload,
        steps=steps,
        entry=entry,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        source=text,
        description=description,
        keychain=keychain,
    )
    check_graph(shape, playbook)
    return playbook


def _header(shape: Shape, root: Node) -> None:
    for key, allowed in (("apiVersion", VERSIONS), ("kind", DOCUMENT_KINDS)):
        node = root.get(key)
        found = shape.name(node)
        if node is None:
            message = f"'{key}' is missing"
            shape.findings.error(root, key, message, f"write {key}: {allowed[0]}")
        elif found not in allowed:
            hint = shape.findings.near(found or "", allowed) or f"write {key}: {allowed[0]}"
            message = f"'{key}' is '{found}'" if found else f"'{key}' must be text"
            shape.findings.error(node, key, message, hint)


def _metadata(shape: Shape, root: Node) -> tuple[str, str, str]:
    if root.get("metadata") is None:
        shape.findings.error(root, "metadata", "'metadata' with a 'name' is missing")
        return "", "", ""
    metadata = shape.mapping(root.get("metadata"), "metadata")
    if metadata is None:
        return "", "", ""
    name = shape.name(metadata.get("name"))
    if name is None:
        at = metadata.get("name") or root.key_place("metadata")
        shape.findings.error(at, "metadata.name", "'metadata.name' is missing")
    path = shape.name(metadata.get("path")) or name or ""
    return name or "", path, shape.text(metadata.get("description"))


def _root_slips(shape: Shape, root: Node) -> None:
    """Warn about a root key that is a needed one written wrong; other unknown keys are legal."""
    for key in root.value:
        if key in _ROOT_KEYS:
            continue
        hint = shape.findings.near(key, [k for k in _ROOT_KEYS if k not in root.value], cutoff=0.8)
        if hint:
            message = f"a playbook has no key '{key}'"
            shape.findings.warning(root.key_place(key), key, message, hint)


def _workflow(shape: Shape, root: Node) -> dict[str, Step]:
    node = root.get("workflow")
    if node is None:
        at: Any = root.key_place("workflow")
        shape.findings.error(at, "workflow", "'workflow' with at least one step is missing")
        return {}
    items = shape.items(node, "workflow")
    if not items and node.is_list:
        shape.findings.error(node, "workflow", "'workflow' needs at least one step")
    steps: dict[str, Step] = {}
    for index, item in enumerate(items):
        step = read_step(shape, item, f"workflow[{index}]")
        if step is None:
            continue
        first = steps.setdefault(step.name, step)
        if first is not step:
            at = item.get("step") or item
            message = f"the step '{step.name}' is defined twice"
            hint = f"first in line {first.at.line}"
            shape.findings.error(at, f"workflow[{index}].step", message, hint)
    return steps


def _entry(shape: Shape, root: Node, steps: dict[str, Step]) -> str:
    executor = shape.mapping(root.get("executor"), "executor")
    spec = shape.mapping(executor.get("spec"), "executor.spec") if executor is not None else None
    node = spec.get("entry_step") if spec is not None else None
    entry = shape.name(node)
    if node is not None and entry not in steps:
        message = f"the entry step '{entry}' does not exist"
        hint = shape.findings.near(entry or "", steps)
        shape.findings.error(node, "executor.spec.entry_step", message, hint)
    if entry in steps:
        return str(entry)
    return "start" if "start" in steps else next(iter(steps))
