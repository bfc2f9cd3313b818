"""The exact shape of payload.result."""

from __future__ import annotations

import pytest

from noetl_ray.results.ref import build_result, is_reference, result_body
from noetl_ray.results.tier import decide_tier

URI = "noetl://t/p/results/1/s/v1.f0/0/1@1"


def test_tn_3_small_result():
    result = build_result(decide_tier({"a": 1}))
    assert result == {
        "status": "ok",
        "tier": "inline",
        "reference": None,
        "extracted": {"a": 1},
        "parent_ref": None,
        "context": {},
    }
    assert result_body(result) == {"a": 1}
    assert not is_reference(result)


def test_tn_3_inline_result_over_the_extracted_budget_carries_its_body():
    value = {"text": "x" * 10_000}
    result = build_result(decide_tier(value), status="error")
    assert result["status"] == "error"
    assert result["body"] == value
    assert result["truncated"] == {"text": 10_000}
    assert result_body(result) == value


def test_tn_3_referenced_result_carries_no_body():
    decision = decide_tier([{"a": n} for n in range(20_000)])
    result = build_result(decision, uri=URI)
    assert set(result) == {
        "status",
        "tier",
        "reference",
        "extracted",
        "truncated",
        "parent_ref",
        "context",
    }
    assert result["reference"] == {
        "uri": URI,
        "sha256": decision.sha256,
        "media_type": decision.media_type,
        "bytes": decision.size_bytes,
        "rows": 20_000,
        "schema_digest": decision.schema_digest,
    }
    assert is_reference(result)
    assert result_body(result) is None


def test_env_7_void_result():
    result = build_result(decide_tier(None))
    assert result["reference"] is None
    assert result_body(result) is None


def test_stg_1_unstaged_reference_says_where_the_value_lies():
    decision = decide_tier("x", force_tier=True)
    reference = build_result(decision, uri=URI, payload_uri="noetl://tenant/…")["reference"]
    assert reference["staged"] is False
    assert reference["payload_uri"] == "noetl://tenant/…"


def test_a_reference_needs_a_name():
    with pytest.raises(ValueError, match="needs a name"):
        build_result(decide_tier("x", force_tier=True))
