"""Batches in time, disjoint batches and subgraph types, against a slow judge and worked examples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chances import LEAST, p_value, rows
from temporal_oracle import Rules, TimedGraph, induced, judge

from tiering.errors import InputError
from tiering.sampling import NeighborSampler, SamplingOptions, Subgraphs, make_sampler
from tiering.sampling.subgraphs import both_ways

RELATIONS = [("a", "x", "b"), ("b", "y", "a"), ("a", "z", "a")]


def random_case(k):
    """A graph of two types and three relations, and how it is asked: ties, duplicates, empty lists, all newer."""
    rng = np.random.default_rng(k)
    nodes = {t: int(rng.integers(1, 7)) for t in "ab"}
    edges = {}
    for src, name, dst in RELATIONS:
        count = int(rng.integers(0, 18))
        edges[src, name, dst] = np.stack([rng.integers(0, nodes[t], count) for t in (src, dst)])
    scale = np.int64 if rng.integers(0, 2) else lambda values: np.asarray(values) / 2

    def times(count):
        return scale(rng.integers(0, 6, count) + (100 if rng.integers(0, 12) == 0 else 0))

    kind = ["edges", "nodes", "none"][int(rng.integers(0, 3))]
    some = {r: times(edges[r].shape[1]) for r in RELATIONS[: int(rng.integers(1, 4))]}
    own = {t: times(nodes[t]) for t in "ab"[: int(rng.integers(1, 3))]}
    graph = TimedGraph(nodes, edges, {"edges": some, "nodes": own}.get(kind, {}), kind)
    seeds = {"a": rng.integers(0, nodes["a"], 3), "b": rng.integers(0, nodes["b"], int(rng.integers(0, 3)))}
    timed = kind != "none"
    window = [None, 0, 2][int(rng.integers(0, 3))] if timed else None
    clocks = {t: scale(rng.integers(-1, 7, len(v))) for t, v in seeds.items()} if timed else None
    fanouts = [{r: int(rng.choice([-1, 0, 1, 2, 3])) for r in RELATIONS} for _ in range(2)]
    rules = Rules(
        [[hop[r] for r in RELATIONS] for hop in fanouts], ["all", "new"][int(rng.integers(0, 2))],
        ["uniform", "replacement"][int(rng.integers(0, 2))], ["uniform", "last"][int(rng.integers(0, 2))], window,
        clocks=[] if clocks is None else np.concatenate([clocks[t] for t in "ab"]).tolist(),
    )  # fmt: skip
    how = {"disjoint": True, "time": "when" if timed else None, "time_window": window}
    how["temporal_strategy"] = rules.strategy
    return graph, seeds, clocks, rules, fanouts, how


def sampler_of(graph, rules, fanouts, how, **more):
    options = {"frontier": rules.frontier, "rule": rules.rule, "seed": 3, **more}
    return NeighborSampler(graph, fanouts, subgraphs=Subgraphs(**how), **options)


@pytest.mark.parametrize("part", range(4))
def test_random_batches_are_ones_that_chance_may_draw(part):
    for k in range(250 * part, 250 * (part + 1)):
        graph, seeds, clocks, rules, fanouts, how = random_case(k)
        batch = sampler_of(graph, rules, fanouts, how).sample(seeds, batch=k, positions=True, seed_time=clocks)
        judge(graph, batch, seeds, rules)
        all_edges = sampler_of(graph, rules, fanouts, {**how, "subgraph_type": "induced"})
        got = all_edges.sample(seeds, batch=k, positions=True, seed_time=clocks)
        assert {t: v.tolist() for t, v in got.nodes.items()} == {t: v.tolist() for t, v in batch.nodes.items()}
        for relation, expected in induced(graph, batch, rules).items():
            edges = got.hops[0][relation]
            assert list(zip(edges.src.tolist(), edges.dst.tolist(), edges.positions.tolist(), strict=True)) == expected


TO = ("n", "to", "n")
SIX = np.array([[1, 2, 3, 4, 0, 5, 3, 3, 2, 5, 0], [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4]])
SIX_TIMES = np.array([3, 1, 3, 5, 2, 4, 1, 2, 2, 6, 0])
SIX_NODES = np.array([0, 3, 1, 3, 5, 6])
# seeds, their times (None: no time; "own": those of nodes), fanouts, options: nodes, instances, (row, col, position)
WHOLE = ([0, 2, 1, 3], [0, 0, 0, 0], [(1, 0, 1), (2, 0, 0), (3, 0, 2)])
EXAMPLES = {
    "1: an equal time is seen": ([0], [3], [-1], {}, *WHOLE),
    "2": ([0], [2], [-1], {}, [0, 2], [0, 0], [(1, 0, 1)]),
    "3": ([0], [0], [-1], {}, [0], [0], []),
    "4: the newest two, the older first": ([0], [3], [2], {"last"}, [0, 1, 3], [0] * 3, [(1, 0, 0), (2, 0, 2)]),
    "5: of a tie the later in the input": ([0], [5], [2], {"last"}, [0, 3, 4], [0] * 3, [(1, 0, 2), (2, 0, 3)]),
    "6": ([0], [4], [1], {"last"}, [0, 3], [0, 0], [(1, 0, 2)]),
    "7": ([0], [3], [-1], {"last"}, *WHOLE),
    "9": ([0], [2], [2], {"replacement"}, [0, 2], [0, 0], [(1, 0, 1), (1, 0, 1)]),
    "10": ([0], [0], [3], {"replacement"}, [0], [0], []),
    "12: the seed's time at every hop": (
        [0], [3], [-1, -1], {}, [0, 2, 1, 3], [0] * 4, [*WHOLE[2], (3, 1, 6), (3, 1, 7), (0, 2, 4), (1, 3, 8)],
    ),
    "13: a seed at two times": (
        [0, 0], [1, 3], [-1], {}, [0, 0, 2, 2, 1, 3], [0, 1, 0, 1, 1, 1], [(2, 0, 1), (3, 1, 1), (4, 1, 0), (5, 1, 2)],
    ),
    "14: disjoint without time": (
        [1, 4], None, [-1], {}, [1, 4, 0, 5, 0], [0, 1, 0, 0, 1], [(2, 0, 4), (3, 0, 5), (4, 1, 10)],
    ),
    "15: window 0": ([0], [3], [-1], {0}, [0, 1, 3], [0] * 3, [(1, 0, 0), (2, 0, 2)]),
    "15: window 2": ([0], [3], [-1], {2}, *WHOLE),
    "15: window 1": ([0], [5], [-1], {1}, [0, 4], [0, 0], [(1, 0, 3)]),
    "16: node time, the seed's own": (
        [4], "own", [-1, -1], {}, [4, 0, 2, 1, 3], [0] * 5, [(1, 0, 10), (2, 1, 1), (3, 1, 0), (4, 1, 2), (0, 1, 3)],
    ),
    "17: the seed's own time is not asked": ([3], "own 2", [-1], {}, [3, 2], [0, 0], [(1, 0, 8)]),
    "21: induced without time": ([2], "shared", [-1], {"induced"}, [2, 3], None, [(1, 0, 6), (1, 0, 7), (0, 1, 8)]),
    "22: induced in time": ([2], [1], [-1], {"induced"}, [2, 3], [0, 0], [(1, 0, 6)]),
    "23: both ways": (
        [0], [3], [2], {"last", "bidirectional"}, [0, 1, 3], [0] * 3, [(1, 0, 0), (2, 0, 2), (0, 1, 0), (0, 2, 2)],
    ),
    "24: parallel edges become one": (
        [3], "shared", [-1, -1], {"bidirectional"}, [3, 2, 5], None, [(1, 0, 8), (2, 0, 9), (0, 1, 6), (0, 2, 9)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name, dtype):
    seeds, when, fanouts, options, nodes, instances, expected = EXAMPLES[name]
    own, timed = isinstance(when, str) and when.startswith("own"), when not in (None, "shared")
    times = {"n": SIX_NODES.astype(dtype)} if own else {TO: SIX_TIMES.astype(dtype)} if timed else {}
    graph = TimedGraph({"n": 6}, {TO: SIX}, times, "nodes" if own else "edges")
    windows = [option for option in options if isinstance(option, int)]
    how = Subgraphs(
        disjoint=when != "shared", time="when" if timed else None, time_window=windows[0] if windows else None,
        temporal_strategy="last" if "last" in options else "uniform",
        subgraph_type=next((t for t in ("induced", "bidirectional") if t in options), "directional"),
    )  # fmt: skip
    rule = "replacement" if "replacement" in options else "uniform"
    sampler = NeighborSampler(graph, fanouts, frontier="new", rule=rule, subgraphs=how)
    given = None if not timed or when == "own" else [2] if own else when
    batch = sampler.sample(seeds, positions=True, seed_time=given)
    assert batch.nodes["n"].tolist() == nodes
    assert (batch.instances["n"].tolist() if batch.instances else None) == instances
    drawn = [hop[TO] for hop in batch.hops]
    found = [
        (*e,) for d in drawn for e in zip(d.src.tolist(), d.dst.tolist(), graph.order[TO][d.positions], strict=True)
    ]
    assert found == expected
    if timed:
        assert batch.seed_time["n"].tolist() == [SIX_NODES[v] for v in seeds] if given is None else list(given)


def test_types_without_times_between():
    """Example 18: users have no times, purchases have; a user sees purchases up to the seed's time."""
    by, made = ("buy", "by", "user"), ("user", "made", "buy")
    edges = {by: [[0, 2, 1], [0, 0, 1]], made: [[0, 1, 0], [0, 1, 2]]}
    graph = TimedGraph({"user": 2, "buy": 3}, edges, {"buy": np.array([1, 2, 5])}, "nodes")
    sampler = NeighborSampler(graph, [-1, -1], frontier="new", subgraphs=Subgraphs(time="when"))
    batch = sampler.sample({"user": [0, 1]}, positions=True, seed_time={"user": [4, 1]})
    assert {t: v.tolist() for t, v in batch.nodes.items()} == {"user": [0, 1], "buy": [0]}
    assert [[e.positions.tolist() for e in hop.values()] for hop in batch.hops] == [[[0], []], [[], [0]]]
    with pytest.raises(InputError, match=r"'user'.*these nodes have no times"):
        sampler.sample({"user": [0, 1]})


