"""Lists are those of a sort by destination, time where there is one, and position, however the work is cut."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import native
from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter
from tiering.errors import InputError
from tiering.formats.dataset import ColumnIds, Dataset, EdgeData, NodeData
from tiering.formats.times import GraphTime
from tiering.graph.build import build_graph
from tiering.graph.plan import SortSizes

WHOLE = np.array([-(2**63), -5, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1], np.int64)  # as float64, some would be equal
REAL = np.array([-np.inf, -2.5, -0.0, 0.0, 1e-300, 3.5, np.inf])
RELATION = ("node", "to", "node")


def dataset(src, dst, times, *, is_sorted=False, nodes=50, edge_ids=None, **data):
    """A relation of so many nodes; `times` may be none."""
    when, time = {}, None
    if times is not None:
        when, time = {"when": times}, GraphTime("when", "edges", times.dtype.name)
    edges = EdgeData(RELATION, src, dst, data={**when, **data}, edge_ids=edge_ids, is_sorted=is_sorted)
    edges.time = "when" if when else None
    return Dataset("any", "npy", {"node": NodeData(nodes)}, [edges], time=time)


def check(built, src, dst, times, own=None, **data):
    """Lists are those of a stable sort: equal times stay in the order of the input."""
    order = np.argsort(dst, kind="stable") if times is None else np.lexsort((times, dst))
    np.testing.assert_array_equal(np.diff(built.csc()[0]), np.bincount(dst, minlength=built.num_nodes()))
    np.testing.assert_array_equal(built.csc()[1], src[order])
    if times is not None:
        np.testing.assert_array_equal(built.times().view(np.int64), times[order].view(np.int64))
    found = built.edge_data()
    assert set(found) - {"when"} == {"edge_ids", *data}
    np.testing.assert_array_equal(found["edge_ids"], order if own is None else own[order])
    for name, values in data.items():
        np.testing.assert_array_equal(found[name], values[order])


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32), nodes=st.integers(1, 100), edges=st.integers(0, 1500), chunk=st.integers(1, 300),
    buckets=st.integers(2, 100), columns=st.integers(1, 100), runs=st.integers(2, 20), resident=st.floats(0, 1),
    hub=st.floats(0, 1), choices=st.none() | st.integers(1, 8), threads=st.integers(1, 3),
)  # fmt: skip
def test_any_sizes_give_a_stable_sort(
    seed, nodes, edges, chunk, buckets, columns, runs, resident, hub, choices, threads
):
    """With and without times; values of any size and stride. Up to all edges lead to one node, and up to all have one
    time: both are larger than what is sorted together.
    """
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, nodes, (edges, 2)).astype(random.choice([np.int32, np.int64])).T  # strided
    dst[random.random(edges) < hub] = nodes // 2
    times = None if choices is None else random.choice(
        random.choice([WHOLE, REAL, np.arange(1000)][seed % 3], choices), edges
    )  # fmt: skip
    data = {
        "weight": random.random((edges, 3)).astype(np.float32)[:, 1],
        "kind": random.integers(0, 9, edges).astype(np.int8),
        "wide": random.integers(0, 9, (edges, 5)).astype(np.int16)[::-1],
    }
    own = random.integers(0, 1 << 40, edges) if random.random() < 0.5 else None
    sizes, given = SortSizes(chunk, chunk, buckets, 8, 1, columns, runs, resident, 0), {"nodes": nodes, "edge_ids": own}
    with tempfile.TemporaryDirectory() as folder:
        data_given = dataset(src, dst, times, **given, **data)
        made = build_graph(data_given, Path(folder) / "g", edge_ids=True, sizes=sizes, threads=threads)
        check(made, src, dst, times, own, **data)


def test_lists_that_come_by_destination(tmp_path):
    """Lists are sorted too, and those in order already have the same bytes with times as without."""
    random = np.random.default_rng(0)
    dst, src, times = np.sort(random.integers(0, 50, 900)), random.integers(0, 50, 900), random.integers(0, 9, 900)
    indptr = np.append(0, np.cumsum(np.bincount(dst, minlength=50)))
    check(build_graph(dataset(src, ColumnIds(indptr, 4), times), tmp_path / "g", edge_ids=True), src, dst, times)
    ordered = np.sort(times)
    for claimed in (False, True):
        data = dataset(src, ColumnIds(indptr, 4), ordered, is_sorted=claimed)
        made = build_graph(data, tmp_path / f"g{claimed}", edge_ids=True)
        np.testing.assert_array_equal(made.csc()[1], src)


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    """In the middle of a list that is cut by time, too."""
    random = np.random.default_rng(2)
    src, dst, times = random.integers(0, 50, (3, 3000))
    dst[500:2500] = 25
    sizes = SortSizes(100, 100, 8, 8, 1, 8, 8, 0.5, 0)
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1024)
    append, appended = FileWriter.append, []

    def stop(self, *args):
        appended.append(args)
        if len(appended) in (60, 200):
            raise KeyboardInterrupt
        append(self, *args)

    monkeypatch.setattr(FileWriter, "append", stop)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            build_graph(dataset(src, dst, times), tmp_path / "g", edge_ids=True, sizes=sizes)
    check(build_graph(dataset(src, dst, times), tmp_path / "g", edge_ids=True, sizes=sizes), src, dst, times)
    assert len(appended) > 300


@pytest.mark.parametrize("chunk", [2, 3, 1000])  # chunks smaller than a list, and all at once
def test_a_wrong_claim_names_list_and_entry(tmp_path, chunk):
    src, dst = np.zeros(12, np.int64), np.array([7, 3] * 6)
    times = np.array([1, 1, 2, 5, 3, 4, 5, 6, 7, 8, 9, 10])
    sizes = SortSizes(chunk, chunk, 8, 8, 1, 8, 8, 0, 0)
    with pytest.raises(InputError, match=r"node:to:node: .* entry 2 of the list of node 3 has time 4 after 5; omit"):
        build_graph(dataset(src, dst, times, is_sorted=True), tmp_path / "g", sizes=sizes)
    lists_of_one = dataset(src[:2], dst[:2][::-1], times[2:0:-1], is_sorted=True)
    build_graph(lists_of_one, tmp_path / "h", sizes=sizes)  # times fall from one list to the next, in none


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.just(0), max_size=40)), st.sampled_from([1, 2, 5]))
def test_kernel(lists, threads):
    keys = np.array([key for one in lists for key in one], np.int64)
    indptr = np.cumsum([0, *map(len, lists)])
    expected = np.lexsort((keys, np.repeat(np.arange(len(lists)), np.diff(indptr))))
    np.testing.assert_array_equal(native.order_lists(keys, indptr, threads), expected)
