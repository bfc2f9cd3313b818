"""YAML text to a tree of plain values that remember where they stand.

Owns the reading of untrusted text: size, depth and alias expansion are bounded, no tag makes an
object, and every refusal has a line. Knows nothing of playbooks. Keys are always the text as
written; dates stay text.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from noetl_ray.dsl.model import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.dsl.problems import Findings

SOURCE_BYTES_MAX = 1 << 20
NODES_MAX = 100_000
"""Values in a document, counting what an alias stands for each time it is used."""
DEPTH_MAX = 64

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset(
    {_PREFIX + "str", _PREFIX + "timestamp", _PREFIX + "merge", _PREFIX + "value", "!"}
)
_TYPED_TAGS = frozenset({_PREFIX + name for name in ("null", "bool", "int", "float")})
_SEQUENCE_TAGS = frozenset({None, "!", _PREFIX + "seq"})
_MAPPING_TAGS = frozenset({None, "!", _PREFIX + "map"})
_INT_BITS = 64
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class Node:
    """One value with its place; ``value`` is a scalar, a list of nodes or a mapping of nodes."""

    __slots__ = ("column", "depth", "key_places", "line", "literal", "raw", "size", "value")

    def __init__(self, line: int, column: int, value: Any, raw: str = "") -> None:
        self.line = line
        self.column = column
        self.value = value
        self.raw = raw
        self.literal = False
        """Whether the text is a `|` block, whose lines are the document's own."""
        self.size = 1
        self.depth = 1
        self.key_places: dict[str, Place] = {}

    @property
    def is_map(self) -> bool:
        """Whether this is a mapping."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether this is a sequence."""
        return isinstance(self.value, list)

    @property
    def is_text(self) -> bool:
        """Whether this is a string."""
        return isinstance(self.value, str)

    def get(self, key: str) -> Node | None:
        """The value of a key of a mapping, when there is one and it is not null."""
        found: Node | None = self.value.get(key) if self.is_map else None
        return None if found is None or found.value is None else found

    def key_place(self, key: str) -> Place:
        """Where a key stands."""
        return self.key_places.get(key, Place(line=self.line, column=self.column))

    def data(self) -> Any:
        """The value as plain data, with nothing shared."""
        if isinstance(self.value, dict):
            return {key: node.data() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.data() for node in self.value]
        return self.value


