"""Memory of the tasks of `tiering.scores.tasks.hops`, by formula."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.manifest import id_bytes, relation_key
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph
from tiering.sampling.graph import checked_weights
from tiering.scores.plan import ScorePlan


def relations_of(graph: SizedGraph, plan: ScorePlan) -> list[dict[str, Any]]:
    """Return the relations as tasks see them; `InputError` if a relation lacks weights that are asked for."""
    types, relations = list(graph.node_types), []
    for relation in graph.relations:
        held = 0
        if plan.request.sampled.sampler == "weighted" and isinstance(graph, Graph):
            weights = graph.edge_data(relation).get("weight")
            if weights is None or weights.ndim != 1 or weights.dtype.kind not in "fiu":
                weights = checked_weights(graph, relation)
            held = 8 + weights.itemsize + (0 if weights.dtype in ("float32", "float64") else 8)
        elif plan.request.sampled.sampler == "weighted":
            held = 8 + 4
        relations.append({
            "key": relation_key(relation), "folder": relation_folder(relation), "src": types.index(relation[0]),
            "dst": types.index(relation[2]), "edges": graph.num_edges(relation),
            "columns": graph.num_nodes(relation[2]), "edge_bytes": id_bytes(graph.num_nodes(relation[0])) + held,
        })  # fmt: skip
    return relations


def list_bytes(relation: Mapping[str, Any]) -> int:
    """Return the bytes of each edge of a task's lists: its source, and the rule's weight of it."""
    return int(relation["edge_bytes"])


def lists_bytes(relation: Mapping[str, Any]) -> int:
    """Return the bytes of all lists of a relation."""
    return int(relation["edges"] * list_bytes(relation) + relation["columns"] * HopMemory.LIST_BYTES)


class HopMemory:
    """Memory of tasks, by bounds of a batch.

    The first hop has its seeds, each next one `1 + fanouts` times as many nodes, no more than there are, and all of
    them may lie in one range.

    ``seeds``  64 bytes for each training node, and 64 for each seed of a wave.
    ``hop``    24 bytes for each list of the range; for each of its edges a source, weighted also the weight and a sum;
               of each file of these, what is read beyond the range to compare checksums, which are of blocks;
               for each batch of a wave 32 bytes for each node that samples and 72 for each that it reaches; for each
               thread 48, 80 and 16 for each node that samples, is reached, and each edge of a batch.
    ``merge``  for each batch of a wave 48 bytes for each pair that was drawn and 24 for each node that was known; 32
               for each node of the range.
    """

    NODE_BYTES: ClassVar[int] = 32
    LIST_BYTES: ClassVar[int] = 24

    def __init__(self, params: Mapping[str, Any], edges: Sequence[Sequence[int]]) -> None:
        """`params` of the steps, with the ranges; `edges` of each range of lists, by relation."""
        self.params, self.edges = params, edges
        self.relations: list[dict[str, Any]] = params["relations"]
        ranges = [(a, b) for bounds in params["nodes"] for a, b in pairwise(bounds)]
        self.widest = max((b - a for a, b in ranges), default=0)
        self.known = self._most_known()
        """At most so many nodes of a batch after 0, 1, ... hops."""

    def _most_known(self) -> list[int]:
        everything = sum(self.params["num_nodes"])
        known = [min(everything, self.params["batch_size"])]
        for fanouts in self.params["fanouts"]:
            reached = everything if min(fanouts, default=0) < 0 else known[-1] * sum(fanouts)
            known.append(min(everything, known[-1] + reached))
        return known

    @staticmethod
    def cut(columns: int, chunk: int) -> int:
        """Return the bytes of a task of ``cut`` with so many lists, which checks weights in chunks."""
        return 32 * columns + 16 * chunk + 2 * BLOCK_BYTES

    @property
    def seeds(self) -> int:
        """Bytes of a task of ``seeds``."""
        return 64 * (sum(int(size) for _, size in self.params["train"]) + int(self.params["wave"]) * self.known[0])

    def hop(self, hop: int, wave: int, threads: int) -> int:
        """Return the bytes of a task that draws from lists in a hop of a wave of batches."""
        asking, reached, drawn = self._of_lists(hop)
        blocks = 2 * BLOCK_BYTES * (2 if self.params["rule"] == "weighted" else 1)
        held = [min(blocks, list_bytes(relation) * relation["edges"]) for relation in self.relations]
        lists = [list_bytes(r) * max(counts, default=0) for r, counts in zip(self.relations, self.edges, strict=True)]
        most: int = max((sum(of) for of in zip(held, lists, strict=True)), default=0)
        own = most + self.LIST_BYTES * self.widest
        return own + wave * (32 * asking + 72 * reached) + threads * (48 * asking + 80 * reached + 16 * drawn)

    def merge(self, depth: int, wave: int) -> int:
        """Return the bytes of a task that merges the pairs of a wave up to hop `depth`."""
        return self.NODE_BYTES * self.widest + wave * self._of_nodes(depth)

    def batches(self, room: int) -> int:
        """Return the batches of a wave, for which there is room in the largest task; one at least."""
        of_hops = [32 * asking + 72 * reached for asking, reached, _ in map(self._of_lists, range(len(self.known) - 1))]
        most = max(64 * self.known[0], *of_hops, *map(self._of_nodes, range(len(self.known))))
        return int(max(1, min(self.params["batches"], room // most, 1 << 20)))

    def _of_lists(self, hop: int) -> tuple[int, int, int]:
        """Return bounds of a batch and a range of lists: nodes that sample in a hop, nodes and edges that they draw."""
        asking = min(self.known[hop], self.widest)
        fanouts, edges = self.params["fanouts"][hop], [max(counts, default=0) for counts in self.edges]
        drawn = 0
        for fanout, most in zip(fanouts, edges, strict=True):
            wanted = most if fanout < 0 else asking * fanout
            drawn = max(drawn, wanted if self.params["rule"] == "replacement" else min(wanted, most))
        return asking, min(drawn, max(self.params["num_nodes"])), drawn

    def _of_nodes(self, depth: int) -> int:
        """Return the bytes of a batch in a range of nodes."""
        if depth == 0:
            return 48 * self.known[0]
        fanouts = self.params["fanouts"][depth - 1]
        every = sum(int(relation["edges"]) for relation in self.relations)
        drawn: int = self.known[depth - 1] * sum(fanouts) if min(fanouts, default=0) >= 0 else every
        tasks = sum(len(counts) for counts in self.edges)
        return 48 * min(drawn, tasks * self.widest) + 24 * min(self.known[depth], self.widest)


def waves(params: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the batches of each wave of an epoch: the first, and the one behind the last."""
    step, count = params["wave"], params["batches"]
    return [(step * wave, min(count, step * (wave + 1))) for wave in range(math.ceil(count / step))]
