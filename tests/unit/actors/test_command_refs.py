"""Externalised results as later steps see them: by field, by reference, by selected name."""

from __future__ import annotations

from typing import Any

from noetl_ray.events.types import EventType
from tests.unit.actors.rig import Rig, simulated

ROWS = [{"i": i, "t": "x" * 50} for i in range(5_000)]
BODY = """
workflow:
  - step: big
    tool:
      kind: http
      url: u
      output: {output_select: [status, {path: meta.cursor, as: cursor}]}
    set:
      ctx.stored: "{{ big._ref is defined }}"
      ctx.size: "{{ big._size_bytes }}"
      ctx.store: "{{ big._store }}"
      ctx.cursor: "{{ big.cursor }}"
      ctx.ref: "{{ big._ref }}"
    next: small
  - step: small
    tool: {kind: http, url: s}
    set: {ctx.small: "{{ small._ref is defined }}"}
    next: read
  - step: read
    tool:
      - kind: http
        url: r
        input:
          last: "{{ big.rows[4999].i }}"
          count: "{{ big.rows | length }}"
          uri: "{{ big._ref.ref }}"
          cursor: "{{ big.cursor }}"
          preview: "{{ big._preview is defined }}"
          small: "{{ small._ref is defined }}"
      - {name: got, kind: artifact, action: get, result_ref: "{{ ctx.ref }}"}
      - {name: seen, kind: http, url: g, input: {n: "{{ got.rows | length }}"}}
"""


@simulated
async def test_a_result_by_reference(rig: Rig) -> None:
    seen: dict[str, Any] = {}

    def act(config: dict[str, Any], _context: Any) -> Any:
        seen[config["url"]] = config["input"]
        if config["url"] == "u":
            return {"rows": ROWS, "status": "fine", "meta": {"cursor": "c" * 5_000}}
        return {"ok": True}

    rig.act = act
    rig.cluster()
    state = await rig.ended(await rig.submit(BODY))
    assert state.status == "COMPLETED", rig.events(EventType.CALL_ERROR)
    ctx = state.ctx
    assert (ctx["stored"], ctx["small"], ctx["store"]) == (True, False, "memory")
    assert ctx["size"] > 250_000
    assert ctx["cursor"] == "c" * 5_000
    assert ctx["ref"]["kind"] == "result_ref"
    read = seen["r"]
    assert (read["last"], read["count"], read["small"]) == (4999, 5000, False)
    assert read["uri"] == ctx["ref"]["ref"]
    assert read["cursor"] == "c" * 5_000
    assert read["preview"] is True
    assert seen["g"] == {"n": 5000}
