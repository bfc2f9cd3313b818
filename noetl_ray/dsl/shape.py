"""Reading the shapes playbooks are made of: a node in, checked data out, findings on the side.

Holds what the readers of steps, tasks and documents share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.model import Place
from noetl_ray.dsl.workbook import Workbook

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from noetl_ray.dsl.problems import Findings
    from noetl_ray.dsl.source import Node
    from noetl_ray.dsl.template import Templates

NOT_YET = "not supported yet by this version"
_SURELY = 0.8
"""How alike an unknown key must be to a known one before it is called a slip."""
_SCOPES = {"set_ctx": "ctx.", "set_iter": "iter."}


class Shape:
    """The findings and knowledge one reading of a playbook carries around."""

    def __init__(
        self, findings: Findings, known_kinds: Collection[str], templates: Templates
    ) -> None:
        self.findings = findings
        self.known_kinds = frozenset(known_kinds)
        self.templates = templates
        self.paths: dict[tuple[int, int], str] = {}
        """Where steps and arcs stand in the document, by line and column."""
        self.workbook = Workbook()

    def mapping(self, node: Node | None, path: str) -> Node | None:
        """The node when it is a mapping; a finding when it is something else."""
        if node is None or node.value is None:
            return None
        if node.is_map:
            return node
        self.findings.error(node, path, f"'{last(path)}' must be a mapping")
        return None

    def data(self, node: Node | None, path: str) -> dict[str, Any]:
        """A mapping as plain data; empty when absent or wrong."""
        found = self.mapping(node, path)
        return found.data() if found is not None else {}

    def items(self, node: Node | None, path: str) -> list[Node]:
        """The elements of a list; empty when absent or wrong."""
        if node is None or node.value is None:
            return []
        if node.is_list:
            return list(node.value)
        self.findings.error(node, path, f"'{last(path)}' must be a list")
        return []

    def name(self, node: Node | None) -> str | None:
        """A scalar that serves as a name, as written; None when it is not one."""
        if node is None or node.is_map or node.is_list or node.value is None:
            return None
        return node.raw.strip() or None

    def text(self, node: Node | None) -> str:
        """A scalar as written; empty when absent."""
        return node.raw if node is not None and not node.is_map and not node.is_list else ""

    def condition(self, node: Node | None, path: str) -> Any:
        """A `when`: any scalar; a finding for anything else, and for text that is no template."""
        if node is None:
            return None
        if node.is_map or node.is_list:
            self.findings.error(node, path, f"'{last(path)}' must be a template or a boolean")
            return None
        if node.is_text and "{{" not in node.raw and "{%" not in node.raw:
            self._plain_condition(node, path)
        return node.value

    def _plain_condition(self, node: Node, path: str) -> None:
        word = node.raw.strip().lower()
        if word not in {"", "true", "false", "yes", "no", "1", "0", "none", "null"}:
            hint = f'write "{{{{ {node.raw.strip()} }}}}"' if len(node.raw) < 80 else ""
            self.findings.warning(node, path, "the condition is plain text and always true", hint)

    def assignments(self, node: Node, path: str) -> dict[str, Any]:
        """What `set`, `set_ctx` and `set_iter` of a mapping assign, with the scope in each key."""
        made: dict[str, Any] = {}
        for key, scope in (*_SCOPES.items(), ("set", "")):
            found = self.mapping(node.get(key), f"{path}.{key}")
            if found is None:
                continue
            for name, value in found.value.items():
                self._check_target(found, name, f"{path}.{key}")
                made[scope + name] = value.data()
        return made

    def _check_target(self, node: Node, name: str, path: str) -> None:
        if not all(part.strip() for part in name.split(".")):
            at = node.key_place(name)
            self.findings.error(at, path, f"'{name}' is not a name that can be set")

    def arguments(self, node: Node, path: str) -> dict[str, Any]:
        """`args` overlaid by `input`."""
        return {
            **self.data(node.get("args"), f"{path}.args"),
            **self.data(node.get("input"), f"{path}.input"),
        }

    def slips(self, node: Node, path: str, known: Iterable[str], what: str) -> None:
        """Warn about keys that are surely a known key written wrong."""
        words = list(known)
        for key in node.value:
            if key in words:
                continue
            hint = self.findings.near(key, words, cutoff=_SURELY)
            if hint:
                article = "an" if what[0] in "aeiou" else "a"
                message = f"{article} {what} has no key '{key}'"
                self.findings.warning(node.key_place(key), f"{path}.{key}", message, hint)

    def strays(self, node: Node, path: str, known: Iterable[str], what: str) -> None:
        """Warn about every key that is not known, where nothing but known keys has a meaning."""
        words = list(known)
        for key in node.value:
            if key not in words:
                message = f"a {what} has no key '{key}'"
                hint = self.findings.near(key, words)
                self.findings.warning(node.key_place(key), f"{path}.{key}", message, hint)

    def refuse(self, node: Node, path: str, keys: dict[str, str]) -> None:
        """Report constructs that are not accepted; the values say what to do instead."""
        for key, hint in keys.items():
            if node.get(key) is not None:
                message = f"'{key}' is not part of this language"
                self.findings.error(node.key_place(key), f"{path}.{key}", message, hint)

    def not_yet(self, node: Node, path: str, keys: Iterable[str]) -> None:
        """Report constructs of the language that this version cannot run."""
        for key in keys:
            found = node.get(key)
            if found is not None and found.value not in ([], {}):
                at = node.key_place(key)
                where = f"{path}.{key}" if path else key
                self.findings.error(at, where, f"'{key}' is {NOT_YET}")

    def check_templates(self, node: Node | None, path: str, *, error: bool = True) -> None:
        """Report every template under a node that cannot be compiled, with its own line."""
        if node is None:
            return
        if isinstance(node.value, dict):
            for key, child in node.value.items():
                self.check_templates(child, f"{path}.{key}", error=error)
        elif isinstance(node.value, list):
            for index, child in enumerate(node.value):
                self.check_templates(child, f"{path}[{index}]", error=error)
        elif isinstance(node.value, str):
            flaw = self.templates.flaw(node.value)
            if flaw is not None:
                # A `|` block starts on the line after its mark; other texts are folded.
                line = node.line + flaw[0] if node.literal else node.line
                at = Place(line=line, column=1 if node.literal else node.column)
                report = self.findings.error if error else self.findings.warning
                report(at, path, f"the template is broken: {flaw[1]}")


def last(path: str) -> str:
    """The last name in a path."""
    return path.rsplit(".", 1)[-1]


def place(node: Node) -> Place:
    """Where a node stands."""
    return Place(line=node.line, column=node.column)
