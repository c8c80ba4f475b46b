"""The random walks once more in plain Python: one walk at a time, numbers from the key as the docs define them."""

from __future__ import annotations

from collections import Counter

import numpy as np

WORD, GOLDEN, WALKS = 2**64 - 1, 0x9E3779B97F4A7C15, 3


def mix(x):
    """SplitMix64's finaliser."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def folded(use, *words):
    key = mix(use * GOLDEN & WORD)
    for word in words:
        key = mix(key + GOLDEN + mix(word + GOLDEN & WORD) & WORD)
    return key


def number(stream, member, draw):
    """Number `draw` (0, 1, ...) of a member's stream."""
    return mix(mix(stream + GOLDEN * member & WORD) + GOLDEN * (draw + 1) & WORD)


def walk(graph, path, rule, start, draws, reads):
    """Nodes that one walk visits; adds the lists it reads to `reads`. `draws` yields its numbers."""
    visited, at = [], start
    for turn in range(rule.walk_length):
        for relation in path:
            indptr, indices = graph.csc(relation)
            reads[relation][at] += 1
            degree = int(indptr[at + 1] - indptr[at])
            if degree == 0:
                return visited
            at = int(indices[indptr[at] + (next(draws) * degree >> 64)])
        visited.append(at)
        if turn + 1 < rule.walk_length and rule.restart > 0 and (next(draws) >> 11) < int(rule.restart * 2**53):
            return visited
    return visited


def sample(graph, rule, seeds, epoch, batch, reads):
    """Nodes per type, and per hop and metapath the edges (destination, source, visits) of a `RandomWalkSampler`."""
    known = {t: list(dict.fromkeys(map(int, seeds.get(t, ())))) for t in graph.node_types}
    before, hops = dict.fromkeys(known, 0), []
    for hop, fanouts in enumerate(rule.fanouts):
        now = {t: len(v) for t, v in known.items()}
        first = before if rule.frontier == "new" else dict.fromkeys(known, 0)
        hops.append([])
        for m, path in enumerate(rule.metapaths):
            start, end, edges = path[0][2], path[-1][0], []
            stream = folded(WALKS, rule.seed, epoch, batch, hop, m)
            for node in known[start][first[start] : now[start]] if fanouts[m] else ():
                for other, visits in most_visited(graph, rule, path, stream, node, reads)[: fanouts[m] % 2**32]:
                    known[end] += [] if other in known[end] else [other]
                    edges.append((node, other, visits))
            hops[-1].append(edges)
        before = now
    return known, hops


def most_visited(graph, rule, path, stream, node, reads):
    """(node, visits), most visits first, then by original id."""
    start, end = (graph.node_keys(t) for t in (path[0][2], path[-1][0]))
    key = node if start is None else int(start[node])
    visits = Counter()
    for w in range(rule.num_walks):
        first = w * rule.walk_length * (len(path) + 1)
        visits.update(walk(graph, path, rule, node, (number(stream, key, first + i) for i in range(10**9)), reads))
    return sorted(visits.items(), key=lambda v: (-v[1], v[0] if end is None else int(end[v[0]])))


def no_reads(graph):
    return {r: np.zeros(graph.num_nodes(r[2]), np.int64) for r in graph.relations}
