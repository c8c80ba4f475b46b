"""Every sampler on random heterogeneous graphs: what holds for any batch and its images; long lists and frontiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plain_walks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporal_oracle import Rules, judge
from toy_graphs import ToyGraph, flat, homogeneous, random_graph, relabeled, widened

from tiering.sampling import NeighborSampler, SamplingOptions, make_sampler

DRAWS = {"uniform": "uniform", "full": "uniform", "replacement": "replacement", "weighted": "weighted"}
NAMES = [*DRAWS, "pinsage", "ladies"]


@dataclass
class Case:
    """A graph, options and seeds."""

    graph: ToyGraph
    options: SamplingOptions
    seeds: dict[str, np.ndarray[Any, Any]]

    def sampler(self, graph=None):
        sampler = make_sampler(graph or self.graph, self.options)
        given = [[hop[":".join(group)] for group in sampler.edge_relations] for hop in self.options.fanouts]
        assert sampler.fanouts == given  # which judges go by
        return sampler


@st.composite
def graphs(draw):
    """1 to 3 types, 1 to 4 relations, some without edges; parallel edges, loops, weights of 0, narrow or wide ids."""
    nodes = {f"t{i}": draw(st.integers(1, 14)) for i in range(draw(st.integers(1, 3)))}
    ends = st.tuples(st.sampled_from(list(nodes)), st.sampled_from(list(nodes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    edges, weights = {}, {}
    for i, (src, dst) in enumerate(draw(st.lists(ends, min_size=1, max_size=4))):
        size = draw(st.sampled_from([0, 1, 5, 40]))
        edges[src, f"r{i}", dst] = np.stack([rng.integers(0, nodes[src], size), rng.integers(0, nodes[dst], size)])
        drawn = rng.exponential(size=size) * (rng.random(size) > 0.3)
        drawn[:1] = 1  # a relation of zeros alone is refused
        weights[src, f"r{i}", dst] = drawn.astype(draw(st.sampled_from([np.float32, np.float64])))
    graph = ToyGraph(nodes, edges, weights=weights)
    return widened(graph) if draw(st.booleans()) else graph


@st.composite
def metapaths(draw, relations):
    """Paths over one or two relations that fit together, and the length of the walks."""
    pairs = [[a, b] for a in relations for b in relations if a[0] == b[2]]
    paths = [[r] for r in relations] + pairs
    closed = [p for p in paths if p[-1][0] == p[0][2]]
    length = draw(st.integers(1, 3)) if closed else 1
    choose = st.lists(st.sampled_from(closed if length > 1 else paths), min_size=1, max_size=3, unique_by=str)
    return draw(choose), length


@st.composite
def cases(draw, names):
    graph, name = draw(graphs()), draw(st.sampled_from(names))
    paths, length = draw(metapaths(graph.relations))
    groups = [(p[-1][0], "/".join(r[1] for r in p), p[0][2]) for p in paths] if name == "pinsage" else graph.relations
    fanout = st.sampled_from([-1, 0]) if name == "full" else st.sampled_from([-1, 0, 1, 2, 5, 60])
    options = SamplingOptions(
        draw(st.lists(st.fixed_dictionaries(dict.fromkeys(groups, fanout)), min_size=1, max_size=3)),
        sampler=name,
        frontier=draw(st.sampled_from(["all", "new"])),
        seed=draw(st.integers(0, 2**64 - 1)),
        num_walks=draw(st.integers(1, 8)),
        walk_length=length,
        restart=draw(st.sampled_from([0.0, 0.4, 1.0])),
        metapaths=paths,
    )
    ids = {t: st.lists(st.integers(0, graph.num_nodes(t) - 1), max_size=5) for t in graph.node_types}
    return Case(graph, options, {t: np.array(draw(ids[t]), np.int64) for t in graph.node_types})


def judge_lists(sampler, batch, seeds):
    """Unique nodes, seeds first, numbers that grow, edges between nodes known by then, grouped by destination."""
    for t, nodes in batch.nodes.items():
        sizes = [n[t] for n in batch.num_nodes]
        assert nodes.dtype == np.int64 and np.unique(nodes).size == nodes.size == sizes[-1]
        assert nodes[: sizes[0]].tolist() == list(dict.fromkeys(seeds[t].tolist())) == batch.seeds[t].tolist()
        assert sizes == sorted(sizes)
    for hop, by_group in enumerate(batch.hops):
        assert list(by_group) == sampler.edge_relations
        for group, edges in by_group.items():
            assert edges.src.dtype == edges.dst.dtype == np.int32 and edges.src.size == edges.dst.size
            first = batch.num_nodes[hop - 1][group[2]] if sampler.frontier == "new" and hop else 0
            if edges.src.size:
                assert edges.src.min() >= 0 and edges.src.max() < batch.num_nodes[hop + 1][group[0]]
                assert first <= edges.dst[0] and edges.dst[-1] < batch.num_nodes[hop][group[2]]
                assert np.all(np.diff(edges.dst) >= 0)
        for t in sampler.node_types:  # a node is found at this hop only as the source of an edge of this hop
            found = np.arange(batch.num_nodes[hop][t], batch.num_nodes[hop + 1][t])
            sources = [edges.src for group, edges in by_group.items() if group[0] == t]
            assert np.isin(found, np.concatenate(sources) if sources else []).all()


def ends(batch, group, edges):
    """Global ids of sources and destinations."""
    return batch.nodes[group[0]][edges.src], batch.nodes[group[2]][edges.dst]


def judge_positions(graph, batch):
    """Every edge is the one at its place in `indices`, and in its destination's column."""
    for by_relation in batch.hops:
        for relation, edges in by_relation.items():
            indptr, indices = graph.csc(relation)
            src, dst = ends(batch, relation, edges)
            assert np.array_equal(indices[edges.positions], src)
            assert np.all((indptr[dst] <= edges.positions) & (edges.positions < indptr[dst + 1]))