def test_an_edge_newer_than_the_seed_is_not_seen():
    """Example 25, where PyG of 2023 returned the edge of time 2 for a seed of time 1."""
    graph = TimedGraph({"n": 3}, {TO: [[1, 0, 1, 1, 2], [0, 1, 2, 0, 0]]}, {TO: np.array([1, 2, 3, 4, 5])})
    assert NeighborSampler(graph, [-1], subgraphs=Subgraphs(time="when")).sample([1], seed_time=[1]).num_edges == 0


def hub():
    """A node with seven in-edges at times 0 to 6, a list of 300 newer ones behind."""
    src = np.concatenate((np.arange(1, 8), np.full(300, 8)))
    return TimedGraph({"n": 9}, {TO: [src, np.zeros(307, int)]}, {TO: np.concatenate((np.arange(7), np.full(300, 50)))})


@pytest.mark.parametrize(("rule", "strategy", "fanout", "clock", "chances"), [
    ("uniform", "uniform", 2, 4, dict.fromkeys(itertools.combinations(range(5), 2), 0.1)),
    ("replacement", "last", 2, 4, dict.fromkeys(itertools.product((3, 4), repeat=2), 0.25)),
])  # fmt: skip
def test_draws_are_even_among_visible_edges_and_independent_between_instances(rule, strategy, fanout, clock, chances):
    how, count = Subgraphs(time="when", temporal_strategy=strategy), 3000
    sampler = NeighborSampler(hub(), [fanout], rule=rule, seed=1, subgraphs=how)
    places = sampler.sample(np.zeros(count, int), positions=True, seed_time=np.full(count, clock)).hops[0][TO].positions
    found = places.reshape(count, fanout)
    found = np.sort(found, 1) if rule == "uniform" else found
    assert p_value(rows(found), chances) > LEAST
    both = {(*a, *b): p * q for a, p in chances.items() for b, q in chances.items()}
    assert p_value(rows(np.concatenate((found[:-1:2], found[1::2]), 1)), both) > LEAST, "neighboring instances"


