"""Ray Datasets and the result tier: stored tables as Datasets, Datasets as stored tables.

Ray's tasks read and write the tier themselves, as Spark's executors do, so a Dataset and a
DataFrame meet in a result's name: what one has stored the other reads. Blocks are Arrow; no row is
pickled, and nothing passes through the process that asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.lake.exchange import fitting, steady, write_parts
from noetl_ray.lake.sources import read_source, sources_of
from noetl_ray.lake.tier import Tier
from noetl_ray.results.table_parts import TablePart, make_manifest

if TYPE_CHECKING:
    from ray.data import Dataset

    from noetl_ray.lake.tier import TierPlace


def dataset_of(place: TierPlace, ref: Any) -> Dataset:
    """A stored table as a Dataset, one block to a part; tasks fetch them when it is consumed.

    Args:
        place: Whose tier, and where.
        ref: A ``result_ref`` record or a ``noetl://`` name.

    Raises:
        UsageError: that is no reference.
    """
    import ray.data

    told = [msgspec.json.encode(one).decode() for one in sources_of(Tier(place), "dataset", ref)]

    def read(batch: pa.Table) -> pa.Table:
        tier = Tier(place)
        sources = [msgspec.json.decode(one) for one in batch.column("source").to_pylist()]
        return pa.concat_tables([read_source(tier, source) for source in sources])

    names = ray.data.from_items([{"source": one} for one in told], override_num_blocks=len(told))
    return names.map_batches(read, batch_format="pyarrow", batch_size=1)


def store_dataset(place: TierPlace, dataset: Dataset) -> dict[str, Any]:
    """Let Ray's tasks write a Dataset into the tier, in the order of its blocks; its record."""
    found = dataset.schema()
    schema = steady(fitting(pa.schema(list(zip(found.names, found.types, strict=True)))))

    def write(batch: pa.Table) -> pa.Table:
        whole = batch.select(schema.names).cast(schema)
        written = write_parts(Tier(place), schema, whole.to_batches())
        parts = [msgspec.json.encode(part).decode() for part in written]
        return pa.table({"part": pa.array(parts, pa.string())})

    dataset.context.execution_options.preserve_order = True
    told = dataset.map_batches(write, batch_format="pyarrow", batch_size=None).take_all()
    parts = [msgspec.json.decode(row["part"], type=TablePart) for row in told]
    return Tier(place).put_manifest(make_manifest(schema, parts))