@settings(max_examples=250)
@given(case=cases(list(DRAWS)))
def test_neighbor_sampling(case):
    sampler = case.sampler()
    batch = sampler.sample(case.seeds, epoch=1, batch=2, positions=True)
    judge_lists(sampler, batch, case.seeds)
    judge_positions(case.graph, batch)
    rules = Rules(sampler.fanouts, sampler.frontier, DRAWS[case.options.sampler], instances=False)
    judge(case.graph, batch, case.seeds, rules)
    assert all(edges.weights is None for hop in batch.hops for edges in hop.values())


@pytest.mark.parametrize("fanout", [1, 5, 47, 48, 49, 50, 200, 999, 1000, 1001, -1])
def test_hub_of_a_thousand_neighbors(fanout):
    graph = homogeneous(1001, np.stack([np.arange(1, 1001), np.zeros(1000, np.int64)]))
    batch = NeighborSampler(graph, [fanout]).sample([0], positions=True)
    judge(graph, batch, {"node": [0]}, Rules([[fanout]], "all", instances=False))


@pytest.mark.slow
def test_long_frontiers_cross_blocks_and_tables_grow():
    graph, rules = random_graph(30_000, 200_000), Rules([[7], [60]], "all", instances=False)
    sampler = NeighborSampler(graph, [7, 60])
    for seeds in (np.arange(0, 30_000, 37), np.arange(0, 30_000, 37), np.array([5])):  # with memory of the first
        judge(graph, sampler.sample(seeds, positions=True), {"node": seeds}, rules)


