"""``payload.result`` of an event: status, tier, reference and the extracted block (ENV-7, TN-3).

The shape is fixed here and nowhere else. A body is present only when the result is inline and the
extracted block does not already say it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from noetl_ray.clock import iso_utc

if TYPE_CHECKING:
    from noetl_ray.results.garbage import Keep
    from noetl_ray.results.tier import TierDecision

Status = Literal["ok", "error"]


def build_result(
    decision: TierDecision,
    *,
    status: Status = "ok",
    uri: str | None = None,
    payload_uri: str | None = None,
    store: str | None = None,
    selected: dict[str, Any] | None = None,
    secret: bool = False,
    ipc: dict[str, Any] | None = None,
    preview: Any = None,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """Make ``payload.result``.

    Args:
        decision: What was decided for the value.
        status: How the task ended.
        uri: The result's name; obligatory unless the result is inline.
        payload_uri: Where the value lies instead, when the object is not staged at its own key
            (STG-1).
        store: What kind of place the object lies in.
        selected: Values of the result that are kept beside it by name (section 13).
        secret: The bytes hold credentials; no cache may keep them (P28).
        ipc: The hint to shared memory, if the bytes were offered there (PAY-7).
        preview: What a reference shows of the value, where its size was asked for (RES-2).
        keep: How long the bytes are wanted, where that was asked for.
    """
    result: dict[str, Any] = {
        "status": status,
        "tier": decision.tier,
        "reference": None,
        "extracted": decision.extracted,
        "parent_ref": None,
        "context": {},
    }
    if decision.truncated:
        result["truncated"] = decision.truncated
    if decision.tier == "inline":
        if decision.truncated:
            result["body"] = decision.body
        return result
    if not uri:
        msg = f"a result of tier {decision.tier} needs a name"
        raise ValueError(msg)
    reference = _identity(decision, uri)
    if payload_uri is not None:
        reference["staged"] = False
        reference["payload_uri"] = payload_uri
    if store is not None:
        reference["store"] = store
    if selected:
        reference["selected"] = selected
    if secret:
        reference["secret"] = True
    if ipc is not None:
        reference["ipc"] = ipc
    if preview is not None:
        reference["preview"] = preview
    if keep is not None:
        reference["scope"] = keep.scope
        if keep.expires_ms is not None:
            reference["expires_at"] = iso_utc(keep.expires_ms)
    result["reference"] = reference
    return result


def _identity(decision: TierDecision, uri: str) -> dict[str, Any]:
    """What names the bytes and says what they are."""
    reference: dict[str, Any] = {
        "uri": uri,
        "sha256": decision.sha256,
        "media_type": decision.media_type,
        "bytes": decision.size_bytes,
    }
    if decision.rows is not None:
        reference["rows"] = decision.rows
    if decision.schema_digest is not None:
        reference["schema_digest"] = decision.schema_digest
    return reference


def is_reference(result: dict[str, Any]) -> bool:
    """Whether the body lies in an object."""
    return isinstance(result.get("reference"), dict)


def result_body(result: dict[str, Any]) -> Any:
    """The whole value of an inline result; None for one that lies in an object."""
    if is_reference(result):
        return None
    return result["body"] if "body" in result else result.get("extracted")
