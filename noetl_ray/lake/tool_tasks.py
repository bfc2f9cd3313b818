"""Tasks of kind ``spark`` as jobs of the session: the other side of the tool's port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.lake.files import lake_place
from noetl_ray.lake.tier import tier_place

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from noetl_ray.config.settings import Settings
    from noetl_ray.lake.session import SparkJobs
    from noetl_ray.scope import Scope

JOB = "noetl_ray.lake.task:run_task"


class JobTasks:
    """Runs tasks as jobs, each told where the tier and the lake of these settings are."""

    def __init__(self, jobs: SparkJobs, settings: Settings) -> None:
        """Bind; starts no session."""
        self._jobs = jobs
        self._settings = settings

    def run(
        self,
        scope: Scope,
        order: dict[str, Any],
        *,
        progress: Callable[[dict[str, int]], None],
        timeout_s: float | None,
        stop: threading.Event,
    ) -> dict[str, Any]:
        """Run one task; see the tool's port."""
        arguments = {
            **order,
            "tier": tier_place(self._settings, scope),
            "lake": lake_place(self._settings),
        }
        return self._jobs.run(JOB, arguments, progress=progress, timeout_s=timeout_s, stop=stop)
