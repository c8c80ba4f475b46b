"""Edges that tasks shuffle into lists, compared with a stable sort."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cluster_jobs import edges

from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.run.grid import equal_bounds
from tiering.run.job import Job
from tiering.run.local import LocalExecutor
from tiering.run.shuffle import BUCKETS, ListShuffle, bucket_shift, count_edges, write_lists
from tiering.run.store import open_store


@pytest.mark.parametrize(
    ("count", "num_src", "num_dst", "chunks"),
    [
        (1, 1, 1, 1), (1, 5, 9, 3),  # fewer edges than chunks
        (5000, 300, 1, 4),  # one destination: all but one range are empty
        (20_000, 300, 3 * BUCKETS + 1, 5),  # buckets of several destinations, the last of one
        (3000, 2**31 + 5, 700, 3),  # 64-bit ids
    ],
)  # fmt: skip
def test_lists_are_those_of_a_stable_sort(tmp_path: Path, count: int, num_src: int, num_dst: int, chunks: int) -> None:
    params = {"count": count, "bounds": equal_bounds(count, chunks)}
    values = {"weight": ("float32", ()), "row": ("uint8", (3,)), "edge_ids": ("int64", ())}
    shuffle = ListShuffle("edges", "cluster_jobs:read_edges", chunks, count, num_src, num_dst, values, params)
    executor = LocalExecutor(2)
    job = Job(open_store(str(tmp_path / "store")), "job", executor)
    with ArtifactWriter(tmp_path / "out", "graph", identity={"stage": "test"}) as writer:
        write_lists(job, writer, "lists", shuffle, count_edges(job, shuffle))
        found = {path.name: path.read_bytes() for path in (writer.path / "lists").iterdir()}
    executor.close()
    whole = edges(count, num_src, num_dst)
    order = np.argsort(whole.dst, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(whole.dst, minlength=num_dst))])
    weight, row, _ = whole.values
    assert weight is not None and row is not None
    arrays = {"indptr": indptr, "indices": whole.src[order].astype(f"i{id_bytes(num_src)}"), "weight": weight[order]}
    arrays |= {"row": row[order], "edge_ids": order}
    assert found == {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("num_dst", [1, 2, BUCKETS - 1, BUCKETS, BUCKETS + 1, 10**9])
def test_buckets_are_few(num_dst: int) -> None:
    shift = bucket_shift(num_dst)
    assert ((num_dst - 1) >> shift) + 1 <= BUCKETS
    assert shift == 0 or ((num_dst - 1) >> (shift - 1)) + 1 > BUCKETS
