"""A relation that tasks convert, compared with a stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.dataset import EdgeData
from tiering.formats.graph import relation_folder
from tiering.graph.plan import BUCKETS, SIZES, RelationPlan
from tiering.graph.tasks import write_relation
from tiering.run.grid import run_shift
from tiering.run.job import Job
from tiering.run.step import LocalExecutor
from tiering.run.store import Store


@pytest.mark.parametrize(
    ("count", "num_src", "num_dst", "chunks", "timed"),
    [
        (1, 1, 1, 1, False), (1, 5, 9, 3, False),  # fewer edges than chunks
        (5000, 300, 1, 4, False),  # one destination: all but one range are empty
        (20_000, 300, 3 * BUCKETS + 1, 5, False),  # buckets of several destinations, the last of one
        (3000, 2**31 + 5, 700, 3, False),  # 64-bit ids
        (5000, 50, 50, 3, True),  # lists in order of time
    ],
)  # fmt: skip
def test_lists_are_those_of_a_stable_sort(tmp_path, count, num_src, num_dst, chunks, timed):
    random = np.random.default_rng(count)
    src, dst = random.integers(0, num_src, count), (random.random(count) ** 4 * num_dst).astype(np.int64)
    data = {"weight": random.random(count).astype(np.float32), "row": random.integers(0, 256, (count, 3), np.uint8)}
    data |= {"when": random.integers(0, 50, count)} if timed else {}
    edges = EdgeData(("a", "to", "b"), src, dst, data=data, time="when" if timed else None)
    values = {"weight": 4, "row": 3, "edge_ids": 8, **({"when": 8} if timed else {})}
    executor = LocalExecutor(2)
    with ArtifactWriter(tmp_path / "out", "graph", identity={"stage": "test"}) as writer:
        job = Job(Store(str(tmp_path / "store")), "job", executor)
        write_relation(job, writer, RelationPlan(edges, num_src, num_dst, values, SIZES, None, chunks))
        found = {path.name: path.read_bytes() for path in (writer.path / relation_folder(edges.relation)).iterdir()}
    executor.close()
    order = np.lexsort((data["when"], dst)) if timed else np.argsort(dst, kind="stable")
    arrays = {"indptr": np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_dst))]), "edge_ids": order}
    arrays |= {"indices": src[order].astype(f"i{id_bytes(num_src)}"), **{k: v[order] for k, v in data.items()}}
    assert found == {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("num_dst", [1, 2, BUCKETS - 1, BUCKETS, BUCKETS + 1, 10**9])
def test_buckets_are_few(num_dst):
    shift = run_shift(num_dst, BUCKETS)
    assert ((num_dst - 1) >> shift) + 1 <= BUCKETS
    assert shift == 0 or ((num_dst - 1) >> (shift - 1)) + 1 > BUCKETS
