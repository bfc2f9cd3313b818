"""From `spec.business_object` of a task to checked data: what its result is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.language import names

if TYPE_CHECKING:
    from noetl_ray.dsl.shape import Shape
    from noetl_ray.dsl.source import Node

_KEYS = names("business object")


def read_business_object(shape: Shape, node: Node | None, path: str) -> dict[str, Any] | None:
    """The object as written, templates included; None when there is none or it is no use."""
    found = shape.mapping(node, path)
    if found is None:
        return None
    shape.strays(found, path, _KEYS, "business object")
    for key in ("type", "id"):
        if shape.name(found.get(key)) is None:
            hint = "write business_object: {type: order, id: '{{ output.order_id }}'}"
            shape.findings.error(found, path, f"a business object needs '{key}'", hint)
    status = found.get("status")
    if status is not None and (status.is_map or status.is_list):
        shape.findings.error(status, f"{path}.status", "'status' must be text or a template")
    attributes = found.get("attributes")
    if attributes is not None and attributes.value is not None and not attributes.is_map:
        text = shape.text(attributes)
        if "{{" not in text and "{%" not in text:
            message = "'attributes' must be a mapping or a template that gives one"
            shape.findings.error(attributes, f"{path}.attributes", message)
    return {key: item.data() for key, item in found.value.items() if key in _KEYS}
