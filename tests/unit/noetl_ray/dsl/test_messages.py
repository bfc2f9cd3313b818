"""Every finding of the validator is held to its exact words by some test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
MODULES = sorted((ROOT / "noetl_ray" / "dsl").glob("*.py"))
TESTS = [
    *sorted((ROOT / "tests" / "unit" / "noetl_ray" / "dsl").glob("test_*.py")),
    *sorted((ROOT / "tests" / "conformance").glob("test_*.py")),
]
SHORT = 4
"""Pieces of a message below this many characters say nothing by themselves."""


def words_of_tests() -> str:
    """The tests' text with literals that go on in the next line put together."""
    text = "\n".join(path.read_text() for path in TESTS if path != Path(__file__))
    return re.sub(r"""["']\s*\n\s*f?["']""", "", text).replace('\\"', '"')


def fixed_parts(node: ast.expr) -> list[str]:
    """The constant pieces of a message."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return [v.value for v in values if isinstance(v, ast.Constant)]
        case ast.IfExp(body=one, orelse=other):
            return fixed_parts(one) + fixed_parts(other)
        case _:
            return []


def assigned(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """What each name of a function is set to."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for name, given in pairs:
            if isinstance(name, ast.Name):
                found.setdefault(name.id, []).append(given)
    return found


def messages(source: str) -> Iterator[tuple[int, list[str]]]:
    """Line and constant pieces of every finding a module reports."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = assigned(function)
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("error", "warning")
                and len(node.args) > 2
            ):
                said = node.args[2]
                given = names.get(said.id, []) if isinstance(said, ast.Name) else [said]
                for message in given:
                    parts = [p for p in fixed_parts(message) if len(p.strip()) >= SHORT]
                    yield node.lineno, parts


def test_every_finding_has_a_test_with_its_words() -> None:
    told = words_of_tests()
    found = [
        (path.name, line, part)
        for path in MODULES
        for line, parts in messages(path.read_text())
        for part in parts
    ]
    assert len(found) > 80
    assert [each for each in found if each[2] not in told] == []


def test_a_message_nobody_tests_would_be_noticed() -> None:
    source = "def f(x):\n    message = f'never {x} said before'\n    x.error(1, 2, message)\n"
    assert list(messages(source)) == [(3, ["never ", " said before"])]
    assert " said before" not in words_of_tests()
