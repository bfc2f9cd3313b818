"""What a task says its result is about: rendered and bounded.

The statements travel with the completion of the command they come from, so that either both are in
the log or neither is. Owns the limits; a statement that cannot be kept is a warning, because the
work it speaks of is done and must not be done again for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import TemplateError
from noetl_ray.events.canonical import canonical_json, to_jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl_ray.dsl.model import Task
    from noetl_ray.dsl.template import Templates

OBJECTS_MAX = 100
"""Statements one command keeps; older ones about the same object go first."""
OBJECTS_BYTES_MAX = 200_000
ATTRIBUTES_BYTES_MAX = 16_384
TYPE_CHARS_MAX = 200
ID_CHARS_MAX = 500
STATUS_CHARS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessObject:
    """One statement about one object."""

    type: str
    id: str
    task: str
    status: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Which object it is."""
        return (self.type, self.id)


class ObjectNotes:
    """The statements of one pipeline run, in order."""

    def __init__(self) -> None:
        self._kept: list[BusinessObject] = []

    def note(self, task: Task, templates: Templates, names: Mapping[str, Any]) -> tuple[str, ...]:
        """Keep what a task says about its result; gives a warning when it cannot be kept."""
        if task.business_object is None:
            return ()
        try:
            found = render_object(task.business_object, task.label, templates, names)
        except TemplateError as error:
            return (f"business object of {task.label}: {error.message}"[:300],)
        self._kept.append(found)
        if self._fits():
            return ()
        for index, older in enumerate(self._kept[:-1]):
            if any(later.key == older.key for later in self._kept[index + 1 :]):
                del self._kept[index]
                if self._fits():
                    return ()
        self._kept.pop()
        return (f"business object of {task.label}: too many in one command; this is not kept",)

    def told(self) -> list[dict[str, Any]]:
        """What is kept, as data for the record of a pipeline."""
        return [asdict(each) for each in self._kept]

    def restore(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Go on from what was recorded."""
        self._kept = [BusinessObject(**each) for each in told]

    @property
    def kept(self) -> tuple[BusinessObject, ...]:
        """What goes into the log."""
        return tuple(self._kept)

    def _fits(self) -> bool:
        if len(self._kept) > OBJECTS_MAX:
            return False
        # Only many large ones need counting.
        if len(self._kept) * ATTRIBUTES_BYTES_MAX <= OBJECTS_BYTES_MAX:
            return True
        return sum(len(canonical_json(each.attributes)) for each in self._kept) <= OBJECTS_BYTES_MAX


def render_object(
    wanted: Mapping[str, Any], task: str, templates: Templates, names: Mapping[str, Any]
) -> BusinessObject:
    """The statement with its templates rendered.

    Raises:
        TemplateError: it cannot be rendered, or what it gives is no object.
    """
    given = {key: to_jsonable(templates.value(value, names)) for key, value in wanted.items()}
    kind = _text(given, "type", TYPE_CHARS_MAX)
    name = _text(given, "id", ID_CHARS_MAX)
    if kind is None or name is None:
        missing = "type" if kind is None else "id"
        msg = f"its {missing} is empty"
        raise TemplateError(msg, str(wanted.get(missing)))
    attributes = given.get("attributes") or {}
    if not isinstance(attributes, dict):
        msg = "its attributes are not a mapping"
        raise TemplateError(msg, str(wanted["attributes"]))
    size = len(canonical_json(attributes))
    if size > ATTRIBUTES_BYTES_MAX:
        msg = f"its attributes hold {size} bytes, at most {ATTRIBUTES_BYTES_MAX}"
        raise TemplateError(msg, str(wanted["attributes"]))
    status = _text(given, "status", STATUS_CHARS_MAX)
    return BusinessObject(type=kind, id=name, task=task, status=status, attributes=attributes)


def _text(given: Mapping[str, Any], key: str, chars_max: int) -> str | None:
    value = given.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, dict | list):
        msg = f"its {key} is not text"
        raise TemplateError(msg, key)
    text = str(value).strip()
    if len(text) > chars_max:
        msg = f"its {key} has {len(text)} characters, at most {chars_max}"
        raise TemplateError(msg, key)
    return text or None
