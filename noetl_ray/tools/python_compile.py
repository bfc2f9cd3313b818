"""From the text of user code to something that runs: indentation and top-level ``return``.

Owns the rule that a task has one namespace whatever its code looks like. Loaded by path inside the
processes of user code, so it imports nothing of the project.
"""

from __future__ import annotations

import ast
import linecache
import types
from collections import OrderedDict

_COMPILED_MAX = 64

_compiled: OrderedDict[str, types.CodeType] = OrderedDict()


def compile_user_code(source: str) -> types.CodeType:
    """Compile user code; the names it binds are globals even with a top-level ``return``."""
    cached = _compiled.get(source)
    if cached is not None:
        _compiled.move_to_end(source)
        return cached
    filename = f"<task code {len(source)}-{abs(hash(source)):x}>"
    lines = source
    try:
        tree = ast.parse(source, filename)
    except IndentationError:
        # Only where it is needed: dedenting always would alter texts inside the code.
        import textwrap

        lines = textwrap.dedent(source)
        tree = ast.parse(lines, filename)
    linecache.cache[filename] = (len(lines), None, lines.splitlines(keepends=True), filename)
    try:
        code = compile(tree, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        if "'return' outside function" not in str(error.msg):
            raise
        code = _compile_with_return(tree, filename)
    _compiled[source] = code
    if len(_compiled) > _COMPILED_MAX:
        _, old = _compiled.popitem(last=False)
        linecache.cache.pop(old.co_filename, None)
    return code


def _compile_with_return(tree: ast.Module, filename: str) -> types.CodeType:
    """Put the body into a function whose locals are all declared global: one namespace."""
    future = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    body = [_Unannotate().visit(node) for node in tree.body if node not in future]

    def build(names: list[str]) -> ast.Module:
        head: list[ast.stmt] = [ast.Global(names=names)] if names else []
        blank = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        function = ast.FunctionDef(
            name="__noetl_body__", args=blank, body=[*head, *body], decorator_list=[]
        )
        return ast.fix_missing_locations(ast.Module(body=[*future, function], type_ignores=[]))

    probe = compile(build([]), filename, "exec", dont_inherit=True)
    inner = next(
        const
        for const in probe.co_consts
        if isinstance(const, types.CodeType) and const.co_name == "__noetl_body__"
    )
    names = sorted({*inner.co_varnames, *inner.co_cellvars})
    return compile(build(names), filename, "exec", dont_inherit=True)


class _Unannotate(ast.NodeTransformer):
    """Drop annotations of top-level variables: an annotated name cannot be declared global."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def _leave(self, node: ast.AST) -> ast.AST:
        return node  # inner scopes keep theirs

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave
