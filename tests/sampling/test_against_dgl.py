"""DGL's neighbour sampler as an independent judge: the same graphs, rules and fanouts, two-sample tests.

DGL lists fanouts from the last hop. Both sides have fixed seeds.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chances import LEAST
from scipy import stats
from toy_graphs import HOMOGENEOUS, ToyGraph, random_graph, weighted_graph

from tiering.sampling import AccessCounts, NeighborSampler

pytestmark = pytest.mark.filterwarnings("ignore")

RULES = {"uniform": {}, "replacement": {"replace": True}, "weighted": {"prob": "weight"}}
PAPERS = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "by", "author")


def papers(seed=0):
    """40 papers, 15 authors, three relations with weights, a fifth of them 0; parallel edges and isolated nodes."""
    rng = np.random.default_rng(seed)
    nodes = {"paper": 40, "author": 15}
    edges, weights = {}, {}
    for relation, size in zip(PAPERS, (200, 120, 90), strict=True):
        src, dst = (np.floor(nodes[t] * rng.random(size) ** 1.5) for t in (relation[0], relation[2]))
        edges[relation] = np.stack([src, dst])
        weights[relation] = 4 * rng.random(size) * (rng.random(size) > 0.2)
    return ToyGraph(nodes, edges, weights=weights)


GRAPHS = {
    "homogeneous": (weighted_graph(60, 300, seed=1), [{HOMOGENEOUS: 3}]),
    "heterogeneous": (papers(), [dict(zip(PAPERS, (3, 2, 4), strict=True))]),
    "some lists whole, some not": (papers(), [dict(zip(PAPERS, (-1, 1, 0), strict=True))]),
}


def peer_of(dgl, graph):
    """The graph in DGL: edge k of a relation is its place k in `indices`."""
    torch = pytest.importorskip("torch")
    lists = {}
    for relation in graph.relations:
        indptr, indices = graph.csc(relation)
        lists[relation] = ("csc", (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), []))
    peer = dgl.heterograph(lists, {t: graph.num_nodes(t) for t in graph.node_types})
    for relation in graph.relations:
        for name, values in graph.edge_data(relation).items():
            peer.edges[relation].data[name] = torch.from_numpy(values)
    return peer


def everyone(graph):
    return {t: np.arange(graph.num_nodes(t)) for t in graph.node_types}


def our_edges(graph, fanouts, rule, rounds):
    """How often each edge is drawn, per relation (rounds, edges): one hop, every node a seed."""
    counts = {r: np.zeros((rounds, graph.csc(r)[1].size)) for r in graph.relations}
    sampler = NeighborSampler(graph, fanouts, rule=rule, seed=17)
    for b in range(rounds):
        for r, edges in sampler.sample(everyone(graph), batch=b, positions=True).hops[0].items():
            counts[r][b] = np.bincount(edges.positions, minlength=counts[r].shape[1])
    return counts


def their_edges(dgl, graph, fanouts, rule, rounds):
    counts = {r: np.zeros((rounds, graph.csc(r)[1].size)) for r in graph.relations}
    torch = pytest.importorskip("torch")
    peer, seeds = peer_of(dgl, graph), {t: torch.from_numpy(v) for t, v in everyone(graph).items()}
    for b in range(rounds):
        found = dgl.sampling.sample_neighbors(peer, seeds, fanouts[0], **RULES[rule])
        for r in graph.relations:
            counts[r][b] = np.bincount(found.edges[r].data[dgl.EID].numpy(), minlength=counts[r].shape[1])
    return counts


def same_means(graph, ours, theirs):
    """p-value that both sides draw each edge equally often.

    Hotelling's statistic per list, as the edges of a list depend on each other; lists are independent and add up.
    """
    total, freedom = 0.0, 0
    for relation in graph.relations:
        indptr, _ = graph.csc(relation)
        for begin, end in itertools.pairwise(indptr):
            if begin == end:
                continue
            a, b = ours[relation][:, begin:end], theirs[relation][:, begin:end]
            difference = a.mean(0) - b.mean(0)
            covariance = np.atleast_2d(np.cov(a.T) + np.cov(b.T)) / len(a)
            values, vectors = np.linalg.eigh(covariance)
            moves = values > 1e-9
            along = vectors.T @ difference
            if np.abs(along[~moves]).max(initial=0) > 1e-9:
                return 0.0  # what never varies must be the same
            total, freedom = total + (along[moves] ** 2 / values[moves]).sum(), freedom + moves.sum()
    assert freedom > 30
    return float(stats.chi2.sf(total, freedom))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", GRAPHS)
def test_edges_are_drawn_as_often(dgl, name, rule):
    graph, fanouts = GRAPHS[name]
    ours, theirs = our_edges(graph, fanouts, rule, 1500), their_edges(dgl, graph, fanouts, rule, 1500)
    for relation in graph.relations:
        assert ours[relation].sum(1).tolist() == theirs[relation].sum(1).tolist()
    assert same_means(graph, ours, theirs) > LEAST


def test_access_counts_agree(dgl):
    """Reads of every node over the batches of 60 epochs, the same seeds in each batch."""
    torch = pytest.importorskip("torch")
    graph, fanouts, epochs = random_graph(3000, 40_000), [4, 3, 2], 60
    sampler, peer = NeighborSampler(graph, fanouts), peer_of(dgl, graph)
    judge = dgl.dataloading.NeighborSampler(fanouts[::-1])
    ours, theirs, sizes = AccessCounts.zeros(graph), np.zeros(3000, np.int64), []
    for epoch in range(epochs):
        plan = sampler.batches(np.arange(0, 3000, 10), 50, epoch)
        for b, seeds in enumerate(plan):
            before = ours.total
            sampler.count_accesses(plan, ours, first=b, last=b + 1, threads=1)
            nodes, _, _ = judge.sample_blocks(peer, torch.from_numpy(seeds["node"]))
            theirs[nodes.numpy()] += 1
            sizes.append(ours.total - before - len(nodes))
    assert abs(np.mean(sizes)) < 4 * np.std(sizes) / np.sqrt(len(sizes))
    # A node's count is a sum of one coin toss per batch: the difference of two such sums, in standard deviations.
    mine, tosses = ours.features["node"], len(sizes)
    p = (mine + theirs) / (2 * tosses)
    deviation = np.sqrt(2 * tosses * p * (1 - p))
    tossed = deviation > 2
    z = (mine - theirs)[tossed] / deviation[tossed]
    assert tossed.sum() > 500
    assert abs(z.mean()) < 0.15 and z.std() < 1.15 and np.abs(z).max() < 6
