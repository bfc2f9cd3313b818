"""Running an execution again from one of its steps: what is reused, what is refused.

Everything that is not that step and cannot follow it keeps its result; the step and all that can
follow it are as they were when it was entered. Variables are the last ones, but for those that the
steps to be run again have written since: these are as they were then. Owns this rule; refuses what
it cannot tell apart, in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.dsl.graph import StepGraph
from noetl_ray.engine.fold import apply_control, consume, fold
from noetl_ray.errors import ConflictError, NotFoundError, UsageError
from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.types import EXECUTION_TERMINAL, AggregateType, EventType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl_ray.dsl.model import Playbook
    from noetl_ray.engine.state import ExecutionState
    from noetl_ray.events.envelope import Event
    from noetl_ray.wal.port import Recorded

AGAIN_BYTES_MAX = 400_000
_WRITERS = frozenset({EventType.STEP_EXIT, EventType.CALL_DONE, EventType.CALL_ERROR})


def what_was_done(
    records: Sequence[Recorded], playbook: Playbook, step: str | None
) -> dict[str, Any]:
    """What a new execution takes over from the records of a finished one, for its request.

    Args:
        records: All records of the execution, in order.
        playbook: The version it ran.
        step: Where to go on; None means the step that failed.

    Raises:
        ConflictError: it has not ended.
        UsageError: no step failed and none is named, or something cannot be reused.
        NotFoundError: the step was never entered, or there is none of that name.
    """
    final, execution_id = _before_its_end(records)
    step = step or (final.failed or {}).get("step")
    if step is None:
        msg = f"execution {execution_id} did not fail in a step; say --from STEP"
        raise UsageError(msg)
    if step not in playbook.steps:
        msg = f"the playbook has no step {step!r}; steps are {', '.join(playbook.steps)}"
        raise NotFoundError(msg)
    entered = _entered(records, step)
    if entered is None:
        msg = f"step {step!r} was never entered in execution {execution_id}"
        raise NotFoundError(msg)
    then, sources = _when_entered(records, *entered)
    again = StepGraph(playbook).reachable(step) | {step}
    later = list(_events_after(records, *entered))
    said = {
        "of": execution_id,
        "from": step,
        "ctx": _variables(final, then, later, again),
        "steps": _steps(final, then, again, step),
        "held": _reached(final, later, again) | {step: list(sources)},
    }
    size = len(canonical_json(said))
    if size > AGAIN_BYTES_MAX:
        msg = f"what was done before {step!r} takes {size} bytes, at most {AGAIN_BYTES_MAX}"
        raise UsageError(msg)
    return said


def _before_its_end(records: Sequence[Recorded]) -> tuple[ExecutionState, int]:
    """The last state before the execution ended, which forgets what was still reached."""
    state: ExecutionState | None = None
    for recorded in records:
        for index, event in enumerate(recorded.record.events):
            if event.event_type in EXECUTION_TERMINAL:
                assert state is not None
                return _up_to(state, recorded, index), event.execution_id
        state = fold(state, recorded)
    execution_id = records[0].record.events[0].execution_id
    msg = f"execution {execution_id} has not ended; cancel it, or wait for it"
    raise ConflictError(msg)


def _up_to(state: ExecutionState, recorded: Recorded, index: int) -> ExecutionState:
    """A state with the first events of a decision applied."""
    draft = state.draft()
    consume(draft, recorded.record.consumed)
    for event in recorded.record.events[:index]:
        apply_control(draft, event, recorded.position)
    return draft


def _entered(records: Sequence[Recorded], step: str) -> tuple[int, int] | None:
    """Where the last visit of a step began: which record, which of its events."""
    found = None
    for number, recorded in enumerate(records):
        for index, event in enumerate(recorded.record.events):
            if event.event_type is EventType.STEP_ENTER and event.payload["step"] == step:
                found = number, index
    return found


def _when_entered(
    records: Sequence[Recorded], number: int, index: int
) -> tuple[ExecutionState, list[str]]:
    state: ExecutionState | None = None
    for recorded in records[:number]:
        state = fold(state, recorded)
    assert state is not None
    event = records[number].record.events[index]
    return _up_to(state, records[number], index), event.payload.get("from", [])


def _events_after(records: Sequence[Recorded], number: int, index: int) -> Iterable[Event]:
    yield from records[number].record.events[index:]
    for recorded in records[number + 1 :]:
        yield from recorded.record.events


def _steps(
    final: ExecutionState, then: ExecutionState, again: frozenset[str], start: str
) -> dict[str, Any]:
    kept = {}
    for name, state in final.steps.items():
        found = then.steps.get(name) if name in again else state
        if found is None:
            continue
        if found.status == "running" and name != start:
            when = f"when {start!r} began" if name in again else "when the execution ended"
            msg = f"step {name!r} was under way {when}, so its work cannot be reused; "
            raise UsageError(msg + "go on from a step before both, or run all of it again")
        if name not in again and (final.failed or {}).get("step") == name:
            msg = f"step {name!r} failed beside {start!r}; go on from a step before both"
            raise UsageError(msg)
        if found.status != "running":
            kept[name] = msgspec.to_builtins(found)
    return kept


def _variables(
    final: ExecutionState, then: ExecutionState, later: Iterable[Event], again: frozenset[str]
) -> dict[str, Any]:
    """The last variables, but for what the steps to be run again have written since."""
    theirs: set[str] = set()
    others: set[str] = set()
    for event in later:
        if event.event_type not in _WRITERS:
            continue
        written = set(event.payload.get("set", {}))
        for arc in event.payload.get("arcs", ()):
            written |= set(arc.get("set", {}))
        heads = {key.partition(".")[0] for key in written}
        (theirs if event.payload["step"] in again else others).update(heads)
    both = sorted(theirs & others)
    if both:
        msg = f"variables written by these steps and by others beside them: {', '.join(both)}; "
        raise UsageError(msg + "go on from a step before both, or run all of it again")
    kept = {key: value for key, value in final.ctx.items() if key not in theirs}
    return kept | {key: then.ctx[key] for key in theirs if key in then.ctx}


def _reached(
    final: ExecutionState, later: Iterable[Event], again: frozenset[str]
) -> dict[str, list[str]]:
    """Steps that others beside have reached and that have to begin, or to begin again."""
    found: dict[str, list[str]] = {}
    for name, token in final.held.items():
        sources = [each for each in token.sources if each not in again]
        if sources or name not in again:
            found[name] = sources
    for event in later:
        control = event.aggregate_type is AggregateType.EXECUTION
        if control and event.event_type is EventType.STEP_ENTER:
            name = event.payload["step"]
            sources = [each for each in event.payload.get("from", ()) if each not in again]
            if name in again and sources:
                found.setdefault(name, []).extend(sources)
    return found
