"""What a command carries.

Just the values its step's templates can read (P24), never the whole state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.pycode import code_reads
from noetl_ray.engine.names import has_template
from noetl_ray.engine.refs import REFERENCE_FIELDS, reference_fields
from noetl_ray.engine.state import MANIFEST_TIER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from noetl_ray.dsl.model import Playbook, Step
    from noetl_ray.dsl.template import Templates
    from noetl_ray.engine.state import ExecutionState

Path = tuple[str, ...]
_EVERYTHING: Path = ("*",)
KEYCHAIN = "keychain"


class StepReads:
    """Which names each step of a playbook reads, found once per playbook."""

    def __init__(self, playbook: Playbook, templates: Templates) -> None:
        self._templates = templates
        self._keychain = {entry.name: entry.config for entry in playbook.keychain}
        self._by_step = {name: self._find(step) for name, step in playbook.steps.items()}

    def of(self, step: str, workload: Mapping[str, Any]) -> frozenset[Path]:
        """The paths a step reads, through workload strings that are templates themselves."""
        found = _through_workload(self._templates, self._by_step[step], workload)
        if not self._keychain:
            return found
        # A worker resolves the keychain entries a step can reach from what they read.
        for name in [*self._keychain][::-1]:
            if (KEYCHAIN,) in found or (KEYCHAIN, name) in {path[:2] for path in found}:
                below = self._templates.reads(self._keychain[name])
                found |= _through_workload(self._templates, below, workload)
        return found

    def _find(self, step: Step) -> frozenset[Path]:
        found: set[Path] = set(self._templates.reads(step.input))
        if step.loop is not None and step.loop.cursor is not None:
            # The claim of a cursor is rendered where it runs, with what its frame carries.
            found |= self._templates.reads(step.loop.cursor)
        reducing = step.loop.reducing if step.loop is not None else ()
        if step.loop is not None and step.loop.reduce is not None:
            found |= self._templates.reads(step.loop.reduce.initial)
        for task in (*step.tasks, *reducing):
            for part in (
                task.config,
                task.input,
                task.set,
                task.timeout,
                task.output,
                task.business_object,
            ):
                found |= self._templates.reads(part)
            for rule in task.rules:
                for part in (rule.when, rule.set, rule.attempts, rule.delay):
                    found |= self._templates.reads(part)
            if task.kind == "python":
                # User code reads by name through `main`, and anything through `context`.
                names = code_reads(task.config, {*task.input, *step.input})
                found |= {_EVERYTHING} if names is None else {(name,) for name in names}
            found |= {(KEYCHAIN, name) for name in self._authorizing(task.config)}
        return frozenset(found)

    def _authorizing(self, config: Any) -> set[str]:
        """The keychain entries that `auth` of a task may mean; all, when a template says which."""
        found: set[str] = set()
        stack = [(config, False)] if self._keychain else []
        while stack:
            item, names = stack.pop()
            if isinstance(item, dict):
                stack += [(v, names or k in ("auth", "credential")) for k, v in item.items()]
            elif isinstance(item, list):
                stack += [(value, names) for value in item]
            elif names and isinstance(item, str):
                found |= set(self._keychain) if has_template(item) else {item}
        return found & set(self._keychain)


def keychain_reads(
    templates: Templates, parts: Any, workload: Mapping[str, Any], known: Collection[str]
) -> list[str]:
    """The keychain entries that templates read, through workload strings, in the known order."""
    found = _through_workload(templates, templates.reads(parts), workload)
    if (KEYCHAIN,) in found:
        return list(known)
    read = {path[1] for path in found if path[0] == KEYCHAIN}
    return [name for name in known if name in read]


def _through_workload(
    templates: Templates, reads: Iterable[Path], workload: Mapping[str, Any]
) -> frozenset[Path]:
    found = set(reads)
    frontier = found
    for _ in range(2):
        more: set[Path] = set()
        for path in frontier:
            key = path[1] if path[0] in ("workload", "ctx") and len(path) > 1 else path[0]
            value = workload.get(key)
            if value is not None and has_template(value):
                more |= templates.reads(value)
        frontier = more - found
        found |= more
    return frozenset(found)


def command_context(
    state: ExecutionState, values: Mapping[str, Any], reads: Collection[Path]
) -> dict[str, Any]:
    """The slice of state a command takes along: ctx, workload ``values`` and step result blocks."""
    ctx: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for path in reads:
        if path == _EVERYTHING:
            return {
                "ctx": dict(state.ctx),
                "workload": dict(values),
                "steps": _results(state, state.steps),
            }
        root = path[0]
        if root == "ctx":
            _take(ctx, state.ctx, path)
            _take(workload, values, path)
        elif root == "workload":
            _take(workload, values, path)
        elif root == "steps":
            steps |= _results(state, path[1:2] or state.steps)
        else:
            steps |= _results(state, (root,))
            _take(ctx, state.ctx, ("", root))
            _take(workload, values, ("", root))
    for name, block in steps.items():
        if block.get("tier") == MANIFEST_TIER and _counts_only(name, reads):
            steps[name] = _counts(block)
        elif _reads_only(name, reads, REFERENCE_FIELDS):
            steps[name] = _by_name(block)
    return {"ctx": ctx, "workload": workload, "steps": steps}


def _counts_only(name: str, reads: Collection[Path]) -> bool:
    """Whether of a framed loop nothing is read but how many items it had and how they went."""
    return _reads_only(name, reads, ("stats", "count"))


def _reads_only(name: str, reads: Collection[Path], fields: Collection[str]) -> bool:
    """Whether of a step's result nothing is read but these fields."""
    below = [path[1:] for path in reads if path[0] == name]
    below += [path[2:] for path in reads if path[:2] == ("steps", name)]
    whole = any(path == ("steps",) for path in reads)
    return not whole and all(path and path[0] in fields for path in below)


def _counts(block: Mapping[str, Any]) -> dict[str, Any]:
    """A framed loop's result without what its items gave: that need not be fetched."""
    body = {"stats": block["stats"], "count": block["manifest"]["total"]}
    return {"status": block["status"], "reference": None, "tier": "inline", "body": body}


def _by_name(block: dict[str, Any]) -> dict[str, Any]:
    """A stored result of which only the name is handed on: its bytes need not be fetched."""
    fields = reference_fields(block)
    if not fields:
        return block
    body = {name: fields[name] for name in REFERENCE_FIELDS}
    return {"status": block["status"], "reference": None, "tier": "inline", "body": body}


def _take(into: dict[str, Any], source: Mapping[str, Any], path: Path) -> None:
    if len(path) < 2:
        into.update(source)
    elif path[1] in source:
        into[path[1]] = source[path[1]]


def _results(state: ExecutionState, names: Iterable[str]) -> dict[str, Any]:
    """The result blocks of finished steps; one that ran no task has an empty mapping."""
    found = {}
    for name in names:
        step = state.steps.get(name)
        if step is None or step.status == "failed":
            continue
        if step.result is not None:
            found[name] = step.result
        elif step.status == "completed":
            found[name] = {"status": "ok", "reference": None, "tier": "inline", "body": {}}
    return found
