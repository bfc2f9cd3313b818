"""What a result that lies in an object offers beside its fields: `_ref` and its like (section 13).

Owns the ``result_ref`` record, which playbooks hand on and give back to be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORD_KIND = "result_ref"
REFERENCE_FIELDS = ("_ref", "_store", "_size_bytes", "_preview")


def ref_record(
    uri: str,
    *,
    store: str,
    size_bytes: int,
    sha256: str,
    content_type: str,
    row_count: int | None = None,
    preview: Any = None,
    scope: str = "execution",
    expires_at: str | None = None,
) -> dict[str, Any]:
    """The record that stands for a stored value."""
    meta: dict[str, Any] = {"bytes": size_bytes, "sha256": sha256, "content_type": content_type}
    if row_count is not None:
        meta["row_count"] = row_count
    return {
        "kind": RECORD_KIND,
        "ref": uri,
        "store": store,
        "scope": scope,
        "expires_at": expires_at,
        "meta": meta,
        "preview": preview,
    }


def reference_fields(result: Mapping[str, Any]) -> dict[str, Any]:
    """What templates may read of an externalised result by name; empty for an inline one."""
    reference = result.get("reference")
    if not isinstance(reference, dict):
        return {}
    store = reference.get("store", "disk")
    preview = reference.get("preview", result.get("extracted"))
    record = ref_record(
        reference["uri"],
        store=store,
        size_bytes=reference.get("bytes", 0),
        sha256=reference.get("sha256", ""),
        content_type=reference.get("media_type", ""),
        row_count=reference.get("rows"),
        preview=preview,
        scope=reference.get("scope", "execution"),
        expires_at=reference.get("expires_at"),
    )
    fields = {
        "_ref": record,
        "_store": store,
        "_size_bytes": reference.get("bytes", 0),
        "_preview": preview,
    }
    return {**fields, **reference.get("selected", {})}