def test_neither_threads_nor_ids_change_a_batch():
    rng = np.random.default_rng(0)
    edges, times = rng.integers(0, 50, (2, 900)), {TO: rng.integers(0, 9, 900)}
    graph, new_to_old = TimedGraph({"n": 50}, {TO: edges}, times), rng.permutation(50)
    image = TimedGraph({"n": 50}, {TO: np.argsort(new_to_old)[edges]}, times, keys={"n": new_to_old})
    seeds, clocks = rng.integers(0, 50, 200), rng.integers(0, 9, 200)
    for how in ({"disjoint": True}, {"time": "when"}, {"time": "when", "subgraph_type": "induced"}):
        one, other = (NeighborSampler(g, [3, 2], subgraphs=Subgraphs(**how)) for g in (graph, image))
        timed = {"seed_time": clocks} if "time" in how else {}
        batch, mapped = one.sample(seeds, **timed), other.sample(np.argsort(new_to_old)[seeds], **timed)
        assert new_to_old[mapped.nodes["n"]].tolist() == batch.nodes["n"].tolist()
        assert mapped.hops[0][TO].src.tolist() == batch.hops[0][TO].src.tolist()
        plan = one.batches(seeds, 32, 1, **timed)
        counts = [one.count_accesses(plan, threads=n) for n in (1, 3)]
        expected = np.zeros((2, 50), np.int64)
        for b, ids in enumerate(plan):
            sampled = one.sample(ids, epoch=1, batch=b, seed_time=plan.seeds_of(b)[1])
            expected[0][sampled.unique_nodes["n"]] += 1
            reads = [sampled.nodes["n"][: sampled.num_nodes[hop]["n"]] for hop in (0, 1)]
            reads += [sampled.nodes["n"]] if "subgraph_type" in how else []
            np.add.at(expected[1], np.concatenate(reads), 1)
            rows_read = one.sample_nodes(ids, epoch=1, batch=b, seed_time=plan.seeds_of(b)[1])["n"]
            assert rows_read.tolist() == sampled.unique_nodes["n"].tolist()
        for found in counts:
            assert [found.features["n"].tolist(), found.adjacency[TO].tolist()] == expected.tolist()


