"""A slow, obvious judge of batches of neighbors, in time, disjoint and induced too: one entry at a time, in Python."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from toy_graphs import ToyGraph

from tiering.formats.times import GraphTime


class TimedGraph(ToyGraph):
    """A graph whose lists ascend in time: `times` by relation (along edges) or by node type; equal times as given."""

    def __init__(self, nodes, edges, times, along="edges", keys=None, unit=None):
        order, self._times, self._node_times = {}, {}, times if along == "nodes" else {}
        for r, ends in edges.items():
            ends = np.asarray(ends, np.int64).reshape(2, -1)
            of_entries = times.get(r) if along == "edges" else times[r[0]][ends[0]] if r[0] in times else None
            order[r] = np.argsort(ends[1], kind="stable")
            if of_entries is not None:
                order[r] = np.lexsort((np.arange(ends.shape[1]), of_entries, ends[1]))
                self._times[r] = np.asarray(of_entries)[order[r]]
        ordered = {r: np.asarray(e, np.int64).reshape(2, -1)[:, order[r]] for r, e in edges.items()}
        super().__init__(nodes, ordered, keys)
        self.order = order
        """Per relation: the place in the input of every entry."""
        dtypes = {array.dtype.name for array in times.values()}
        self.time = GraphTime("when", along, dtypes.pop() if dtypes else "int64", unit)

    def times(self, relation):
        return self._times.get(relation)

    def node_times(self, node_type):
        return self._node_times.get(node_type)


@dataclass
class Rules:
    """How a batch was asked for."""

    fanouts: list
    frontier: str = "new"
    rule: str = "uniform"
    strategy: str = "uniform"
    window: object = None
    instances: bool = True
    clocks: list = field(default_factory=list)  # seed time of each instance


def visible(graph, relation, node, rules, instance):
    """The positions that an instance sees in the list of a node."""
    (indptr, _), times = graph.csc(relation), graph.times(relation) if rules.clocks else None
    places = list(range(indptr[node], indptr[node + 1]))
    if times is None:
        return places
    now, window = rules.clocks[instance], rules.window
    return [p for p in places if times[p] <= now and (window is None or now - times[p].item() <= window)]


def check_draw(graph, relation, seen, fanout, rules, drawn):
    """How many of the next positions `drawn` one frontier node took; asserts that chance may have."""
    newest = rules.strategy == "last" and bool(rules.clocks) and graph.times(relation) is not None
    if newest and fanout >= 0:
        seen = seen[max(0, len(seen) - fanout) :]
    if rules.rule == "replacement" and fanout > 0:
        taken = drawn[: fanout if seen else 0]
        assert len(taken) == (fanout if seen else 0)
        assert set(taken) <= set(seen)
        return len(taken)
    may = [p for p in seen if rules.rule != "weighted" or graph.edge_data(relation)["weight"][p] > 0]
    count = len(may) if fanout < 0 else min(fanout, len(may))
    taken = drawn[:count]
    assert len(set(taken)) == count and set(taken) <= set(may)
    if fanout < 0 or fanout >= len(seen):
        assert taken == may, "a list that is taken whole comes in its own order"
    return count


def judge(graph, batch, seeds, rules):
    """Assert that a directional batch is one that chance may draw: nodes, instances, edges and their order, counts."""
    place, nodes, label = {}, {t: [] for t in graph.node_types}, {t: [] for t in graph.node_types}

    def number(node_type, instance, node):
        key = (node_type, instance if rules.instances else 0, node)
        if key not in place:
            place[key] = len(nodes[node_type])
            nodes[node_type].append(node)
            label[node_type].append(key[1])
        return place[key]

    for node_type in graph.node_types:
        for node in seeds.get(node_type, ()):
            number(node_type, sum(map(len, nodes.values())), int(node))
    known = dict.fromkeys(nodes, 0)
    assert len(batch.hops) == len(rules.fanouts)
    for hop, fanouts in enumerate(rules.fanouts):
        assert batch.num_nodes[hop] == {t: len(v) for t, v in nodes.items()}
        first = known if rules.frontier == "new" else dict.fromkeys(known, 0)
        known = {t: len(v) for t, v in nodes.items()}
        for relation, fanout in zip(graph.relations, fanouts, strict=True):
            edges, at = batch.hops[hop][relation], 0
            drawn, indices = edges.positions.tolist(), graph.csc(relation)[1]
            for local in range(first[relation[2]], known[relation[2]]):
                instance = label[relation[2]][local]
                seen = visible(graph, relation, nodes[relation[2]][local], rules, instance)
                count = check_draw(graph, relation, seen, fanout, rules, drawn[at : at + max(fanout, len(seen))])
                assert edges.dst[at : at + count].tolist() == [local] * count
                for k in range(at, at + count):
                    assert edges.src[k] == number(relation[0], instance, int(indices[drawn[k]]))
                at += count
            assert at == len(drawn) == edges.src.size == edges.dst.size
    assert batch.num_nodes[-1] == {t: len(v) for t, v in nodes.items()}
    assert {t: v.tolist() for t, v in batch.nodes.items()} == nodes
    if rules.instances:
        assert {t: v.tolist() for t, v in batch.instances.items()} == label
        for t, (ids, positions) in batch.rows.items():
            assert ids.tolist() == list(dict.fromkeys(nodes[t])) and ids[positions].tolist() == nodes[t]


def induced(graph, batch, rules):
    """(source, destination, position) by relation: visible entries between nodes of one instance."""
    label = batch.instances or {t: np.zeros(len(v), int) for t, v in batch.nodes.items()}
    found = {}
    for relation in graph.relations:
        ends = zip(label[relation[0]].tolist(), batch.nodes[relation[0]].tolist(), strict=True)
        place, found[relation] = {key: i for i, key in enumerate(ends)}, []
        for col, (b, v) in enumerate(zip(label[relation[2]], batch.nodes[relation[2]], strict=True)):
            for p in visible(graph, relation, v, rules, b):
                if (row := place.get((int(b), int(graph.csc(relation)[1][p])))) is not None:
                    found[relation].append((row, col, p))
    return found
