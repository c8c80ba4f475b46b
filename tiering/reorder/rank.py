"""Rank nodes by falling score, ties by original id: in memory, or a range of scores after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import INT32_NODES
from tiering.artifacts.reader import chunks
from tiering.errors import InputError, TieringError
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.memory import Budget, parse_memory
from tiering.reorder.rank_pieces import ScoreRanges
from tiering.reorder.sizes import SIZES, Sizes
from tiering.units import format_count, parse_threads

Ids = npt.NDArray[Any]

CHUNK_SCORES = 1 << 21
"""Scores read at a time, where all are ranked together."""
SORT_SPACE, THREAD_SPACE = 4 << 20, 10 << 20
"""Bytes that the sort holds beside nodes: buckets by their first bits; counts and lines of each thread."""
NODES_PER_THREAD, LARGE = 1 << 20, 1 << 19
"""Nodes that a thread sorts at the least, and of the largest bucket that one thread sorts."""
PIECE_BYTES = 104
"""Of a node of a piece: score and id, these twice in the sort, a bucket, the result, that of the piece before."""


def order_nodes(
    graph: Graph,
    scores: Scores,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    *,
    sizes: Sizes = SIZES,
) -> NodeOrders:
    """Rank the nodes of every type: ``new_to_old``, original id of each rank, int32 below 2^31 nodes, else int64.

    Each is computed when it is asked for, and not kept. Asked for whole, it takes `sort_bytes` of memory.
    """
    check_scores(graph, scores)
    return NodeOrders(graph, scores, parse_threads(threads), parse_memory(memory), sizes)


def sort_bytes(num_nodes: int, threads: int) -> int:
    """Memory that ranking takes at the most.

    Score and id of each node, twice (24 bytes a node, 32 from 2^31 nodes on); chunks of scores; `SORT_SPACE` and what
    each thread holds: counts, lines, and a bucket, twice.
    """
    pairs = 2 * num_nodes * (16 if num_nodes >= INT32_NODES else 12)
    workers = min(threads, max(1, num_nodes // NODES_PER_THREAD))
    return (
        pairs + 16 * min(num_nodes, CHUNK_SCORES) + SORT_SPACE + workers * (THREAD_SPACE + 32 * min(num_nodes, LARGE))
    )


def ranked_together(node_type: str, num_nodes: int, threads: int, budget: Budget, sizes: Sizes = SIZES) -> int:
    """Nodes that are ranked at a time: all, or as many as the budget has room for; `Sizes.min_ranked` at the least."""
    if sort_bytes(num_nodes, threads) <= budget.left():
        return num_nodes
    fixed = sizes.score_piece + SORT_SPACE + THREAD_SPACE
    budget.require(fixed + sizes.min_ranked * PIECE_BYTES, f"ranking nodes of type {node_type!r} in pieces")
    return max(sizes.min_ranked, (budget.left() - fixed) // PIECE_BYTES)


@dataclass(frozen=True)
class NodeOrders(Mapping[str, Ids]):
    """Orders by falling score, computed one by one."""

    graph: Graph
    scores: Scores
    threads: int
    budget: Budget
    sizes: Sizes = SIZES

    def __getitem__(self, node_type: str) -> Ids:
        if node_type not in self.graph.node_types:
            raise KeyError(node_type)
        count = self.graph.num_nodes(node_type)
        what = f"ranking {format_count(count)} nodes of type {node_type!r}, score and id of each, twice,"
        self.budget.require(sort_bytes(count, self.threads), what)
        with self._named(node_type):
            return self._sorted(self.scores.values(node_type))

    def pieces(self, node_type: str) -> Iterator[Ids]:
        """The order in one piece, or in as many as it takes to rank within the budget."""
        count = self.graph.num_nodes(node_type)
        together = ranked_together(node_type, count, self.threads, self.budget, self.sizes)
        with self._named(node_type):
            values = self.scores.values(node_type)
            if together >= count:
                yield self._sorted(values)
            else:
                yield from ScoreRanges(values, together, self.threads, self.sizes).pieces()

    def _sorted(self, scores: npt.NDArray[np.float64]) -> Ids:
        """Ids by falling score, ties by ascending id; the scores are read twice, front to back."""
        sorter = native.ScoreSorter(scores.shape[0], self.threads)
        for take in (sorter.count, sorter.place):
            for _, _, (part,) in chunks([scores], CHUNK_SCORES):
                take(part)
        return sorter.finish()

    @contextmanager
    def _named(self, node_type: str) -> Iterator[None]:
        """Say whose scores are refused."""
        try:
            yield
        except TieringError:
            raise
        except ValueError as error:
            raise InputError(
                f"{self.scores.path}: scores of node type {node_type!r}: {error}; score the graph again"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.graph.node_types)

    def __len__(self) -> int:
        return len(self.graph.node_types)


def check_scores(graph: Graph, scores: Scores) -> None:
    """Refuse scores that were computed on another graph."""
    for node_type in graph.node_types:
        size = scores.values(node_type).size if node_type in scores.node_types else None
        if size != graph.num_nodes(node_type):
            raise InputError(
                f"{scores.path}: expected scores of the {graph.num_nodes(node_type)} nodes of type {node_type!r} of "
                f"{graph.path}, found {'none' if size is None else size}; run `tiering score {graph.path}`"
            )
    if scores.graph_digest != graph.digest:
        raise InputError(
            f"{scores.path}: these scores were computed on another graph than {graph.path} "
            f"(graph {scores.graph_digest}, expected {graph.digest}); run `tiering score {graph.path}`"
        )