def test_a_seed_newer_than_all_draws_as_one_that_is_alone():
    """With every edge visible one instance draws as any other does; static batches do not have the instance's key."""
    graph = hub()
    disjoint = NeighborSampler(graph, [3], subgraphs=Subgraphs(disjoint=True))
    timed = NeighborSampler(graph, [3], subgraphs=Subgraphs(time="when"))
    one, other = disjoint.sample([0], positions=True), timed.sample([0], positions=True, seed_time=[99])
    assert one.hops[0][TO].positions.tolist() == other.hops[0][TO].positions.tolist()


def test_both_ways_of_several_types():
    """With rev_: joined, and mirrors; within a type: with itself; a unique reverse: joined; else a warning."""
    relations = [("u", "b", "i"), ("i", "rev_b", "u"), ("u", "f", "u"), ("u", "w", "t"), ("t", "v", "u")]
    edges = {r: ([], [], None) for r in relations} | {
        relations[0]: ([0, 1], [0, 0], None), relations[1]: ([1, 0], [0, 1], None), relations[2]: ([1], [0], None),
        relations[3]: ([2], [5], None), relations[4]: ([4], [1], None),
    }  # fmt: skip
    found = both_ways(
        relations, [{r: tuple(None if a is None else np.array(a, np.int32) for a in e) for r, e in edges.items()}]
    )
    pairs = {r[1]: list(zip(src.tolist(), dst.tolist(), strict=True)) for r, (src, dst, _) in found.items()}
    assert pairs["b"] == [(0, 0), (1, 0), (0, 1)]
    assert pairs["rev_b"] == [(0, 0), (0, 1), (1, 0)]
    assert pairs["f"] == [(1, 0), (0, 1)]
    assert pairs["w"] == [(1, 4), (2, 5)] and pairs["v"] == [(4, 1), (5, 2)]
    with pytest.warns(UserWarning, match="2 relations lead back"):
        both_ways(
            [*relations[3:], ("t", "o", "u")],
            [{r: (np.zeros(0, int),) * 2 + (None,) for r in [*relations, ("t", "o", "u")]}],
        )


