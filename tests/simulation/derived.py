"""What only derives from the log equals what the log gives anew (invariant 1)."""

from __future__ import annotations

from noetl_ray.readmodel.objects import newest_objects
from noetl_ray.readmodel.records import BusinessObjectRow
from noetl_ray.replay.reading import read_execution
from noetl_ray.replay.surfaces import first_difference, rows_of_records, surfaces_of
from tests.simulation.invariants import objects_said
from tests.simulation.world import World


async def check_read_model(world: World, ids: list[int]) -> list[str]:
    """The projector's rows equal a fold of the log (invariant 1)."""
    wrong: list[str] = []
    for execution_id in ids:
        row = await world.readmodel.execution(world.scope, execution_id)
        state = world.ledger.states[execution_id]
        if row is None or row.status != state.status or row.event_count != state.event_count:
            wrong.append(f"read model of {execution_id}: {row} but the log says {state.status}")
        live = await world.readmodel.whole_execution(world.scope, execution_id)
        again = rows_of_records(await read_execution(world.log, world.scope, execution_id))
        if live is None or again is None:
            wrong.append(f"read model of {execution_id} has no state")
        else:
            apart = first_difference(surfaces_of(again), surfaces_of(live))
            wrong += [f"invariant 1, read model of {execution_id}: {apart}"] if apart else []
    said = objects_said(world.log)
    kept = await world.readmodel.business_object_history(world.scope, limit=10_000)
    if sorted(kept, key=_version) != sorted(said, key=_version):
        wrong.append(f"read model has {len(kept)} statements about objects, the log {len(said)}")
    now = await world.readmodel.business_objects(world.scope, limit=10_000)
    if sorted(now, key=_version) != sorted(newest_objects(said), key=_version):
        wrong.append("read model's objects are not the newest statements")
    return wrong


def _version(row: BusinessObjectRow) -> int:
    return row.version
