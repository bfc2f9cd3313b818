"""The registry: which kinds of tasks this process can run. It owns lookup and closing, not running.

Third parties add a kind with an entry point in the group ``noetl_ray.tools`` whose name is the kind
and whose object is called without arguments to make the tool. Such code is imported only when its
kind is first used, and can never replace a kind that is registered here.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from noetl_ray.errors import ToolError
from noetl_ray.tools.kinds import unknown_kind_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from noetl_ray.tools.limiter import Limiter
    from noetl_ray.tools.port import Tool
    from noetl_ray.tools.python_remote import RemotePython
    from noetl_ray.tools.spark import SparkTasks

ENTRY_POINT_GROUP = "noetl_ray.tools"

_logger = logging.getLogger(__name__)


class ToolRegistry:
    """Tools by kind."""

    def __init__(self, plugins: Iterable[EntryPoint] | None = None) -> None:
        """Make an empty registry; ``plugins`` replaces the installed entry points."""
        self._tools: dict[str, Tool] = {}
        self._later: dict[str, Callable[[], Tool]] = {}
        self._given = None if plugins is None else list(plugins)
        self._plugins: dict[str, EntryPoint] | None = None

    def register(self, tool: Tool) -> None:
        """Add a tool; a kind can be registered once."""
        if tool.kind in self._tools:
            msg = f"tool kind {tool.kind!r} is registered already"
            raise ValueError(msg)
        self._tools[tool.kind] = tool

    def register_later(self, kind: str, make: Callable[[], Tool]) -> None:
        """Add a tool that is made when a task first needs it; for kinds that are dear to import."""
        if kind in self._tools or kind in self._later:
            msg = f"tool kind {kind!r} is registered already"
            raise ValueError(msg)
        self._later[kind] = make

    def get(self, kind: str) -> Tool:
        """The tool of a kind. Raises ToolError of kind ``schema`` when there is none."""
        tool = self._tools.get(kind)
        if tool is not None:
            return tool
        make = self._later.pop(kind, None)
        if make is not None:
            tool = self._tools[kind] = make()
            return tool
        plugin = self._entry_points().get(kind)
        if plugin is None:
            raise ToolError(unknown_kind_message(kind, self.kinds()), "schema")
        return self._load(kind, plugin)

    def kinds(self) -> frozenset[str]:
        """Every kind that can be asked for, installed plugins included (they are not imported)."""
        return frozenset(self._tools) | frozenset(self._later) | frozenset(self._entry_points())

    def side_effects(self, kind: str) -> bool:
        """Whether running the kind twice may be seen from outside."""
        return self.get(kind).side_effects

    async def close(self) -> None:
        """Close every tool; one that fails to close does not keep the others open."""
        tools, self._tools = list(self._tools.values()), {}
        for tool in tools:
            try:
                await tool.close()
            except Exception:
                _logger.exception("closing the %s tool failed", tool.kind)

    def _entry_points(self) -> dict[str, EntryPoint]:
        if self._plugins is None:
            found = self._given
            if found is None:
                found = list(entry_points(group=ENTRY_POINT_GROUP))
            self._plugins = {point.name: point for point in found}
        return self._plugins

    def _load(self, kind: str, plugin: EntryPoint) -> Tool:
        try:
            tool: Tool = plugin.load()()
        except Exception as error:
            # A broken plugin is the plugin's fault: it fails the tasks of its kind, nothing else.
            msg = f"the plugin of tool kind {kind!r} ({plugin.value}) cannot be loaded: {error}"
            raise ToolError(msg, "schema") from error
        if getattr(tool, "kind", None) != kind:
            says = getattr(tool, "kind", None)
            msg = f"the plugin {plugin.value} says it is {says!r}, not {kind!r}"
            raise ToolError(msg, "schema")
        self._tools[kind] = tool
        return tool


def default_registry(
    *,
    python_processes: int,
    base_env: Mapping[str, str] | None = None,
    script_root: Path | None = None,
    data_root: Path | None = None,
    limiter: Limiter | None = None,
    python_memory_bytes: int = 0,
    remote: RemotePython | None = None,
    spark: SparkTasks | None = None,
) -> ToolRegistry:
    """The built-in kinds. Nothing is started or connected until a task needs it.

    Args:
        python_processes: How many processes run user Python at once.
        base_env: Environment of this process; user Python and commands get an allowlist of it only.
        script_root: Folder that ``script`` files of python tasks lie in; None refuses files.
        data_root: Folder that files of other tasks lie in, such as databases; None refuses files.
        limiter: Limits on http calls that workers share.
        python_memory_bytes: What one call of user Python may use; 0 sets no limit.
        remote: Who runs python tasks that ask for resources; None fails them.
        spark: Who runs spark tasks; None fails them.
    """
    from noetl_ray.tools.artifact import ArtifactTool
    from noetl_ray.tools.callback import CallbackTool
    from noetl_ray.tools.http import HttpTool
    from noetl_ray.tools.nats_tool import NatsTool
    from noetl_ray.tools.noop import NoopTool
    from noetl_ray.tools.playbook import PlaybookTool
    from noetl_ray.tools.postgres import PostgresTool
    from noetl_ray.tools.python import PythonTool
    from noetl_ray.tools.shell import ShellTool
    from noetl_ray.tools.wait import WaitTool

    registry = ToolRegistry()
    registry.register(NoopTool())
    registry.register(WaitTool())
    registry.register(CallbackTool())
    registry.register(ArtifactTool())
    registry.register(PlaybookTool())
    registry.register(
        PythonTool(
            processes=python_processes,
            base_env=base_env or {},
            script_root=script_root,
            memory_bytes=python_memory_bytes,
            remote=remote,
        )
    )
    registry.register(HttpTool(limiter=limiter))
    registry.register(PostgresTool())
    registry.register_later("duckdb", partial(_duckdb, data_root))
    registry.register(NatsTool())
    registry.register(ShellTool(base_env=base_env or {}))
    registry.register_later("transfer", partial(_transfer, data_root, limiter))
    registry.register_later("spark", partial(_spark, spark))
    return registry


def _duckdb(data_root: Path | None) -> Tool:
    from noetl_ray.tools.duckdb import DuckdbTool

    return DuckdbTool(data_root=data_root)


def _spark(tasks: SparkTasks | None) -> Tool:
    from noetl_ray.tools.spark import SparkTool

    return SparkTool(tasks)


def _transfer(data_root: Path | None, limiter: Limiter | None) -> Tool:
    from noetl_ray.tools.transfer import TransferTool

    return TransferTool(data_root=data_root, limiter=limiter)
