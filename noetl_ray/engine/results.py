"""Results of finished steps as templates of a decision see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from noetl_ray.engine.names import extracted_value, step_value, whole_value

if TYPE_CHECKING:
    from noetl_ray.engine.state import StepState


class StepResults(Mapping[str, Any]):
    """Results of finished steps by name, unpacked only when a template asks."""

    __slots__ = ("_resolved", "_steps")

    def __init__(self, steps: Mapping[str, StepState], resolved: Mapping[str, Any]) -> None:
        self._steps = steps
        self._resolved = resolved

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if name in self._resolved:
            return whole_value(self._steps[name].result, self._resolved[name])
        result = self._steps[name].result
        return extracted_value(result, name) if result is not None else step_value({})

    def __contains__(self, name: object) -> bool:
        step = self._steps.get(name) if isinstance(name, str) else None
        if step is None or step.status == "failed":
            return False
        return step.result is not None or step.status == "completed"

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._steps if name in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __len__(self) -> int:
        return sum(1 for _ in self)
