"""What a worker may use of the cluster its process belongs to: Ray tasks and the Spark session.

Nothing here joins a cluster. A process that is none of Ray's has no Ray tasks, and Spark only where
the settings say so; its tasks of such kinds then fail and say why.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl_ray.config.settings import Settings
    from noetl_ray.tools.python_remote import RemotePython
    from noetl_ray.tools.spark import SparkTasks


def spark_tasks(settings: Settings) -> SparkTasks | None:
    """Who runs spark tasks: the session of the cluster, else the one that is configured."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    from noetl_ray.lake.session import LocalSpark
    from noetl_ray.lake.tool_tasks import JobTasks

    ray = sys.modules.get("ray")
    elsewhere = settings.spark.master not in ("", "raydp")
    if elsewhere or ray is None or not ray.is_initialized():
        return JobTasks(LocalSpark(settings.spark), settings)
    from actors.spark import RaySpark

    return JobTasks(RaySpark(settings), settings)


def remote_python(settings: Settings, memory_bytes: int) -> RemotePython | None:
    """Who runs tasks with resources: Ray, when this process is one of its own."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    from actors.bridge import RayPython

    return RayPython(wait_s=settings.ray.task_wait_s, memory_bytes=memory_bytes)
