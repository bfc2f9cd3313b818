"""Templates: playbook text in, data or text out, the same on every machine.

Owns rendering, the type rules of the language page (section 3), and what a template reads. Values
come from a mapping that is asked only for the names used. Refuses anything but plain data
operations, and anything past `Limits`. There is no clock: `now` and `env` are the caller's names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any

from jinja2 import Template, Undefined
from jinja2.exceptions import TemplateSyntaxError
from jinja2.runtime import LoopContext, TemplateReference

from noetl_ray.dsl import tree
from noetl_ray.dsl.budget import Budget, Limits
from noetl_ray.dsl.coerce import coerce_text, truth_of
from noetl_ray.dsl.sandbox import DataContext, Method, Sandbox
from noetl_ray.errors import NoetlError, TemplateError

DROP: Any = object()
"""Given as `missing`, leaves undefined entries out of the mappings they stand in."""

_SHOWN_CHARS = 200
_LONG_CHARS = 16_384
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NOT_DATA = (Undefined, Method, FunctionType, MethodType, partial, LoopContext, TemplateReference)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    root: Callable[[DataContext], Iterator[str]]
    whole: bool
    makes_containers: bool
    has_tojson: bool


class Templates:
    """Renders templates; keeps what it has compiled. Holds no state of any rendering.

    Errors of this project raised by a value in ``names`` pass through unchanged; anything else that
    goes wrong is a TemplateError.
    """

    def __init__(self, limits: Limits | None = None, *, cache_size: int = 4096) -> None:
        self._limits = limits or Limits()
        self._sandbox = Sandbox()
        self._short = lru_cache(maxsize=cache_size)(self._compile)
        # A few long ones (code, SQL) must not be able to hold as much memory as many short ones.
        self._long = lru_cache(maxsize=max(1, cache_size // 32))(self._compile)
        self._read = lru_cache(maxsize=cache_size)(self._find_reads)

    def value(
        self,
        template: Any,
        names: Mapping[str, Any],
        *,
        coerce: bool = False,
        missing: Any = "",
    ) -> Any:
        """Render a value and everything in it; keys stay as written.

        Args:
            template: Any data; strings in it are templates.
            names: What the templates can name; looked up one by one.
            coerce: Whether mixed text that looks like data becomes data (`input`, `set`, `args`,
                `params`); a string that is one expression keeps its own type either way.
            missing: What an undefined whole expression gives; `DROP` leaves its entry out.

        Raises:
            TemplateError: When a template cannot be compiled or rendered.
        """
        try:
            return self._value(template, names, coerce, missing)
        except RecursionError:
            msg = "the value is nested too deeply to be rendered"
            raise TemplateError(msg, str(type(template).__name__)) from None

    def text(self, template: Any, names: Mapping[str, Any]) -> str:
        """Render to text, never to anything else: for `code`, `query`, `url` and their like."""
        if not isinstance(template, str):
            return "" if template is None else str(template)
        if not _may_be_template(template):
            return template
        compiled = self._compiled(template)
        if not compiled.whole:
            return self._render(compiled, template, names)
        found = self._evaluate(compiled, template, names)
        if isinstance(found, _NOT_DATA):
            return ""
        text = found if type(found) is str else self._guarded(self._written, template, found)
        # Spaces around the expression are part of the text, unlike in `value`.
        lead = template[: len(template) - len(template.lstrip())]
        return lead + text + template[len(template.rstrip()) :]

    def truth(self, template: Any, names: Mapping[str, Any]) -> bool:
        """Whether a `when` holds.

        Raises:
            TemplateError: When it cannot be rendered; the caller decides what that means.
        """
        if isinstance(template, str) and _may_be_template(template):
            compiled = self._compiled(template)
            if compiled.whole:
                return bool(
                    self._guarded(truth_of, template, self._evaluate(compiled, template, names))
                )
            template = self._render(compiled, template, names)
        return truth_of(template)

    def reads(self, template: Any) -> frozenset[tuple[str, ...]]:
        """The dotted paths, up to three segments, that a value's templates read.

        Never misses a root name; may give more than is needed. A template that cannot be parsed
        reads nothing: rendering it fails before any name is looked up, and says so there.
        """
        found: set[tuple[str, ...]] = set()
        stack = [template]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                if _may_be_template(item):
                    found |= self._read(item)
            elif isinstance(item, Mapping):
                stack.extend(item.values())
            elif isinstance(item, (list, tuple)):
                stack.extend(item)
        return frozenset(found)

    def flaw(self, text: str) -> tuple[int, str] | None:
        """What is wrong with a template: its line, from 1, and a sentence; None when it is fine."""
        if not _may_be_template(text):
            return None
        try:
            self._parse(text)
        except TemplateSyntaxError as error:
            return error.lineno, error.message or "bad template"
        except TemplateError as error:
            return 1, error.message
        return None

    def _value(self, template: Any, names: Mapping[str, Any], coerce: bool, missing: Any) -> Any:
        if isinstance(template, str):
            return self._string(template, names, coerce, missing)
        if isinstance(template, Mapping):
            made = {}
            for key, item in template.items():
                rendered = self._value(item, names, coerce, missing)
                if rendered is not DROP:
                    made[key] = rendered
            return made
        if isinstance(template, (list, tuple)):
            items = [self._value(item, names, coerce, missing) for item in template]
            return [item for item in items if item is not DROP]
        return template

    def _string(self, template: str, names: Mapping[str, Any], coerce: bool, missing: Any) -> Any:
        if not _may_be_template(template):
            return template
        compiled = self._compiled(template)
        if compiled.whole:
            found = self._evaluate(compiled, template, names)
            if isinstance(found, _NOT_DATA):
                return missing
            lazy = isinstance(found, Mapping) and not isinstance(found, dict)
            if lazy or type(found) is tuple or compiled.makes_containers:
                return self._guarded(_clean, template, found)
            return found
        text = self._render(compiled, template, names)
        return coerce_text(text) if coerce and not compiled.has_tojson else text

    def _evaluate(self, compiled: _Compiled, template: str, names: Mapping[str, Any]) -> Any:
        context = DataContext(self._sandbox, names, Budget(self._limits))
        try:
            for _ in compiled.root(context):
                pass
        except NoetlError:
            raise
        except Exception as error:
            raise _failed(error, template) from error
        return context.vars[tree.RESULT]

    def _render(self, compiled: _Compiled, template: str, names: Mapping[str, Any]) -> str:
        budget = Budget(self._limits)
        context = DataContext(self._sandbox, names, budget)
        parts: list[str] = []
        chars = 0
        try:
            for part in compiled.root(context):
                parts.append(part)
                chars += len(part)
                if chars > self._limits.text_chars:
                    budget.text(chars)
        except NoetlError:
            raise
        except Exception as error:
            raise _failed(error, template) from error
        return "".join(parts)

    def _guarded(self, function: Callable[[Any], Any], template: str, value: Any) -> Any:
        try:
            return function(value)
        except NoetlError:
            raise
        except Exception as error:
            raise _failed(error, template) from error

    def _written(self, value: Any) -> str:
        budget = Budget(self._limits)
        budget.fits(value)
        text = str(value)
        budget.text(len(text))
        return text

    def _compiled(self, template: str) -> _Compiled:
        return (self._short if len(template) <= _LONG_CHARS else self._long)(template)

    def _compile(self, template: str) -> _Compiled:
        try:
            parsed = self._parse(template)
            expression = tree.only_expression(parsed)
            makes = expression is not None and tree.makes_containers(expression)
            parsed = tree.countable(parsed, self._sandbox)
            expression = tree.only_expression(parsed)
            if expression is not None:
                parsed = tree.as_assignment(expression, self._sandbox)
            code = self._sandbox.compile(parsed)
            made = Template.from_code(self._sandbox, code, {})
        except TemplateSyntaxError as error:
            raise _failed(error, template) from error
        except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
            raise _too_complex(template) from error
        return _Compiled(
            root=made.root_render_func,
            whole=expression is not None,
            makes_containers=makes,
            has_tojson="tojson" in template,
        )

    def _find_reads(self, template: str) -> frozenset[tuple[str, ...]]:
        try:
            return tree.reads(self._parse(template))
        except (TemplateSyntaxError, TemplateError):
            return frozenset()

    def _parse(self, template: str) -> Any:
        try:
            parsed = self._sandbox.parse(template)
            tree.check(parsed, self._sandbox)
            stripped = template.strip()
            if stripped != template and stripped.startswith("{{") and stripped.endswith("}}"):
                # Blanks around one expression do not make it text. Parsed as written first, so that
                # a flaw is reported with its own line.
                alone = self._sandbox.parse(stripped)
                parsed = parsed if tree.only_expression(alone) is None else alone
        except (RecursionError, MemoryError, ValueError, OverflowError) as error:
            raise _too_complex(template) from error
        return parsed


def _may_be_template(text: str) -> bool:
    return "{" in text and ("{{" in text or "{%" in text or "{#" in text)


def _too_complex(template: str) -> TemplateError:
    return TemplateError("the template is nested too deeply", template[:_SHOWN_CHARS])


def _failed(error: Exception, template: str) -> TemplateError:
    if isinstance(error, TemplateSyntaxError):
        message = f"line {error.lineno}: {error.message}"
    elif isinstance(error, RecursionError):
        message = "the template is nested too deeply"
    else:
        message = str(error) or type(error).__name__
    # Where something lies in memory differs from run to run, and a message is recorded.
    return TemplateError(_ADDRESS.sub("", message), template[:_SHOWN_CHARS])


def _clean(value: Any) -> Any:
    """The same data without what only templates know; copies only what it must change."""
    if isinstance(value, _NOT_DATA):
        return None
    if isinstance(value, tuple):
        return [_clean(item) for item in value]
    if type(value) is list:
        made = [_clean(item) for item in value]
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    if type(value) is dict:
        fresh = {_key(key): _clean(item) for key, item in value.items()}
        same = fresh.keys() == value.keys() and all(fresh[key] is value[key] for key in value)
        return value if same else fresh
    if isinstance(value, Mapping) and not isinstance(value, dict):
        # A mapping that looks its values up when asked, such as the whole workload.
        return {key: _clean(item) for key, item in value.items()}
    return value


def _key(key: Any) -> Any:
    if key is None or isinstance(key, (str, int, float)):
        return key
    msg = f"a {type(key).__name__} cannot be the key of a mapping"
    raise TypeError(msg)
