"""Rank nodes: those that the user puts first, then by falling score, in memory or a range of scores after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import INT32_NODES, id_bytes
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import AnyArray
from tiering.errors import InputError, TieringError
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.formats.shape import SizedGraph
from tiering.formats.user_arrays import UserArray, UserValues, read_user_arrays
from tiering.memory import Budget
from tiering.reorder.arrays import SIZES, NodeArrays, PieceSizes
from tiering.run.grid import Int64Array

Ids = AnyArray
Keys = npt.NDArray[np.uint64]
Values = npt.NDArray[np.float64]

_SIGN, _LAST_KEY = np.uint64(1 << 63), (1 << 64) - 1

FIRST_OPTION = "--first"
CHUNK_FIRST = 1 << 20  # ids of nodes put first that are read together
CHUNK_SCORES = 1 << 21  # most scores read at a time, where all are ranked together
SORT_SPACE = 4 << 20  # bytes of the sort for all threads: the bucket of each prefix of 20 bits, in 4 bytes
THREAD_SPACE = 10 << 20  # bytes of each thread of the sort: counts of these prefixes, in 8 bytes, and lines of buckets
NODES_PER_THREAD = 1 << 20  # fewest nodes that a thread of the sort gets
LARGE_BUCKET = 1 << 19  # nodes from which a bucket is cut again, instead of sorted by one thread
PIECE_BYTES = 104
"""Bytes of a node of a piece: score and id, these twice in the sort, a bucket, this piece's result, the last one's."""


def read_first(graph: SizedGraph, values: UserValues) -> dict[str, UserArray]:
    """Return the nodes that come first, by node type; at least one of each type that is named.

    `InputError` unless each is an original id, named once. Memory: a byte for each node of a type.
    """
    arrays = read_user_arrays(graph, values, "node ids", FIRST_OPTION, "iu")
    for node_type, array in arrays.items():
        if not array.values.size:
            raise InputError(f"{array.where}: the array has no node ids; omit {FIRST_OPTION}")
        _check_first(array, node_type, graph.num_nodes(node_type))
    return {node_type: arrays[node_type] for node_type in graph.node_types if node_type in arrays}


def first_digests(first: Mapping[str, UserArray]) -> dict[str, str]:
    """Return a digest of the first nodes of each type, for the record."""
    return {f"first of {node_type}": array.digest for node_type, array in first.items()}


def _check_first(array: UserArray, node_type: str, count: int) -> None:
    for first, _, (ids,) in chunks([array.values], CHUNK_FIRST):
        wrong = np.flatnonzero((ids < 0) | (ids >= count))
        if wrong.size:
            bounds = f"original ids 0..{count - 1} of type {node_type!r}" if count else f"nodes of type {node_type!r}"
            raise InputError(
                f"{array.where}: expected {bounds}, found {ids[wrong[0]]} at position {first + wrong[0]}; correct it"
            )
    if int(np.count_nonzero(_first_mask(array, count))) != array.values.size:
        ids, times = np.unique(array.values, return_counts=True)
        raise InputError(
            f"{array.where}: expected each node once, found {int(ids[np.argmax(times > 1)])} repeated; correct it"
        )


def _first_mask(array: UserArray, count: int) -> npt.NDArray[np.bool_]:
    marked = np.zeros(count, bool)
    for _, _, (ids,) in chunks([array.values], CHUNK_FIRST):
        marked[ids] = True
    return marked


def sort_bytes(num_nodes: int, threads: int) -> int:
    """Return the most bytes of memory that ranking takes: pairs, chunks of scores, and the sort's threads."""
    pairs = num_nodes * (16 if num_nodes >= INT32_NODES else 12)
    held = pairs + 16 * min(num_nodes, _chunk_scores(num_nodes)) + SORT_SPACE  # two chunks of float64 are read
    if num_nodes < LARGE_BUCKET:  # no bucket is cut again; counts are gone when buckets are sorted, perhaps by merging
        return held + max(THREAD_SPACE, 40 * num_nodes)
    # A bucket that is cut again may have all pairs. A thread holds its bucket's pairs twice, 16 bytes each.
    return held + pairs + min(threads, max(1, num_nodes // NODES_PER_THREAD)) * (THREAD_SPACE + 32 * LARGE_BUCKET)


def _chunk_scores(num_nodes: int) -> int:
    """Return the scores read at a time where all are ranked together: an eighth of few."""
    return min(CHUNK_SCORES, max(1 << 16, num_nodes // 8))


def nodes_per_run(node_type: str, num_nodes: int, threads: int, budget: Budget, sizes: PieceSizes = SIZES) -> int:
    """Return the nodes ranked at a time: all, or as many as the budget has room for, at least `sizes.min_ranked`."""
    if (whole := sort_bytes(num_nodes, threads)) <= budget.left():
        return num_nodes
    fixed = sizes.score_piece + SORT_SPACE + THREAD_SPACE
    budget.require(min(whole, fixed + sizes.min_ranked * PIECE_BYTES), f"ranking nodes of type {node_type!r} in pieces")
    return max(sizes.min_ranked, (budget.left() - fixed) // PIECE_BYTES)


@dataclass(frozen=True)
class NodeOrders:
    """Orders of node types: the original id of each rank, nodes put first, all others by score."""

    graph: Graph
    scores: Scores
    arrays: NodeArrays
    first: Mapping[str, UserArray]

    def pieces(self, node_type: str) -> Iterator[Ids]:
        """Yield the order in one piece, or in as many as ranking within the budget takes, after the nodes put first."""
        first, count = self.first.get(node_type), self.graph.num_nodes(node_type)
        if first is None:
            yield from self._by_score(node_type, self.arrays)
            return
        for _, _, (ids,) in chunks([first.values], CHUNK_FIRST):
            yield ids.astype(f"i{id_bytes(count)}")
        self.arrays.budget.require(count, f"the mask of pinned nodes of type {node_type!r}")
        marked = _first_mask(first, count)
        for ids in self._by_score(node_type, self.arrays.without(count)):
            yield ids[~marked[ids]]

    def _by_score(self, node_type: str, arrays: NodeArrays) -> Iterator[Ids]:
        count, threads = self.graph.num_nodes(node_type), arrays.threads
        together = nodes_per_run(node_type, count, threads, arrays.budget, arrays.sizes)
        try:
            values = self.scores.values(node_type)
            if together >= count:
                yield _sorted(values, threads)
            else:
                yield from ScoreRanges(values, together, threads, arrays.sizes).pieces()
        except TieringError:
            raise
        except ValueError as error:
            raise InputError(
                f"{self.scores.path}: scores of node type {node_type!r}: {error}; score the graph again"
            ) from error


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


def _sorted(scores: Values, threads: int) -> Ids:
    """Return the ids by falling score, ties by ascending id; the scores are read twice, front to back."""
    sorter = native.ScoreSorter(scores.shape[0], threads)
    for take in (sorter.count, sorter.place):
        for _, _, (part,) in chunks([scores], _chunk_scores(scores.shape[0])):
            take(part)
    return sorter.finish()


@dataclass(frozen=True)
class ScoreRanges:
    """Ids by falling score, ties by ascending id, in pieces that fit into memory.

    Cost: the scores are read twice, and once for each piece. Ranges with too many nodes are counted in finer bins.
    """

    scores: Values
    piece: int  # most nodes sorted together
    threads: int
    sizes: PieceSizes = SIZES

    def pieces(self) -> Iterator[Ids]:
        """Yield ids, one piece after the other; every node once. `ValueError` if a score is NaN."""
        low, high = _LAST_KEY, 0
        for first, _, (scores,) in chunks([self.scores], self.sizes.scores):
            if np.isnan(scores).any():
                raise ValueError(f"the score of node {first + int(np.argmax(np.isnan(scores)))} is NaN")
            keys = descending_keys(scores)
            low, high = min(low, int(keys.min())), max(high, int(keys.max()))
        if self.scores.size:
            yield from self._range(low, high, self.scores.size)

    def _range(self, low: int, high: int, count: int) -> Iterator[Ids]:
        """Yield the ids of the nodes, `count` of them, whose key is in [low, high]."""
        if count <= self.piece:
            parts = [(ids, scores[inside]) for ids, inside, scores, _ in self._stream(low, high)]
            ids, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
            del parts
            yield ids[native.sort_by_score(scores, self.threads)]
            return
        if high == low:  # all have one score
            yield from (ids for ids, *_ in self._stream(low, high))
            return
        bins = self.sizes.score_bins
        width = (high - low) // bins + 1
        counts = np.zeros(bins, np.int64)
        for _, inside, _, keys in self._stream(low, high):
            binned = (keys[inside] - np.uint64(low)) // np.uint64(width)
            counts += np.bincount(binned.astype(np.int64), minlength=bins)
        begin = end = nodes = 0  # bins, and their nodes, that come together
        for full in np.flatnonzero(counts).tolist():
            if nodes and nodes + counts[full] > self.piece:
                yield from self._range(low + begin * width, low + end * width - 1, nodes)
                nodes = 0
            begin, end, nodes = begin if nodes else full, full + 1, nodes + int(counts[full])
        yield from self._range(low + begin * width, min(high, low + end * width - 1), nodes)

    def _stream(self, low: int, high: int) -> Iterator[tuple[Ids, Int64Array, Values, Keys]]:
        """Yield the ids whose key is in [low, high], their positions in a chunk, and scores and keys of the chunk."""
        for first, _, (scores,) in chunks([self.scores], self.sizes.scores):
            keys = descending_keys(scores)
            inside = np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high)))
            yield (inside + first).astype(f"i{id_bytes(self.scores.size)}"), inside, scores, keys


def descending_keys(scores: Values) -> Keys:
    """Return unsigned numbers that ascend as scores fall; -0 equals 0."""
    bits = (scores + 0.0).view(np.uint64)
    return ~np.where(bits >= _SIGN, ~bits, bits | _SIGN)