@settings(max_examples=120)
@given(case=cases(["ladies"]))
def test_layers(case):
    """Edges from known and drawn nodes and no others; as many drawn as asked for, weighted by importance."""
    sampler = case.sampler()
    batch = sampler.sample(case.seeds, epoch=1, batch=2, positions=True)
    judge_lists(sampler, batch, case.seeds)
    judge_positions(case.graph, batch)
    for hop, by_relation in enumerate(batch.hops):
        for size, (relation, edges) in zip(sampler.fanouts[hop], by_relation.items(), strict=True):
            indptr, indices = case.graph.csc(relation)
            first = batch.num_nodes[hop - 1][relation[2]] if sampler.frontier == "new" and hop else 0
            asking = batch.nodes[relation[2]][first : batch.num_nodes[hop][relation[2]]]
            places = [place for v in asking for place in range(indptr[v], indptr[v + 1]) if size != 0]
            known = batch.nodes[relation[0]][: batch.num_nodes[hop][relation[0]]]
            candidates = np.unique(indices[places])
            drawn = np.setdiff1d(batch.nodes[relation[0]][edges.src], known)
            wanted = candidates.size if size == -1 else min(size, candidates.size)
            assert wanted - np.isin(candidates, known).sum() <= drawn.size <= wanted
            kept = np.isin(indices[places], np.union1d(known, drawn))
            assert edges.positions.tolist() == np.array(places, np.int64)[kept].tolist()
            importance = np.zeros(case.graph.num_nodes(relation[0]))
            for v in asking if size != 0 else ():
                lists = indices[indptr[v] : indptr[v + 1]]
                np.add.at(importance, lists, 1 / max(lists.size, 1) ** 2)
            inverse = 1 / importance[indices[edges.positions]]
            sums = np.bincount(edges.dst, inverse)[edges.dst]
            np.testing.assert_allclose(edges.weights, inverse / sums, rtol=2e-7)


@settings(max_examples=150)
@given(case=cases(["pinsage"]))
def test_walks(case):
    """Nodes, edges and visits are those of walks in plain Python."""
    sampler = case.sampler()
    batch = sampler.sample(case.seeds, epoch=1, batch=2)
    judge_lists(sampler, batch, case.seeds)
    reads = plain_walks.no_reads(case.graph)
    known, hops = plain_walks.sample(case.graph, sampler, case.seeds, 1, 2, reads)
    assert {t: nodes.tolist() for t, nodes in batch.nodes.items()} == known
    for by_group, expected in zip(batch.hops, hops, strict=True):
        for (group, edges), wanted in zip(by_group.items(), expected, strict=True):
            src, dst = ends(batch, group, edges)
            assert list(zip(dst.tolist(), src.tolist(), edges.weights.tolist(), strict=True)) == wanted


@settings(max_examples=150)
@given(case=cases(NAMES), seed=st.integers(0, 2**32))
def test_relabeled_and_widened_graphs_sample_the_images(case, seed):
    rng = np.random.default_rng(seed)
    new_to_old = {t: rng.permutation(case.graph.num_nodes(t)).astype(np.int32) for t in case.graph.node_types}
    images = {t: np.argsort(new_to_old[t])[v] for t, v in case.seeds.items()}
    ours = case.sampler().sample(case.seeds, epoch=2, batch=1)
    theirs = case.sampler(relabeled(case.graph, new_to_old)).sample(images, epoch=2, batch=1)
    for t in case.graph.node_types:
        assert new_to_old[t][theirs.nodes[t]].tolist() == ours.nodes[t].tolist()
    assert flat(ours)[1:] == flat(theirs)[1:]
    assert flat(case.sampler(widened(case.graph)).sample(case.seeds, epoch=2, batch=1)) == flat(ours)


@settings(max_examples=40)
@given(graph=graphs(), threads=st.integers(2, 9))
def test_weights_prepared_by_any_number_of_threads(graph, threads):
    everyone = {t: np.arange(graph.num_nodes(t)) for t in graph.node_types}
    one, many = (
        NeighborSampler(graph, [2, 3], rule="weighted", threads=n).sample(everyone, positions=True)
        for n in (1, threads)
    )
    assert flat(one) == flat(many)
