"""Splits of a GPU's memory, and scores of edge rows, against slow, obvious judges that try every combination."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.errors import InputError
from tiering.formats.adjacency_prefix import AdjacencyPrefix, ListBytes
from tiering.layout import cost_model
from tiering.layout.adjacency_cache import HOST, gpu_budget, plan_split
from tiering.layout.cost_model import AccessCosts, AdjacencyLists, EdgeScores, LowerTiers, split_memory
from tiering.layout.tiers import RankedTable, parse_capacities, plan_tiers
from tiering.text.units import Size

AUTO = Size("auto")
FANOUT = 3


def table(name, scores, row_bytes=100):
    return RankedTable(name, len(scores), row_bytes, np.array(scores, np.float64))


def adjacency(name, degrees, reads, index_bytes=4):
    indptr, values = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), np.array(reads, np.float64)

    def entries(lengths):
        return np.minimum(lengths, FANOUT).astype(np.float64)

    return AdjacencyLists(name, indptr, ListBytes(index_bytes), lambda begin, end: values[begin:end], entries)


def list_bytes(lists, columns):
    return 8 * (columns + 1) + int(lists.indptr[columns]) * lists.size.index if columns else 0


def list_seconds(lists, columns, costs):
    degrees = np.diff(lists.indptr)
    each = costs.list_seconds + costs.neighbour_seconds * np.minimum(degrees, FANOUT)
    return float((lists.reads(0, degrees.size) * each)[:columns].sum())


def feature_seconds(tables, budget, costs, lower=HOST):
    """Walk the common line row by row, with a gpu tier of so many bytes and without; what the first saves."""
    line = sorted(
        (-t.scores[rank] / t.row_bytes, index, rank) for index, t in enumerate(tables) for rank in range(t.rows)
    )

    def rows_in(nbytes):
        sizes = np.cumsum([tables[index].row_bytes for _, index, _ in line])
        return int(np.searchsorted(sizes, nbytes, side="right"))

    def worth(gpu):
        total, shared = 0.0, gpu + lower.peer_bytes
        ends = rows_in(gpu), rows_in(shared), rows_in(shared + (lower.cpu_bytes or 0))
        for place, (_, index, rank) in enumerate(line):
            accesses, row_bytes = float(tables[index].scores[rank]), tables[index].row_bytes
            share = 1 if place < ends[0] else costs.peer_share if place < ends[1] else 0
            total += accesses * share * costs.feature(row_bytes)
            if lower.cpu_bytes is not None and place < ends[2]:
                reads = -(-(row_bytes if row_bytes <= 512 else -(-row_bytes // 512) * 512) // 4096)
                total += accesses * reads * costs.ssd_seconds / lower.ssds
        return total

    return worth(budget) - worth(0)


def combinations(tables, lists, budget, costs, lower=HOST):
    """Seconds saved by every combination of prefixes of lists that fits, with the rows that fit beside it."""
    found = []
    for columns in product(*(range(each.columns + 1) for each in lists)):
        left = budget - sum(list_bytes(each, count) for each, count in zip(lists, columns, strict=True))
        if left >= 0:
            saved = sum(list_seconds(each, count, costs) for each, count in zip(lists, columns, strict=True))
            found.append(saved + feature_seconds(tables, left, costs, lower))
    return found


def largest_piece(lists, costs):
    """Seconds saved by the largest piece between corners of the upper concave hull, walked corner by corner."""
    points = [(list_bytes(lists, c), list_seconds(lists, c, costs)) for c in range(lists.columns + 1)]
    at, largest = 0, 0.0
    while at < lists.columns:
        slopes = [(y - points[at][1]) / (x - points[at][0]) for x, y in points[at + 1 :]]
        corner = at + 1 + slopes.index(max(slopes))
        largest, at = max(largest, points[corner][1] - points[at][1]), corner
    return largest


def check_figures(found, tables, lists, budget, costs, lower=HOST):
    """What a split says of itself is what its prefixes hold and are worth."""
    assert found.budget == budget >= found.feature_bytes + found.adjacency_bytes
    for each in lists:
        prefix = found.lists.get(each.relation, AdjacencyPrefix(0, 0, 0))
        assert prefix.edges == each.indptr[prefix.columns]
        assert prefix.bytes == list_bytes(each, prefix.columns)
    held = [found.lists[each.relation].columns if each.relation in found.lists else 0 for each in lists]
    saved = sum(list_seconds(each, count, costs) for each, count in zip(lists, held, strict=True))
    assert found.adjacency.saved == pytest.approx(saved)
    reads = [each.reads(0, each.columns) for each in lists]
    assert found.adjacency.reads == pytest.approx(sum(values.sum() for values in reads))
    assert found.adjacency.served == pytest.approx(sum(v[:n].sum() for v, n in zip(reads, held, strict=True)))
    left = budget - found.adjacency_bytes
    assert found.features.saved == pytest.approx(feature_seconds(tables, left, costs, lower), abs=1e-15)
    assert found.features.seconds == pytest.approx(feature_seconds(tables, 1 << 40, costs, lower), abs=1e-15)
    assert found.features.served == pytest.approx(sum(t.scores[: found.rows[t.node_type]].sum() for t in tables))
    assert found.feature_bytes == sum(found.rows[t.node_type] * t.row_bytes for t in tables)


VALUES = st.sampled_from([0.0, 0.0, 1.0, 2.0, 7.0]) | st.floats(0, 1000)
COSTS = st.builds(AccessCosts, *(st.sampled_from([0.0, 1e-9, 3e-9, 1e-7]) for _ in range(4)))
TIERS_BEHIND = st.builds(
    LowerTiers, st.sampled_from([0, 0, 30, 200]), st.sampled_from([None, 0, 50, 400]), st.integers(1, 3)
)


@st.composite
def line_of_tables(draw):
    sizes = [draw(st.sampled_from([1, 4, 16, 100])) for _ in range(draw(st.integers(0, 3)))]
    return [table(f"t{k}", sorted(draw(st.lists(VALUES, max_size=9)), reverse=True), s) for k, s in enumerate(sizes)]


def relations(most, columns):
    """Lists whose reads do not fall with the rank, as where the order is by feature score."""
    pair = st.tuples(st.integers(0, 12), VALUES)
    one = st.tuples(st.lists(pair, max_size=columns), st.sampled_from([4, 8]))
    return st.lists(one, min_size=1, max_size=most).map(
        lambda drawn: [
            adjacency(f"r{k}", [d for d, _ in pairs], [v for _, v in pairs], size)
            for k, (pairs, size) in enumerate(drawn)
        ]
    )


def whole(tables, lists):
    return sum(t.rows * t.row_bytes for t in tables) + sum(each.bytes for each in lists)


@pytest.mark.slow
@settings(max_examples=300)
@given(tables=line_of_tables(), lists=relations(1, 14), share=st.floats(0.01, 1), costs=COSTS, lower=TIERS_BEHIND)
def test_one_relation_no_pair_of_prefixes_is_better(tables, lists, share, costs, lower):
    budget = int(whole(tables, lists) * share)
    found = plan_split(AUTO, budget, tables, lists, costs, lower)
    check_figures(found, tables, lists, budget, costs, lower)
    assert found.saved == pytest.approx(max(combinations(tables, lists, budget, costs, lower)), abs=1e-15)


def test_rows_that_would_fall_to_ssd_are_worth_more():
    """A list of 28 bytes that beats one row of 10 beside host memory does not where that row pushes one onto an SSD."""
    rows, lists = [table("t", [5, 4, 3, 2, 1], 10)], [adjacency("r", [3], [4])]
    costs = AccessCosts(1e-9, 0, 5e-9, 0)
    assert plan_split(AUTO, 30, rows, lists, costs).adjacency_bytes == 28
    on_ssd = plan_split(AUTO, 30, rows, lists, costs, LowerTiers(0, 10, 1))
    assert on_ssd.adjacency_bytes == 0 and on_ssd.rows == {"t": 3}
    # Three rows on the GPU; the host's row is the fourth instead of the first.
    assert on_ssd.features.saved == pytest.approx(12e-9 + (14 - 5) * 1e-6)
    assert plan_split(AUTO, 30, rows, lists, costs, LowerTiers(0, 50, 1)).adjacency_bytes == 28


def test_tiers_behind_as_sizes():
    def of(*sizes, images=0):
        gpu, peer, cpu = sizes
        return LowerTiers.of(parse_capacities(gpu, peer, cpu, ssd=bool(images)), 1000, images)

    assert of("1", None, None) == LowerTiers()
    assert of("1", "2x5%", "auto") == LowerTiers(100)
    assert of("1", "4x30", "10%", images=2) == LowerTiers(120, 100, 2)
    assert of("1", None, None, images=3) == LowerTiers(0, 0, 3)
    assert of("1", None, "auto", images=3) == LowerTiers()
    assert of("1", "2xauto", "10%", images=1).peer_bytes == 1000


@settings(max_examples=200)
@given(tables=line_of_tables(), lists=relations(3, 5), share=st.floats(0.01, 1), costs=COSTS)
def test_several_relations_miss_a_piece_at_the_most(tables, lists, share, costs):
    budget = int(whole(tables, lists) * share)
    found = plan_split(AUTO, budget, tables, lists, costs)
    check_figures(found, tables, lists, budget, costs)
    best = max(combinations(tables, lists, budget, costs))
    assert found.saved >= best - max(largest_piece(each, costs) for each in lists) - 1e-9 * best
    assert found.saved <= best * (1 + 1e-9)


@pytest.mark.parametrize("points", [1, 7, 64])
@pytest.mark.parametrize("relations", [1, 3])
def test_blocks_of_many_columns(points, relations, monkeypatch):
    """Whole blocks cost a little of the result, none of the figures."""
    random = np.random.default_rng(points)
    tables = [table(f"t{k}", sorted(random.exponential(size=500), reverse=True), 64 << k) for k in range(2)]
    lists = [
        adjacency(f"r{k}", random.integers(0, 30, 700).tolist(), np.sort(random.exponential(size=700))[::-1].tolist())
        for k in range(relations)
    ]
    costs, budget = AccessCosts(), whole(tables, lists) // 3
    exact = plan_split(AUTO, budget, tables, lists, costs)
    monkeypatch.setattr(cost_model, "BLOCKS", points)
    found = plan_split(AUTO, budget, tables, lists, costs)
    check_figures(found, tables, lists, budget, costs)
    assert found.saved <= exact.saved * (1 + 1e-12)
    assert found.saved >= exact.saved * (0.98 if points == 64 else 0.5)


def test_pieces_read_do_not_matter(monkeypatch):
    random = np.random.default_rng(3)
    tables = [table("t", sorted(random.exponential(size=333), reverse=True), 50)]
    lists = [adjacency("r", random.integers(0, 9, 401).tolist(), random.exponential(size=401).tolist())]
    expected = plan_split(AUTO, 9000, tables, lists, AccessCosts())
    for chunk in (1, 16, 100):
        monkeypatch.setattr(cost_model, "CHUNK", chunk)
        assert plan_split(AUTO, 9000, tables, lists, AccessCosts()) == expected


def test_worked_by_hand():
    """Rows of 100 B save 100 ns a read, lists 10 ns and 1 ns a neighbor, of 3 at the most."""
    costs = AccessCosts(0.0, 1e-9, 10e-9, 1e-9)
    rows = [table("node", [5, 4, 3])]  # 500, 400, 300 ns
    lists = [adjacency("a", [5, 1, 0], [10, 30, 1])]  # 130 ns for 36 B, 330 ns for 12 B, 10 ns for 8 B
    found = plan_split(AUTO, 200, rows, lists, costs)
    # 200 B: two rows 900; one row and two lists (48 B) 500 + 460; one row and all lists (56 B) 970.
    assert found.saved == pytest.approx(970e-9)
    assert found.lists == {"a": AdjacencyPrefix(3, 6, 56)}
    assert found.rows == {"node": 1}
    assert str(found) == (
        "adjacency cache auto: of 200 B, adjacency lists take 56 B and serve 100.0 % of the list reads, feature rows "
        "take 100 B and serve 41.7 % of the feature reads; saved per epoch: 970 ns of 1.67 us"
    )
    third = plan_split(Size("22%", fraction=0.22), 200, rows, lists, costs)  # 44 B: the first list, 36 B
    assert third.lists == {"a": AdjacencyPrefix(1, 5, 36)} and third.rows == {"node": 1}
    nothing = plan_split(Size("0%", fraction=0.0), 200, rows, lists, costs)
    assert nothing.lists == {} and nothing.rows == {"node": 2} and nothing.adjacency.hit_rate == 0


def test_relations_compete_by_seconds_per_byte():
    costs = AccessCosts(0.0, 0.0, 1e-9, 0.0)
    cold_first = adjacency("rising", [0, 0, 0], [0, 0, 90])  # 90 for 32 B, but only all together
    falling = adjacency("falling", [2, 2], [20, 16])  # 20 for 24 B, 16 for 16 B: 36 for 40 B
    found = plan_split(AUTO, 60, [], [falling, cold_first], costs)
    assert found.lists == {"rising": AdjacencyPrefix(3, 0, 32), "falling": AdjacencyPrefix(1, 2, 24)}
    assert plan_split(AUTO, 31, [], [falling, cold_first], costs).lists == {}  # the path begins with `rising`


def test_the_tiers_take_what_the_lists_leave():
    rows = [table("a", [9, 8, 1], 10), table("b", [5, 4], 20)]
    found = plan_split(AUTO, 45, rows, [adjacency("r", [3], [100])], AccessCosts())
    assert found.adjacency_bytes == 28
    capacities = replace(parse_capacities(45, cpu="auto"), gpu=found.gpu)
    assert {t: ranges["gpu"] for t, ranges in plan_tiers(rows, capacities).items()} == {"a": (0, 1), "b": (0, 0)}
    assert plan_split(AUTO, 28, rows, [adjacency("r", [3], [100])], AccessCosts()).gpu is None


def test_memory_does_not_grow_with_the_graph(peak_memory):
    """3 M rows and two relations of as many lists; the arrays themselves are there before."""
    count = 3_000_000
    values = np.linspace(1, 0, count)
    indptr = np.arange(count + 1, dtype=np.int64) * 5
    lists = [
        AdjacencyLists(f"r{k}", indptr, ListBytes(4), lambda b, e: values[b:e].copy(), lambda d: d * 1.0)
        for k in range(2)
    ]
    rows, budget = [RankedTable("t", count, 64, values)], 50_000_000
    with peak_memory() as first:
        pass
    with peak_memory() as peak:
        found = plan_split(AUTO, budget, rows, lists, AccessCosts())
    assert peak.bytes - first.bytes <= split_memory(count, 2 * count) < 80 << 20
    for share in (0, 0.5, 0.9, 1):
        fixed = plan_split(Size("share", fraction=share), budget, rows, lists, AccessCosts())
        assert found.saved >= fixed.saved * (1 - 1e-5)  # whole blocks


def test_what_is_divided():
    rows, lists = [table("t", [1, 1], 100)], [adjacency("r", [4], [1])]
    assert gpu_budget(Size("50%", fraction=0.5), rows, lists) == 100
    assert gpu_budget(AUTO, rows, lists) == 232
    assert gpu_budget(Size("232", bytes=232), rows, lists) == 232
    with pytest.raises(InputError, match=r"gpu: 233 is more than all feature data and adjacency lists \(232 B\)"):
        gpu_budget(Size("233", bytes=233), rows, lists)


def best_runs(reads, degrees, fanout):
    """Per row, by position: the most reads per row of whole lists from its own on, and no more than rows before it."""
    drawn = [count * min(fanout, degree) for count, degree in zip(reads, degrees, strict=True)]
    rows = []
    for first, degree in enumerate(degrees):
        sums = [(sum(drawn[first:end]), sum(degrees[first:end])) for end in range(first + 1, len(degrees) + 1)]
        best = max((Fraction(value, size) for value, size in sums if size), default=Fraction(0))
        rows += [min([best, *rows[-1:]])] * degree
    return rows


@given(lists=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=12), fanout=st.integers(1, 4))
def test_a_row_counts_with_the_best_run_of_lists_that_begins_at_its_own(lists, fanout):
    reads, degrees = [[entry[k] for entry in lists] for k in (0, 1)]
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)]).astype(np.int64)
    values = np.array(reads, np.float64)
    scores = EdgeScores.of(indptr, lambda begin, end: values[begin:end], lambda d: np.minimum(d, fanout).astype(float))
    expected = [float(rate) for rate in best_runs(reads, degrees, fanout)]
    np.testing.assert_allclose(scores[:], expected, rtol=1e-12)
    np.testing.assert_array_equal([scores[row] for row in range(len(expected))], scores[:])
    np.testing.assert_array_equal(scores[1::3], scores[:][1::3])
    assert (np.diff(scores[:]) <= 0).all()


def test_many_lists_are_taken_in_blocks():
    random = np.random.default_rng(0)
    degrees, reads = random.integers(0, 6, 1000), np.sort(random.random(1000))[::-1]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    whole, blocks = (
        EdgeScores.of(indptr, lambda begin, end: reads[begin:end], lambda d: d.astype(float), count)
        for count in (1000, 50)
    )
    assert len(blocks.ends) == 50
    assert blocks.ends[-1] == whole.ends[-1] == indptr[-1]
    # Blocks of 20 lists: each row counts with a mean of its block.
    np.testing.assert_allclose(blocks[:], whole[:], atol=0.05)
    assert (np.diff(blocks[:]) <= 0).all()
