"""The ``noop`` kind: gives back ``result`` or a small record. It exists for its policy; no I/O."""

from __future__ import annotations

from typing import Any, ClassVar

from noetl_ray.tools.port import ToolContext, ToolResult

CONFIG_KEYS: frozenset[str] = frozenset({"result", "input", "args"})


class NoopTool:
    """Does nothing, in microseconds."""

    kind: ClassVar[str] = "noop"
    side_effects: ClassVar[bool] = False
    meta_key: ClassVar[str] = "noop"
    text_keys: ClassVar[frozenset[str]] = frozenset()

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return ``config["result"]`` when given, else a record naming the step."""
        if "result" in config:
            return ToolResult(data=config["result"])
        return ToolResult(data={"status": "ok", "step": context.step})

    async def close(self) -> None:
        """Nothing is held."""
