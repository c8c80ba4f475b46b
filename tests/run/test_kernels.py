"""Kernels of tasks: keys by part beside numpy's sorting, and sums by blocks beside the sweeps of one process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import native
from tiering.errors import RefusedError
from tiering.run.grid import equal_bounds

AnyArray = npt.NDArray[Any]
DAMPING = 0.85


def sorted_keys(keys: AnyArray, bounds: AnyArray) -> tuple[AnyArray, AnyArray]:
    """What `native.partition` is to return, by a stable sort of the parts."""
    part = np.searchsorted(bounds, keys, "right") - 1
    return np.argsort(part, kind="stable"), np.bincount(part, minlength=bounds.size - 1)


def check_partition(keys: AnyArray, bounds: AnyArray) -> None:
    expected_order, expected_counts = sorted_keys(keys, bounds)
    for threads in (1, 2, 5):
        order, counts = native.partition(keys, bounds, threads)
        assert (order.dtype, counts.dtype) == (np.uint32, np.int64)
        assert np.array_equal(order, expected_order) and np.array_equal(counts, expected_counts)


@settings(max_examples=60)
@given(
    cuts=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=40).filter(lambda cuts: len(set(cuts)) > 1),
    dtype=st.sampled_from([np.int32, np.int64]), size=st.sampled_from([0, 1, 7, 200]), seed=st.integers(0, 99),
)  # fmt: skip
def test_partition_equals_a_stable_sort(cuts: list[int], dtype: type, size: int, seed: int) -> None:
    bounds = np.sort(np.array(cuts, np.int64))
    random = np.random.default_rng(seed)
    near = np.clip(random.choice(bounds, size) + random.integers(-1, 2, size), bounds[0], bounds[-1] - 1)
    far = random.integers(bounds[0], bounds[-1], size)
    check_partition(np.where(random.random(size) < 0.5, near, far).astype(dtype), bounds)


@pytest.mark.parametrize("parts", [1, 64, 65536])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_partition_of_many_keys(parts: int, dtype: type) -> None:
    """Keys for several threads; ranges are even, or most of them are close together."""
    random = np.random.default_rng(parts)
    keys = random.integers(0, 10**6, 100_000).astype(dtype)
    check_partition(keys, np.array(equal_bounds(10**6, parts), np.int64))
    check_partition(keys, np.concatenate([[0], np.sort(random.random(parts - 1) ** 5 * 10**6), [10**6]]).astype(int))
    check_partition(np.sort(keys), np.array(equal_bounds(10**6, parts), np.int64))


def test_partition_names_the_first_key_outside() -> None:
    keys, bounds = np.full(100_000, 7, np.int32), np.array([5, 6, 8], np.int64)
    keys[[70_000, 99_999]] = 8, 4
    for threads in (1, 2, 5):
        with pytest.raises(RefusedError, match=r"keys\[70000\] is 8, outside the ranges of bounds, 5\.\.7"):
            native.partition(keys, bounds, threads)
    with pytest.raises(RefusedError, match=r"bounds\[1\]: expected 5 or more, as before it, found 4"):
        native.partition(keys, np.array([5, 4, 8], np.int64), 1)
    with pytest.raises(RefusedError, match="keys: expected contiguous 1-D int32 or int64 array"):
        native.partition(keys.astype(np.uint32), bounds, 1)
    with pytest.raises(RefusedError, match="keys: expected contiguous"):
        native.partition(keys[::2], bounds, 1)
    with pytest.raises(RefusedError, match="threads: expected at least 1"):
        native.partition(keys, bounds, 0)


class Graph:
    """Edges of relations between types, as CSC."""

    def __init__(self, num_nodes: list[int], relations: list[tuple[int, int, AnyArray, AnyArray]]) -> None:
        """A relation is its types, and the source and destination of each edge."""
        self.num_nodes = num_nodes
        self.relations = []
        for src_type, dst_type, src, dst in relations:
            indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_nodes[dst_type]))])
            self.relations.append((src_type, dst_type, indptr, src[np.argsort(dst, kind="stable")].astype(np.int32)))


class Tasks:
    """Sweeps over a graph by tasks that own ranges of bins, from blocks that numpy cut out of ranges of columns."""

    def __init__(self, graph: Graph, column_ranges: int, bin_ranges: int) -> None:
        self.graph, self.column_ranges, self.bin_ranges = graph, column_ranges, bin_ranges
        self.shifts = [native.source_bin_shift(n) for n in graph.num_nodes]
        self.bins = [
            sum(
                (
                    np.bincount(indices >> shift, minlength=-(-n >> shift))
                    for of_type, _, _, indices in graph.relations
                    if of_type == t
                ),
                np.zeros(-(-n >> shift), np.int64),
            )
            for t, (n, shift) in enumerate(zip(graph.num_nodes, self.shifts, strict=True))
        ]
        self.most_edges = max(int(edges.max()) for edges in self.bins)
        self._blocks: list[list[tuple[AnyArray, AnyArray, int, int]]] = [
            [self._block(r, high, part) for high in (True, False) for part in range(column_ranges)]
            for r in range(len(graph.relations))
        ]
        self.low_edges = sum(block[0].size for blocks in self._blocks for block in blocks[column_ranges:])

    def _block(self, number: int, high: bool, part: int) -> tuple[AnyArray, AnyArray, int, int]:
        """Sources and columns of the edges of a range of columns that are of a kind, and which columns it has."""
        src_type, _, indptr, indices = self.graph.relations[number]
        columns = indptr.size - 1
        begin, end = equal_bounds(columns, self.column_ranges)[part : part + 2]
        degrees = np.diff(indptr[begin : end + 1])
        threshold = native.high_column_degree(columns, self.graph.num_nodes[src_type])
        wanted = np.repeat((degrees >= threshold) == high, degrees)
        sources = indices[indptr[begin] : indptr[end]][wanted]
        order = np.argsort(sources >> self.shifts[src_type], kind="stable")
        column = np.repeat(np.arange(end - begin), degrees)[wanted]
        return sources[order], column[order].astype(np.uint32), begin, end

    def sums(self, values: list[AnyArray | None], threads: int = 1) -> list[AnyArray]:
        """Sums over the out-edges of all nodes; `values`: of the columns of each relation, if it adds any."""
        sums = [np.empty(0)] * len(self.graph.num_nodes)
        for t, (count, shift) in enumerate(zip(self.graph.num_nodes, self.shifts, strict=True)):
            cuts = equal_bounds(self.bins[t].size, self.bin_ranges)
            for low, high in pairwise(cuts):
                first, end = min(low << shift, count), min(high << shift, count)
                sums[t] = np.append(sums[t], self._sums_of(t, first, end, self.bins[t][low:high], values, threads))
        return sums

    def _sums_of(
        self, t: int, first: int, end: int, own: AnyArray, values: list[AnyArray | None], threads: int
    ) -> AnyArray:
        all_edges = sum(int(edges.sum()) for edges in self.bins)
        kernel = native.BlockSums(end - first, self.shifts[t], own, all_edges)
        for (src_type, *_), blocks, value in zip(self.graph.relations, self._blocks, values, strict=True):
            for sources, columns, begin, stop in blocks if src_type == t else []:
                ends = [first >> self.shifts[t], -(-end >> self.shifts[t])]
                at, behind = np.searchsorted(sources >> self.shifts[t], ends)
                local = (sources[at:behind] - first).astype(np.uint32)
                kernel.add(local, columns[at:behind], None if value is None else value[begin:stop], threads)
        return kernel.take()

    def pagerank(self, start: list[AnyArray], teleport: list[AnyArray], sweeps: int) -> tuple[list[AnyArray], float]:
        """What `native.reverse_pagerank` returns: scores, and the L1 change of the last sweep."""
        scores, change = start, 0.0
        for sweep in range(sweeps):
            values = []
            for _, dst_type, indptr, _ in self.graph.relations:
                degrees = np.diff(indptr)
                values.append(np.divide(scores[dst_type], degrees, out=np.zeros(degrees.size), where=degrees > 0))
            sums = self.sums(list(values), threads=1 + sweep)
            after = [restart + DAMPING * own for restart, own in zip(teleport, sums, strict=True)]
            change = 0.0
            for new, old, shift in zip(after, scores, self.shifts, strict=True):
                for at in range(0, new.size, 1 << shift):
                    change += float(np.abs(new - old)[at : at + (1 << shift)].cumsum()[-1])
            scores = after
        return scores, change


def skewed(random: np.random.Generator, nodes: int, edges: int) -> AnyArray:
    return (random.random(edges) ** 3 * nodes).astype(np.int64)


def one_type() -> Graph:
    """Duplicate edges, nodes without any, and a source of which the edges make a bin of several pieces."""
    random, nodes = np.random.default_rng(1), 140_000  # more columns than are all of high degree
    hub = 1_300_000
    src = np.concatenate([skewed(random, nodes // 2, 150_000), np.full(hub, 777)])
    dst = np.concatenate([skewed(random, nodes - 5000, 150_000), random.integers(0, nodes - 5000, hub)])
    src[:500], dst[:500] = src[500:1000], dst[500:1000]
    return Graph([nodes], [(0, 0, src, dst)])


def two_types() -> Graph:
    """Two relations out of one type and two into another, one without edges, and a type of which no node has any."""
    random, sizes = np.random.default_rng(2), [900, 150_000, 3]
    ends = [(0, 1, 40_000), (1, 1, 60_000), (1, 0, 50_000), (0, 0, 0)]
    return Graph(sizes, [(s, d, skewed(random, sizes[s], e), skewed(random, sizes[d], e)) for s, d, e in ends])


@pytest.fixture(scope="module", params=[one_type, two_types])
def swept(request: pytest.FixtureRequest) -> tuple[Graph, list[AnyArray], list[AnyArray], dict[int, Any]]:
    """A graph, where scores start, what they restart with, and what one process makes of them, by sweeps."""
    graph: Graph = request.param()
    random = np.random.default_rng(7)
    start, teleport = ([random.random(n) for n in graph.num_nodes] for _ in range(2))
    alone = {
        sweeps: native.reverse_pagerank(
            graph.relations, graph.num_nodes, start, teleport, damping=DAMPING, max_sweeps=sweeps, threads=2
        )
        for sweeps in (1, 3)
    }
    return graph, start, teleport, alone


@pytest.mark.parametrize(("column_ranges", "bin_ranges", "sweeps"), [(1, 1, 1), (3, 2, 3), (8, 5, 1), (1, 5, 3)])
def test_sums_by_blocks_are_those_of_one_process(swept: Any, column_ranges: int, bin_ranges: int, sweeps: int) -> None:
    graph, start, teleport, alone = swept
    tasks = Tasks(graph, column_ranges, bin_ranges)
    scores, change = tasks.pagerank(start, teleport, sweeps)
    expected, _, expected_change = alone[sweeps]
    assert [a.tobytes() for a in scores] == [a.tobytes() for a in expected]
    assert change == expected_change


def test_graphs_of_these_tests_reach_every_path() -> None:
    """Columns of both kinds, a bin of more than one piece, and sums that differ where the order does."""
    tasks = Tasks(one_type(), 1, 1)
    assert 0 < tasks.low_edges < tasks.bins[0].sum() and tasks.most_edges > 2**20
    src_type, _, indptr, indices = tasks.graph.relations[0]
    values = np.random.default_rng(3).random(indptr.size - 1)
    plain = np.bincount(indices, np.repeat(values, np.diff(indptr)), minlength=tasks.graph.num_nodes[src_type])
    sums = tasks.sums([values])[0]
    np.testing.assert_allclose(sums, plain, rtol=1e-11)
    assert sums.tobytes() != plain.tobytes()


def test_edges_that_add_nothing_count_for_where_pieces_end() -> None:
    """A hop of vip of which one relation has fanout 0: as if its values were 0, which adding does not change."""
    random, nodes = np.random.default_rng(4), 70_000
    ends = [
        (np.where(np.arange(edges) % 9 < 8, 5, random.integers(0, nodes, edges)), random.integers(0, nodes, edges))
        for edges in (400_000, 1_000_000)
    ]
    tasks = Tasks(Graph([nodes], [(0, 0, *each) for each in ends]), 2, 1)
    values = random.random(nodes)
    for given_values in ([None, values], [values, None]):
        zeros: list[AnyArray | None] = [np.zeros(nodes) if value is None else value for value in given_values]
        assert tasks.sums(given_values)[0].tobytes() == tasks.sums(zeros)[0].tobytes()
    alone = Tasks(Graph([nodes], [(0, 0, *ends[1])]), 2, 1)
    assert alone.sums([values])[0].tobytes() != tasks.sums([None, values])[0].tobytes()


def test_sums_refuse_what_is_no_block() -> None:
    own, values = np.array([2, 1], np.int64), np.ones(2)

    def add(sources: list[int], columns: list[int]) -> Any:
        kernel = native.BlockSums(5, 2, own, 3)
        kernel.add(np.array(sources, np.uint32), np.array(columns, np.uint32), values)
        return kernel

    with pytest.raises(RefusedError, match=r"sources\[0\] is 4: expected edges sorted by bin"):
        add([4, 0, 1], [0, 0, 1])
    with pytest.raises(RefusedError, match=r"columns\[1\] is 2, but there are 2 values"):
        add([0, 1], [1, 2])
    with pytest.raises(RefusedError, match="bin 1: expected 1 edges, found 0"):
        add([0, 1], [0, 1]).take()
    kernel = add([0, 1, 4], [0, 1, 1])
    assert kernel.take().tolist() == [1, 1, 0, 0, 1]
    with pytest.raises(RefusedError, match="taken already"):
        kernel.take()
