"""A process of the shared set's Ray: tables between Datasets and Spark; prints one line."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any


def main() -> None:
    given = json.loads(sys.stdin.read())
    with contextlib.redirect_stdout(sys.stderr):
        told = exchanged(given)
    print(json.dumps(told))


def exchanged(given: dict[str, Any]) -> dict[str, Any]:
    import ray.data

    from actors.cluster import connected
    from actors.datasets import dataset_of, store_dataset
    from actors.spark import RaySpark
    from noetl_ray.config.convert import from_dict
    from noetl_ray.lake.files import lake_place
    from noetl_ray.lake.tier import tier_place
    from noetl_ray.scope import Scope

    settings = from_dict(given["settings"])
    place = tier_place(settings, Scope())
    with connected(settings):
        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = ray.data.range(given["rows"], override_num_blocks=4)
        dataset = rows.map_batches(_doubled, batch_format="pyarrow")
        stored = store_dataset(place, dataset)
        job = {
            "inputs": {"t": stored},
            "sql": ["SELECT id, double, double - id AS rest FROM t WHERE id % 2 = 0"],
            "tier": place,
            "lake": lake_place(settings),
        }
        answer = RaySpark(settings).run("noetl_ray.lake.task:run_task", job)
        back = dataset_of(place, answer["record"])
        ids = [row["id"] for row in back.take_all()]
        return {
            "stored": stored["meta"],
            "rows": answer["rows"],
            "rest": back.sum("rest"),
            "ordered": ids == sorted(ids),
        }


def _doubled(batch: Any) -> Any:
    import pyarrow.compute as pc

    return batch.append_column("double", pc.multiply(batch.column("id"), 2))


if __name__ == "__main__":
    main()
