"""Another thread changes an array while the core reads it: what was checked is used, or the change is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import csc_edges
from tiering import native, tiered
from tiering.artifacts.storage import aligned_bytes
from tiering.errors import TieringError
from tiering.formats.layout import TypeLayout
from tiering.formats.ssd_rows import SsdRows
from tiering.loader.tables.gather import HostRows

Race = tuple[np.ndarray[Any, Any], Any, Callable[[], Any]]
FAR = 1 << 40
NODES, EDGES, SHIFT = 300_000, 400_000, 12


def random_ids(below: int, count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, below, count)


def rows_in_memory() -> HostRows:
    ranges = {"gpu": (0, 0), "peer": (0, 0), "cpu": (0, 2000), "ssd": (2000, 2000)}
    entry = TypeLayout("node", 2000, 64, "float32", ranges, SsdRows(0, 0, 1, 0))
    flat = np.ones(2000 * 64, np.float32).view(np.uint8)
    return HostRows("here", entry, native.TieredTable(256, [0, 0, 2000, 2000], None, [], flat, None), "auto")


def gather(out: bool) -> Race:
    features = rows_in_memory()
    ids = random_ids(2000, 100_000)
    rows = np.empty((ids.size, 64), np.float32) if out else None
    return ids, -FAR, lambda: features.gather_numpy(ids, rows)


def gather_tensors() -> Race:
    torch = pytest.importorskip("torch")
    features, ids = rows_in_memory(), random_ids(2000, 100_000)
    out, wanted = torch.empty((ids.size, 64)), torch.from_numpy(ids)
    return ids, -FAR, lambda: features.gather(wanted, out)


def tiered_tensor() -> Race:
    torch = pytest.importorskip("torch")
    order = np.random.default_rng(1).random(2000)
    rows, ids = tiered(torch.ones((2000, 64)), order=order, device="cpu"), random_ids(2000, 100_000)
    wanted = torch.from_numpy(ids)
    return ids, -FAR, lambda: rows[wanted]


def seeds() -> Race:
    sampler = native.Sampler(
        ["node"], [3000], [("to", 0, 0, np.arange(3001), random_ids(3000, 3000).astype(np.int32), None)], [[2]], "new",
        [None], 0,
    )  # fmt: skip
    ids, offsets = random_ids(3000, 100_000), np.array([0, 50_000, 100_000])
    counts = [np.zeros(3000, np.int64)]
    return ids, FAR, lambda: sampler.count_accesses([(ids, offsets)], 0, 0, 2, counts, counts, 2)


def weights() -> Race:
    values = np.random.default_rng(0).random(EDGES)
    return values, np.inf, lambda: native.cumulative_weights(np.array([0, EDGES]), values, "w", 2)


def coo_to_csc(same: bool) -> Race:
    src, dst = random_ids(NODES, EDGES), random_ids(NODES, EDGES)
    return dst, NODES - 1 if same else FAR, lambda: csc_edges.coo_to_csc(src, dst, NODES, NODES, 2)


def scattered_edges() -> Race:
    src, dst, count = random_ids(NODES, EDGES), random_ids(NODES, EDGES), EDGES
    values = [np.zeros((count, size), np.uint8) for size in (4, 3)]
    parts = [aligned_bytes(count * size + 64) for size in (8, 4, 3)]

    def scatter() -> None:
        counts = native.count_buckets(dst, 0, NODES, SHIFT, 2)
        native.scatter_edges(src, dst, values, 0, NODES, NODES, SHIFT, counts, 0, parts)

    return dst, FAR, scatter


def out_degrees() -> Race:
    indices = random_ids(NODES, EDGES)
    return indices, FAR, lambda: native.out_degrees(indices, NODES, 2)


def sorted_scores() -> Race:
    scores = np.random.default_rng(0).random(EDGES)
    return scores, -1.0, lambda: native.sort_by_score(scores, 2)


def partition() -> Race:
    keys, bounds = random_ids(1000, EDGES), np.arange(0, 1001, 10)
    return keys, 999, lambda: native.partition(keys, bounds, 2)


def added_rows() -> Race:
    rows, nodes, neighbors = np.ones((3000, 4), np.float32), np.sort(random_ids(3000, EDGES)), random_ids(3000, EDGES)
    total, degree = np.zeros((3000, 4), np.float32), np.zeros(3000, np.int64)
    return neighbors, FAR, lambda: native.add_rows(rows, nodes, neighbors, total, degree, 2)


RACES: dict[str, Callable[[], Race]] = {
    "gather": lambda: gather(out=False),
    "gather into an array": lambda: gather(out=True),
    "gather into a tensor": gather_tensors,
    "tiered tensor": tiered_tensor,
    "seeds": seeds,
    "weights": weights,
    "coo_to_csc": lambda: coo_to_csc(same=False),
    "coo_to_csc, valid ids": lambda: coo_to_csc(same=True),
    "scatter_edges": scattered_edges,
    "out_degrees": out_degrees,
    "sort_by_score": sorted_scores,
    "partition": partition,
    "add_rows": added_rows,
}


def race(name: str, seconds: float) -> str:
    """Call the core while another thread changes the second half of an array and back; how often it refused."""
    array, other, call = RACES[name]()
    half, before, ended = array[array.size // 2 :], array.copy(), threading.Event()

    def change() -> None:
        while not ended.is_set():
            half[...] = other
            time.sleep(0.001)
            half[...] = before[array.size // 2 :]
            time.sleep(0.003)

    thread = threading.Thread(target=change)
    thread.start()
    refused = calls = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or not calls:
        calls += 1
        try:
            call()
        except (TieringError, ValueError):
            refused += 1
    ended.set()
    thread.join()
    return f"{name}: {refused} of {calls} refused"


@pytest.mark.parametrize("name", RACES)
def test_no_crash(name):
    print(race(name, 0.2))


@pytest.mark.long
@pytest.mark.parametrize("name", RACES)
def test_no_crash_for_long(name):
    print(f"campaign changing arrays: {race(name, 20)}, 0 crashes")
