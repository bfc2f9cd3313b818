"""The ``callback`` kind: goes on when somebody answers its token, or its time is over."""

from __future__ import annotations

from typing import Any, ClassVar

from noetl_ray.dsl.language import CALLBACK
from noetl_ray.tools.port import Parked, ToolContext, ToolResult
from noetl_ray.tools.waiting import seconds_of

CONFIG_KEYS: frozenset[str] = frozenset({"message"})
WAIT_S = 7 * 86_400
"""How long an answer is waited for where a task does not say."""


class CallbackTool:
    """Asks for an answer, which becomes its result."""

    kind: ClassVar[str] = "callback"
    side_effects: ClassVar[bool] = False
    meta_key: ClassVar[str] = CALLBACK
    text_keys: ClassVar[frozenset[str]] = frozenset({"message"})

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Ask; whoever goes on gives the answer, or says that nobody gave one."""
        given = WAIT_S if context.timeout_s is None else context.timeout_s
        about = str(config.get("message") or "")
        after_s = seconds_of(given, "'timeout'")
        raise Parked({"kind": CALLBACK, "after_s": after_s, "about": about})

    async def close(self) -> None:
        """Nothing is held."""
