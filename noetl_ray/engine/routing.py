"""Which arcs a step takes and what its `set` writes, rendered from names.

Knows no state and no events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.arcs import END
from noetl_ray.engine.cut import whole
from noetl_ray.errors import NotInlineError, TemplateError
from noetl_ray.events.canonical import canonical_json, to_jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.dsl.model import Arc, Step
    from noetl_ray.dsl.template import Templates
    from noetl_ray.engine.names import Names

WARNINGS_MAX = 20
WARNING_CHARS_MAX = 300
SET_VALUE_BYTES_MAX = 102_400


class Routing:
    """Renders conditions and values, and gathers warnings about those that cannot be rendered."""

    def __init__(self, steps: Mapping[str, Step], templates: Templates) -> None:
        self._steps = steps
        self._templates = templates
        self._warnings: list[str] = []

    def warnings(self) -> list[str]:
        """The warnings since the last call."""
        found, self._warnings = self._warnings[:WARNINGS_MAX], []
        return found

    def arcs(self, step: Step, names: Names, *, failed: bool) -> tuple[list[dict[str, Any]], bool]:
        """The arcs taken, and whether any matched.

        After a failure only arcs with a condition count (section 11). An arc to `end`, where no
        step has that name, matches and leads nowhere; one to any other missing step is left out.
        """
        taken: list[dict[str, Any]] = []
        matched = False
        for arc in step.arcs:
            if failed and arc.when is None:
                continue
            if arc.step not in self._steps and arc.step != END:
                self._warn(f"arc to {arc.step}: there is no such step")
                continue
            if arc.when is not None and not self._matches(arc, names):
                continue
            matched = True
            if arc.step in self._steps:
                taken.append(self._taken(arc, names))
            if step.mode == "exclusive":
                break
        return taken, matched

    def _taken(self, arc: Arc, names: Names) -> dict[str, Any]:
        if not arc.set:
            return {"step": arc.step}
        # Values given by `args` are bare names, and `args.*`, in the target.
        wanted = {**arc.set, "args": arc.args} if arc.args else arc.set
        return {"step": arc.step, "set": self.values(wanted, names)}

    def values(self, wanted: Mapping[str, Any], names: Names) -> dict[str, Any]:
        """All values of one `set` are rendered against the state before it."""
        values: dict[str, Any] = {}
        size = 0
        for key, template in wanted.items():
            try:
                value = to_jsonable(whole(self._templates.value(template, names, coerce=True)))
            except NotInlineError:
                raise
            except TemplateError as error:
                self._warn(f"set {key}: {error.message}")
                continue
            size += len(canonical_json(value))
            if size > SET_VALUE_BYTES_MAX:
                msg = (
                    f"set {key} would put {size} bytes into the variables at once, at most "
                    f"{SET_VALUE_BYTES_MAX}; leave it in the step's result and read it from there"
                )
                raise NotInlineError(msg, str(template)[:200])
            values[key.removeprefix("ctx.").removeprefix("step.")] = value
        return values

    def _matches(self, arc: Arc, names: Names) -> bool:
        """A condition that cannot be evaluated does not match, and the exit says so (section 3)."""
        try:
            return self._templates.truth(arc.when, names)
        except NotInlineError:
            raise
        except TemplateError as error:
            self._warn(f"arc to {arc.step}: {error.message}")
            return False

    def _warn(self, text: str) -> None:
        self._warnings.append(text[:WARNING_CHARS_MAX])
