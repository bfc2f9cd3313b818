"""The outside world: effects that count themselves, take time, and can fail the first few times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl_ray.errors import ToolError
from noetl_ray.tools.port import ToolContext, ToolResult
from tests.simulation.answers import give_answer

if TYPE_CHECKING:
    from tests.simulation.world import World


class EffectTool:
    """Stands for every kind with side effects."""

    kind: ClassVar[str] = "http"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "http"
    text_keys: ClassVar[frozenset[str]] = frozenset({"url"})

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Wait, do it, wait, say so."""
        world = self._world
        world.effect(context)
        await world.clock.sleep(float(config.get("takes_ms", 0)) / 1000)
        context.log("stdout", f"effect of {context.step}")
        if "asks" in config:
            world.loop.spawn("", give_answer(world, config["asks"], config["answer"]))
        if context.attempt <= int(config.get("fail_first", 0)):
            msg = "simulated failure"
            raise ToolError(msg, "server_error", True, {"status_code": 500})
        return ToolResult(data=config["value"], meta={"status": 200})

    async def close(self) -> None:
        """Nothing to let go of."""
