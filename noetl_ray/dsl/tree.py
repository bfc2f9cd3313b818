"""Templates as trees: what may stand in one, what it reads, and how it is made countable.

Works on Jinja's syntax tree before code is made from it; renders nothing.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

from noetl_ray.dsl.sandbox import CONCAT, EACH, LENGTH, METHOD_NAMES, WEIGHED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Path = tuple[str, ...]

PATH_MAX = 3
"""Segments of a path that `reads` keeps."""
RESULT = "_value_"
"""The variable that holds the value of a template that is one expression."""

_STATEMENTS = (nodes.Template, nodes.Output, nodes.If, nodes.For, nodes.Assign, nodes.With)
_HELPERS = (nodes.Pair, nodes.Keyword, nodes.Operand)
_INTERNAL = (
    nodes.NSRef,
    nodes.EnvironmentAttribute,
    nodes.ExtensionAttribute,
    nodes.ImportedName,
    nodes.InternalName,
    nodes.ContextReference,
    nodes.DerivedContextReference,
)
_TAGS: dict[type[nodes.Node], str] = {
    nodes.AssignBlock: "{% set %} with a body",
    nodes.Block: "{% block %}",
    nodes.CallBlock: "{% call %}",
    nodes.Extends: "{% extends %}",
    nodes.FilterBlock: "{% filter %}",
    nodes.FromImport: "{% from %}",
    nodes.Import: "{% import %}",
    nodes.Include: "{% include %}",
    nodes.Macro: "{% macro %}",
    nodes.NSRef: "{% set %} on an attribute",
    nodes.ScopedEvalContextModifier: "{% autoescape %}",
}
_NODES_PER_UNIT = 16
_LITERALS = (nodes.List, nodes.Dict, nodes.Tuple)
_MAKES_CONTAINERS = frozenset({"batch", "dictsort", "groupby", "map", "slice"})


def check(tree: nodes.Template, environment: Environment) -> None:
    """Refuse what a template may not contain.

    Raises:
        TemplateSyntaxError: With the line of the first thing refused.
    """
    for node in _walk(tree):
        if isinstance(node, nodes.For) and node.recursive:
            _refuse("recursive loops are not allowed in a template", node)
        if isinstance(node, _INTERNAL) or not isinstance(
            node, (*_STATEMENTS, *_HELPERS, nodes.Expr)
        ):
            name = _TAGS.get(type(node), type(node).__name__)
            _refuse(f"{name} is not allowed in a template", node)
        if isinstance(node, nodes.Filter):
            _known("filter", node.name, environment.filters, node)
        elif isinstance(node, nodes.Test):
            _known("test", node.name, environment.tests, node)


def only_expression(tree: nodes.Template) -> nodes.Expr | None:
    """The expression a template consists of, when it consists of just one."""
    if len(tree.body) != 1:
        return None
    output = tree.body[0]
    if not isinstance(output, nodes.Output) or len(output.nodes) != 1:
        return None
    found = output.nodes[0]
    return None if isinstance(found, nodes.TemplateData) else found


def makes_containers(tree: nodes.Node) -> bool:
    """Whether the value may be a new container, which could hold something undefined."""
    return any(
        isinstance(node, _LITERALS)
        or (isinstance(node, nodes.Filter) and node.name in _MAKES_CONTAINERS)
        for node in _walk(tree)
    )


def reads(tree: nodes.Node) -> frozenset[Path]:
    """The paths a template reads; too many rather than too few."""
    found: set[Path] = set()
    stack: list[nodes.Node] = [tree]
    while stack:
        node = stack.pop()
        path = _path(node)
        if path is None:
            stack.extend(node.iter_child_nodes())
            continue
        found.add(path[:PATH_MAX])
        for depth, name in enumerate(path[1:PATH_MAX], start=1):
            # `x.items()` needs all of x; so may `x.items` handed on and called later.
            if name in METHOD_NAMES:
                found.add(path[:depth])
    return frozenset(found)


def countable(tree: nodes.Template, environment: Environment) -> nodes.Template:
    """The same template with its loops, joins and literals counted."""
    made: nodes.Template = _Counting(only_expression(tree) is None).visit(tree)
    return made.set_environment(environment)  # type: ignore[return-value]


def as_assignment(expression: nodes.Expr, environment: Environment) -> nodes.Template:
    """A template that puts the value of an expression into the variable RESULT."""
    line = expression.lineno
    assign = nodes.Assign(nodes.Name(RESULT, "store", lineno=line), expression, lineno=line)
    return nodes.Template([assign], lineno=1).set_environment(environment)  # type: ignore[return-value]


class _Counting(NodeTransformer):
    def __init__(self, statements: bool) -> None:
        # Without statements nothing can be bound twice, so literals cannot double over and over.
        self._statements = statements
        self._loops = 0

    def visit_For(self, node: nodes.For) -> nodes.Node:
        # A long body is much work per turn, whatever stands in it.
        weight = nodes.Const(1 + sum(1 for _ in _walk(node)) // _NODES_PER_UNIT)
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1
        node.iter = _filter(node.iter, EACH, weight)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if self._loops and isinstance(node.arg, nodes.Slice):
            # Jinja cuts with Python's own operator, which copies.
            node.node = _filter(node.node, LENGTH)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), CONCAT)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        if self._loops:
            for operand in node.ops:
                operand.expr = _filter(operand.expr, WEIGHED)
        return node

    def _literal(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        stored = isinstance(node, nodes.Tuple) and node.ctx != "load"
        return _filter(node, WEIGHED) if self._statements and not stored else node

    visit_List = visit_Dict = visit_Tuple = _literal


def _filter(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _path(node: nodes.Node) -> Path | None:
    """The dotted path a chain of attributes stands for; None when it is not one from a name."""
    names: list[str] = []
    while True:
        if isinstance(node, nodes.Getattr):
            names.append(node.attr)
        elif (
            isinstance(node, nodes.Getitem)
            and isinstance(node.arg, nodes.Const)
            and isinstance(node.arg.value, str)
        ):
            names.append(node.arg.value)
        elif isinstance(node, nodes.Name):
            return (node.name, *reversed(names)) if node.ctx == "load" else None
        else:
            return None
        node = node.node


def _walk(tree: nodes.Node) -> Iterator[nodes.Node]:
    stack: list[nodes.Node] = [tree]
    while stack:
        node = stack.pop()
        yield node
        # Reversed, so that the first thing in the text is met first.
        stack.extend(reversed(list(node.iter_child_nodes())))


def _known(what: str, name: str, table: Collection[Any], node: nodes.Node) -> None:
    if name in table and not name.startswith(" "):
        return
    near = get_close_matches(name, [str(known) for known in table], n=1, cutoff=0.7)
    hint = f", did you mean {near[0]!r}?" if near else ""
    _refuse(f"there is no {what} named {name!r}{hint}", node)


def _refuse(message: str, node: nodes.Node) -> None:
    raise TemplateSyntaxError(message, node.lineno)
