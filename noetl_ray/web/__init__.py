"""The HTTP API: an edge over the submit functions, the read model and the result store."""

from __future__ import annotations

from noetl_ray.web.app import create_app
from noetl_ray.web.deps import GatewayDeps

__all__ = ["GatewayDeps", "create_app"]