WRONG = {
    "expected numbers": {"seed_time": ["a"]},
    "entry 0 is nan": {"seed_time": [np.nan]},
    "entry 0 is 1.5; the graph's times are int64 and cannot represent it exactly; give": {"seed_time": [1.5]},
    "entry 0 is 9223372036854775808": {"seed_time": np.array([2**63], np.uint64)},
    "one for each of 1 seeds, found shape": {"seed_time": [1, 2]},
    "these nodes have no times": {},
    "expected numbers of 64 bits, found bool": {"seed_time": [True]},
    "no node type 'x'": {"seed_time": {"x": [1]}},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_seed_times(message):
    with pytest.raises(InputError, match=message):
        NeighborSampler(hub(), [1], subgraphs=Subgraphs(time="when")).sample([0], **WRONG[message])


@pytest.mark.parametrize(("message", "options"), [
    ("temporal_strategy: expected one of uniform, last", {"temporal_strategy": "latest"}),
    ("subgraph_type: expected one of", {"subgraph_type": 3}),
    ("time_window: has no effect without time", {"time_window": 3}),
    ("time_window: expected one number, 0 or more", {"time": "when", "time_window": -1}),
    ("time_window: entry 0 is nan", {"time": "when", "time_window": np.nan}),
    ("time: not supported by 'weighted'", {"time": "when", "sampler": "weighted"}),
    ("time: not supported by 'pinsage'", {"time": "when", "sampler": "pinsage"}),
    ("subgraph_type: not supported by 'ladies'", {"subgraph_type": "induced", "sampler": "ladies"}),
    ("time: expected the name", {"time": 5}),
])  # fmt: skip
def test_wrong_options(message, options):
    with pytest.raises(InputError, match=message):
        make_sampler(hub(), SamplingOptions((2,), **options))
    assert SamplingOptions((2,)).record().keys() == {"fanouts", "batch_size", "frontier", "sampler"}


def test_seed_time_without_time():
    with pytest.raises(InputError, match="seed_time: has no effect without time"):
        NeighborSampler(hub(), [1]).sample([0], seed_time=[1])


def test_limits_and_infinities():
    """The differences of int64 do not overflow."""
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    edges, how = {TO: [[1, 2, 3], [0, 0, 0]]}, {"time": "when"}
    wide = TimedGraph({"n": 4}, edges, {TO: np.array([low, 0, high])})
    sampler = NeighborSampler(wide, [-1], subgraphs=Subgraphs(**how, time_window=high))
    assert sampler.sample([0], seed_time=[high]).nodes["n"].tolist() == [0, 2, 3]
    assert sampler.sample([0], seed_time=[-1]).nodes["n"].tolist() == [0, 1]
    ever = TimedGraph({"n": 4}, edges, {TO: np.array([-np.inf, 0.5, np.inf])})
    sampler = NeighborSampler(ever, [-1], subgraphs=Subgraphs(**how, time_window=1))
    assert sampler.sample([0, 0], seed_time=[np.inf, 1]).nodes["n"].tolist() == [0, 0, 3, 2]
    assert sampler.sample([0], seed_time=[-np.inf]).nodes["n"].tolist() == [0, 1]
