"""The `workbook:` of a playbook: named tools that steps run by name (section 1).

Owns where items stand and which are named; what a tool means is read with the tasks. An item that
nobody names is never looked into, so it may hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noetl_ray.dsl.model import Task
from noetl_ray.dsl.source import Node

if TYPE_CHECKING:
    from noetl_ray.dsl.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One named tool, as it stands in the text."""

    node: Node
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbook:
    """The items by name, and the tasks of those that were read because a step names them."""

    items: dict[str, Item] = field(default_factory=dict)
    tasks: dict[str, Task | None] = field(default_factory=dict)


def read_workbook(shape: Shape, root: Node) -> Workbook:
    """The items of a playbook: a list, or a mapping of names, bare or under `tasks`."""
    book = Workbook()
    node, path = root.get("workbook"), "workbook"
    if node is not None and node.is_map and node.get("tasks") is not None:
        node, path = node.get("tasks"), "workbook.tasks"
    if node is None:
        return book
    if node.is_map:
        for name, item in node.value.items():
            book.items[name] = Item(
                node=item, path=f"{path}.{name}", line=node.key_place(name).line
            )
        return book
    for index, item in enumerate(shape.items(node, path)):
        _add(shape, book, item, f"{path}[{index}]")
    return book


def _add(shape: Shape, book: Workbook, item: Node, path: str) -> None:
    name = shape.name(item.get("name"))
    if name is None:
        message = "a workbook item must be a mapping with a 'name' and a 'tool'"
        shape.findings.error(item, path, message)
        return
    first = book.items.setdefault(name, Item(node=item, path=path, line=item.line))
    if first.node is not item:
        message = f"the workbook item '{name}' is defined twice"
        at = item.get("name") or item
        shape.findings.error(at, f"{path}.name", message, f"first in line {first.line}")
