"""Older shapes of ``noetl://`` names: read, never written (LOC-7, TN-6).

``noetl://execution/<eid>/result/<name>/<id>`` and
``noetl://execution/<eid>/step/<step>/run/<run>/attempt/<n>``. The second has all a result's
coordinates need once tenant and project are known; the first has not and only identifies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from noetl_ray.errors import UsageError
from noetl_ray.locator.resource import parse_resource_uri
from noetl_ray.locator.result import SCHEME, ResultName, frame_coordinate, parse_logical_uri
from noetl_ray.locator.segments import decode_number, decode_segment

if TYPE_CHECKING:
    from collections.abc import Callable

Shape = Literal["canonical", "legacy", "resource", "invalid"]

_PREFIX = f"{SCHEME}execution/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyName:
    """A result as older systems named it."""

    execution_id: int
    name: str
    """The step, or what the result was called."""
    id: str
    run: int | None = None
    attempt: int | None = None

    def in_project(self, tenant: str, project: str) -> ResultName | None:
        """The coordinates it stands for; None when the old name does not say enough."""
        if self.run is None or self.attempt is None:
            return None
        return ResultName(
            tenant=tenant,
            project=project,
            execution_id=self.execution_id,
            step=self.name,
            frame=frame_coordinate(visit=self.run),
            attempt=self.attempt,
        )


def parse_legacy_uri(uri: str) -> LegacyName:
    """Read either older shape.

    Raises:
        UsageError: it is neither.
    """
    segments = uri.removeprefix(_PREFIX).split("/") if uri.startswith(_PREFIX) else []
    match segments:
        case [execution, "result", name, ident]:
            return LegacyName(
                execution_id=decode_number(execution, "execution"),
                name=decode_segment(name),
                id=decode_segment(ident),
            )
        case [execution, "step", step, "run", run, "attempt", attempt]:
            return LegacyName(
                execution_id=decode_number(execution, "execution"),
                name=decode_segment(step),
                id=run,
                run=decode_number(run, "run"),
                attempt=decode_number(attempt, "attempt"),
            )
    msg = f"{uri[:120]!r} is not an older result name"
    raise UsageError(msg)


def shape_of(uri: str) -> Shape:
    """Which grammar a name is written in; a bad one is told, never raised."""
    for shape, parse in _PARSERS.items():
        try:
            parse(uri)
        except UsageError:
            continue
        return shape
    return "invalid"


_PARSERS: dict[Shape, Callable[[str], object]] = {
    "canonical": parse_logical_uri,
    "resource": parse_resource_uri,
    "legacy": parse_legacy_uri,
}
