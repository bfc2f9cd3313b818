"""The part of the read model's proof that is about business objects and children of executions.

Each check takes a fresh, empty store and the queries over it, as in ``contract_readmodel``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.errors import UsageError
from noetl_ray.readmodel.objects import version_of
from noetl_ray.readmodel.records import BusinessObjectRow, ProjectionBatch
from noetl_ray.testing.readmodel_samples import HOME, OTHER_ORGANIZATION, execution, mark
from noetl_ray.testing.samples import SAMPLE_TIME

if TYPE_CHECKING:
    from noetl_ray.readmodel.port import ProjectionStore, Queries
    from noetl_ray.scope import Scope


def stated(position: int, ordinal: int = 0, scope: Scope = HOME, **more: Any) -> BusinessObjectRow:
    """A statement about order 1 at a place of the log."""
    fields: dict[str, Any] = {
        "object_type": "order",
        "object_id": "1",
        "status": "paid",
        "attributes": {"total": 12.5, "lines": [1, None]},
        "execution_id": 7,
        "reference": {"uri": "noetl://r"},
    }
    return BusinessObjectRow(
        tenant_id=scope.tenant_id,
        organization_id=scope.organization_id,
        version=version_of(position, ordinal),
        recorded_at=SAMPLE_TIME,
        event_id=version_of(position, ordinal),
        command_id="7:start:1",
        step="start",
        visit=1,
        task="save",
        **(fields | more),
    )


async def the_newest_statement_is_the_object(store: ProjectionStore, queries: Queries) -> None:
    """However statements arrive, twice or out of order, the greatest version stands."""
    late, early = stated(9, 1, status="sent"), stated(9, 0, status="packed")
    first = stated(4, reference=None, status=None, attributes={})
    await store.commit(ProjectionBatch(checkpoints=(mark(9),), objects=(early, late)))
    await store.commit(ProjectionBatch(checkpoints=(mark(10, 9),), objects=(first, early)))
    assert await queries.business_objects(HOME) == [late]
    history = await queries.business_object_history(HOME, object_type="order", object_id="1")
    assert history == [late, early, first]


async def objects_are_found_by_type_id_and_status(store: ProjectionStore, queries: Queries) -> None:
    """Each filter alone and together, last changed first, in pages; history by execution."""
    rows = (
        stated(2, object_id="a"),
        stated(3, object_id="b", status="sent", execution_id=8),
        stated(4, object_type="invoice", object_id="a", status="sent"),
        stated(5, object_id="a/ü 1", execution_id=8),
    )
    await store.commit(ProjectionBatch(checkpoints=(mark(5),), objects=rows))
    assert await queries.business_objects(HOME) == list(reversed(rows))
    page = await queries.business_objects(HOME, limit=2)
    assert await queries.business_objects(HOME, before=page[-1].version) == [rows[1], rows[0]]
    assert await queries.business_objects(HOME, object_type="order", status="sent") == [rows[1]]
    assert await queries.business_objects(HOME, object_id="a") == [rows[2], rows[0]]
    assert await queries.business_objects(HOME, object_type="order", object_id="zz") == []
    told = await queries.business_object_history(HOME, execution_id=8)
    assert told == [rows[3], rows[1]]


async def ten_3_objects_stay_in_their_scope(store: ProjectionStore, queries: Queries) -> None:
    """The same type and id elsewhere is another object; limits are refused."""
    theirs = stated(3, scope=OTHER_ORGANIZATION, status="theirs")
    await store.commit(ProjectionBatch(checkpoints=(mark(3),), objects=(stated(2), theirs)))
    assert await queries.business_objects(HOME) == [stated(2)]
    assert await queries.business_objects(OTHER_ORGANIZATION) == [theirs]
    assert await queries.business_object_history(OTHER_ORGANIZATION) == [theirs]
    for limit in (0, 10_001):
        for ask in (queries.business_objects, queries.business_object_history):
            try:
                await ask(HOME, limit=limit)
            except UsageError:
                continue
            msg = f"limit {limit} was accepted"
            raise AssertionError(msg)


async def children_are_found_by_their_parent(store: ProjectionStore, queries: Queries) -> None:
    """Newest first, and nobody else's."""
    rows = (
        execution(2, execution_id=1),
        execution(2, execution_id=2, parent_execution_id=1),
        execution(2, execution_id=3, parent_execution_id=1),
        execution(2, execution_id=4, parent_execution_id=2),
    )
    await store.commit(ProjectionBatch(checkpoints=(mark(2),), executions=rows))
    found = await queries.executions(HOME, parent=1)
    assert [row.execution_id for row in found] == [3, 2]
    assert await queries.executions(HOME, parent=9) == []