class _RefusedError(Exception):
    def __init__(self, at: Any, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.hint = hint


def read_source(text: str, findings: Findings) -> Node | None:
    """The document as a tree; None when it cannot be read, with the reason in ``findings``."""
    try:
        _check_text(text)
        return _Builder(findings).build(yaml.parse(text, Loader=_LOADER))
    except _RefusedError as refused:
        findings.error(refused.at, "", refused.message, refused.hint)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = _place(mark) if mark is not None else Place(line=1, column=1)
        if at.line > line_count(text):
            # The parser looks one line past the end of the text.
            at = _at_offset(text, len(text))
        findings.error(at, "", f"the YAML is broken: {error.problem or error.context}", _tip(error))
    except yaml.YAMLError as error:
        position = getattr(error, "position", 0)
        findings.error(_at_offset(text, position), "", "the YAML has a character it may not have")
    return None


def _check_text(text: str) -> None:
    start = Place(line=1, column=1)
    if len(text) > SOURCE_BYTES_MAX or len(text.encode(errors="replace")) > SOURCE_BYTES_MAX:
        msg = f"the playbook is larger than {SOURCE_BYTES_MAX} bytes"
        raise _RefusedError(start, msg, "move large data to a store or a file the playbook reads")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        msg = "the YAML has a character it may not have"
        raise _RefusedError(_at_offset(text, error.start), msg) from None


def line_count(text: str) -> int:
    """How many lines a text has, broken where YAML breaks them."""
    return 1 + sum(1 for _ in _BREAK.finditer(text))


def _at_offset(text: str, offset: int) -> Place:
    line, start = 1, 0
    for found in _BREAK.finditer(text, 0, offset):
        line, start = line + 1, found.end()
    return Place(line=line, column=offset - start + 1)


def _place(mark: Any) -> Place:
    return Place(line=mark.line + 1, column=mark.column + 1)


def _tip(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "cannot start any token" in problem:
        return "indent with spaces, and quote text that starts with @, ` or %"
    if "mapping values are not allowed" in problem:
        return "quote text that holds ': '"
    if "undefined alias" in problem:
        return "quote text that starts with *"
    if error.problem and error.context and error.context_mark is not None:
        return f"{error.context} that starts in line {error.context_mark.line + 1}"
    return ""


class _Builder:
    """Builds the tree from parser events, without recursion."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._anchors: dict[str, Node | None] = {}
        self._resolver = Resolver()
        self._constructor = SafeConstructor()
        self._total = 0

    def build(self, events: Iterator[Event]) -> Node | None:
        root: Node | None = None
        open_nodes: list[Node] = []
        open_keys: list[Node | None] = []
        anchors: list[str | None] = []
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    msg = "there is more than one YAML document"
                    raise _RefusedError(_place(event.start_mark), msg, "keep one playbook per file")
                continue
            if isinstance(event, (MappingStartEvent, SequenceStartEvent)):
                node = self._open(event, len(open_nodes))
                open_nodes.append(node)
                open_keys.append(None)
                anchors.append(event.anchor)
                continue
            if isinstance(event, (MappingEndEvent, SequenceEndEvent)):
                node = open_nodes.pop()
                open_keys.pop()
                self._close(node)
                anchor = anchors.pop()
                if anchor is not None:
                    self._anchors[anchor] = node
            elif isinstance(event, ScalarEvent):
                node = self._scalar(event)
            elif isinstance(event, AliasEvent):
                node = self._alias(event)
            else:
                continue
            if not open_nodes:
                root = node
            else:
                open_keys[-1] = self._attach(open_nodes[-1], open_keys[-1], node)
        return root

    def _open(self, event: Any, depth: int) -> Node:
        at = _place(event.start_mark)
        if depth >= DEPTH_MAX:
            raise _too_deep(at)
        mapping = isinstance(event, MappingStartEvent)
        if event.tag not in (_MAPPING_TAGS if mapping else _SEQUENCE_TAGS):
            raise _bad_tag(at, event.tag)
        self._count(1, at)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        return Node(at.line, at.column, {} if mapping else [])

    def _close(self, node: Node) -> None:
        if "<<" in node.value and node.is_map:
            self._merge(node)
        children: list[Node] = list(node.value.values()) if node.is_map else node.value
        node.size = 1 + sum(child.size for child in children)
        node.depth = 1 + max((child.depth for child in children), default=0)
        if node.depth > DEPTH_MAX:
            # Aliases can nest what the text does not.
            raise _too_deep(node)

    def _attach(self, parent: Node, key: Node | None, node: Node) -> Node | None:
        if parent.is_list:
            parent.value.append(node)
            return None
        if key is None:
            if node.is_map or node.is_list:
                raise _RefusedError(node, "a key must be plain text")
            return node
        if key.raw in parent.value:
            self._findings.warning(
                key, "", f"the key '{key.raw}' appears twice", "the last one is used"
            )
        parent.value[key.raw] = node
        parent.key_places[key.raw] = Place(line=key.line, column=key.column)
        return None

    def _merge(self, node: Node) -> None:
        """Take over the keys of the mappings under ``<<``; the mapping's own keys win."""
        merged = node.value.pop("<<")
        for base in merged.value if merged.is_list else [merged]:
            if not base.is_map:
                raise _RefusedError(base, "'<<' takes a mapping or a list of mappings")
            self._count(base.size, base)
            for key, value in base.value.items():
                node.value.setdefault(key, value)
                node.key_places.setdefault(key, base.key_place(key))

    def _alias(self, event: AliasEvent) -> Node:
        at = _place(event.start_mark)
        if event.anchor not in self._anchors:
            raise _RefusedError(
                at, f"there is no anchor '{event.anchor}'", "quote text that starts with *"
            )
        node = self._anchors[event.anchor]
        if node is None:
            raise _RefusedError(at, f"the alias '{event.anchor}' contains itself")
        self._count(node.size, at)
        return node

    def _scalar(self, event: ScalarEvent) -> Node:
        at = _place(event.start_mark)
        self._count(1, at)
        tag = event.tag
        if tag is None or (tag == "!" and event.implicit[0]):
            tag = self._resolver.resolve(ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        node = Node(at.line, at.column, event.value, event.value)
        node.literal = event.style == "|"
        if tag in _TYPED_TAGS:
            node.value = self._typed(ScalarNode(tag, event.value), at)
        elif tag not in _TEXT_TAGS:
            raise _bad_tag(at, tag)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _typed(self, scalar: ScalarNode, at: Place) -> Any:
        try:
            value = self._constructor.construct_object(scalar)
        except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError):
            msg = f"'{scalar.value[:40]}' is not a value"
            raise _RefusedError(at, msg, "quote it") from None
        too_big = type(value) is int and value.bit_length() >= _INT_BITS
        if too_big or (isinstance(value, float) and not math.isfinite(value)):
            msg = f"the number {scalar.value[:40]} cannot be written as JSON"
            raise _RefusedError(at, msg, "quote it")
        return value

    def _count(self, nodes: int, at: Any) -> None:
        self._total += nodes
        if self._total > NODES_MAX:
            msg = f"the YAML holds more than {NODES_MAX} values once its aliases are expanded"
            raise _RefusedError(at, msg)


def _too_deep(at: Any) -> _RefusedError:
    return _RefusedError(at, f"the YAML is nested deeper than {DEPTH_MAX} levels")


def _bad_tag(at: Place, tag: str) -> _RefusedError:
    return _RefusedError(at, f"the tag '{tag}' is not allowed", "write plain values only")
