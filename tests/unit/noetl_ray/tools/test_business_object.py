"""What a task says its result is about: rendering, limits, redaction."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.dsl.model import Task
from noetl_ray.dsl.template import Templates
from noetl_ray.errors import TemplateError
from noetl_ray.tools.business_object import (
    ATTRIBUTES_BYTES_MAX,
    OBJECTS_BYTES_MAX,
    OBJECTS_MAX,
    BusinessObject,
    ObjectNotes,
    render_object,
)

TEMPLATES = Templates()


def rendered(wanted: dict[str, Any], **names: Any) -> BusinessObject:
    return render_object(wanted, "t", TEMPLATES, names)


def task(wanted: dict[str, Any] | None) -> Task:
    return Task(label="save", kind="noop", config={}, business_object=wanted)


def test_templates_are_rendered_and_ids_become_text() -> None:
    found = rendered(
        {
            "type": "{{ kind }}",
            "id": "{{ output.id }}",
            "status": "{{ output.state }}",
            "attributes": {"total": "{{ output.total }}", "note": "n-{{ output.id }}"},
        },
        kind="order",
        output={"id": 17, "state": "paid", "total": 2.5},
    )
    assert found.key == ("order", "17")
    assert found.status == "paid"
    assert found.attributes == {"total": 2.5, "note": "n-17"}


def test_attributes_may_be_one_template() -> None:
    found = rendered({"type": "a", "id": 1, "attributes": "{{ output }}"}, output={"k": [1]})
    assert found.attributes == {"k": [1]}
    assert found.status is None


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"type": "a", "id": "{{ missing }}"}, "its id is empty"),
        ({"type": "", "id": "1"}, "its type is empty"),
        ({"type": "a", "id": "{{ [1] }}"}, "its id is not text"),
        ({"type": "a", "id": "x" * 501}, "its id has 501 characters, at most 500"),
        ({"type": "a", "id": 1, "attributes": "{{ [1] }}"}, "its attributes are not a mapping"),
    ],
)
def test_what_is_no_object_is_refused(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        rendered(wanted)


def test_large_attributes_are_refused() -> None:
    with pytest.raises(TemplateError, match="its attributes hold"):
        rendered({"type": "a", "id": 1, "attributes": {"k": "x" * ATTRIBUTES_BYTES_MAX}})


def test_what_cannot_be_kept_is_a_warning_not_a_failure() -> None:
    notes = ObjectNotes()
    assert notes.note(task(None), TEMPLATES, {}) == ()
    assert notes.note(task({"type": "a", "id": 1}), TEMPLATES, {}) == ()
    warning = notes.note(task({"type": "a", "id": "{{ nothing }}"}), TEMPLATES, {})
    assert warning == ("business object of save: its id is empty",)
    assert [each.key for each in notes.kept] == [("a", "1")]


def test_older_statements_about_the_same_object_make_room() -> None:
    notes = ObjectNotes()
    same = task({"type": "a", "id": "same", "status": "{{ n }}"})
    for number in range(OBJECTS_MAX + 50):
        assert notes.note(same, TEMPLATES, {"n": number}) == ()
    assert [each.status for each in notes.kept] == [str(n) for n in range(50, OBJECTS_MAX + 50)]


def test_more_objects_than_a_command_holds_are_told() -> None:
    notes = ObjectNotes()
    for number in range(OBJECTS_MAX):
        assert notes.note(task({"type": "a", "id": number}), TEMPLATES, {}) == ()
    (warning,) = notes.note(task({"type": "a", "id": "more"}), TEMPLATES, {})
    assert "too many" in warning
    assert len(notes.kept) == OBJECTS_MAX


def test_bytes_count_too() -> None:
    notes = ObjectNotes()
    large = {"k": "x" * (ATTRIBUTES_BYTES_MAX - 100)}
    given = [
        notes.note(task({"type": "a", "id": n, "attributes": large}), TEMPLATES, {})
        for n in range(OBJECTS_MAX)
    ]
    assert given.count(()) == OBJECTS_BYTES_MAX // (ATTRIBUTES_BYTES_MAX - 92)
