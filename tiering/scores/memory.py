"""Memory of the methods, by formula: what a budget is held against before anything is computed.

All numbers are bytes of anonymous memory; the graph itself is mapped and costs none. N: nodes of all types; D: the sum
over relations of the nodes of the destination type; C: the same, of those that have in-neighbours at all (at most the
edges of the relation); E: edges; T: training nodes. The tables of the documentation show the same formulas.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering.errors import StorageError
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.memory import Budget, available_memory
from tiering.sampling import SamplingOptions
from tiering.sampling.memory import batch_bytes, sums_bytes
from tiering.units import format_count

SLACK = 32 << 20
"""Of every method: small objects, stacks, what the allocator rounds up."""
HUGE_PAGE = 2 << 20
"""A large array takes whole ones."""
BIN_NODES = 1 << 16
"""Sources whose sums are in the cache together; also the columns of a block."""
LEAST_PIECE, MOST_PIECES = 1 << 20, 256
"""Edges that are summed as one piece: at most the larger of so many and one part in so many of all."""
LEAST_BINS, CACHED_COLUMNS = 64, 1 << 17
"""Bins of a small graph, and columns of a relation up to which all count as dense."""
LINE_BYTES = 184
"""Of one bin and kind of column while a thread fills it."""
STAGED_BYTES = 4096
"""At least collected of a bin and kind before it goes to disk."""
COUNTED_EDGES = 1 << 25
"""Edges whose out-degrees are counted together."""
READ_BYTES = 8 << 20
"""Of a thread that reads indices past the page cache."""
LARGEST_BIN = 1 << 22
"""Nodes of the largest bin of ``hybrid``."""


@dataclass(frozen=True)
class Sizes:
    """What decides the memory of a score."""

    nodes: tuple[int, ...]
    """Per node type."""
    relations: tuple[tuple[int, int, int], ...]
    """Source type, destination type, edges."""
    train: int
    """Training nodes."""
    threads: int

    @classmethod
    def of(cls, graph: SizedGraph, train: int, threads: int) -> Sizes:
        """Those of a graph."""
        types = list(graph.node_types)
        relations = [(types.index(r[0]), types.index(r[2]), graph.num_edges(r)) for r in graph.relations]
        return cls(tuple(graph.num_nodes(t) for t in types), tuple(relations), train, threads)

    @property
    def all_nodes(self) -> int:
        """N."""
        return sum(self.nodes)

    @property
    def list_nodes(self) -> int:
        """D."""
        return sum(self.nodes[destination] for _, destination, _ in self.relations)

    @property
    def edges(self) -> int:
        """E."""
        return sum(edges for _, _, edges in self.relations)


@dataclass(frozen=True)
class Need:
    """Memory of a method."""

    least: int
    """With less it cannot be done."""
    plenty: int
    """More makes it no faster."""
    what: str
    """What needs it, for people."""
    kept: int = 0
    """Of sweeps: of both, what stays however many edges are in memory."""

    def beside(self, nbytes: int, what: str) -> Need:
        """With `nbytes` that are held all the while."""
        return Need(self.least + nbytes, self.plenty + nbytes, what, self.kept + nbytes)


def sum_bins(nodes: int) -> int:
    """Bins of a type's nodes: 64, or as many as there must be for 2^16 nodes each."""
    return max(min(LEAST_BINS, nodes), -(-nodes // BIN_NODES))


def dense_degree(bins: int, nodes: int) -> int:
    """In-degree from which a column is dense."""
    return 1 if nodes <= CACHED_COLUMNS or bins < 16 else bins // 8


def most_dense(bins: int, nodes: int, edges: int) -> int:
    """Columns that are dense at the most."""
    return min(nodes, edges // dense_degree(bins, nodes))


def sums(sizes: Sizes) -> Need:
    """Memory of sweeps over the edges (`tiering.native.reverse_pagerank`, `inclusion_probability`).

    Notes
    -----
    Always: per column with in-neighbours 10 bytes, 16 for those of high in-degree (at least an eighth of the number of
    bins; all where there are few columns or bins); 2 bits per column; 8 bytes per bin of 2^16 sources and block of 2^16
    columns; 8.5 MiB per thread. At the least, beside it, one piece of the edges, 2^20 or 1/256 of all: 8 bytes for each
    expanded value, twice 4 for its edges, which are read from disk while the piece before is summed; or, while the
    edges are put in bins, 4 KiB per bin. Plenty is 4 bytes for every edge and 8 for the expanded values of a quarter
    of them.
    """
    always = max(sizes.threads * 8 * BIN_NODES, 2 * HUGE_PAGE) + sizes.threads * READ_BYTES + SLACK
    binning = padding = 0
    for source, destination, edges in sizes.relations:
        bins, nodes = sum_bins(sizes.nodes[source]), sizes.nodes[destination]
        columns = min(nodes, edges)
        dense = most_dense(bins, nodes, edges)
        blocks = columns // BIN_NODES + 2 + 4 * sizes.threads
        always += 10 * columns + 6 * dense + nodes // 4 + nodes // 256 + 8 * bins * blocks + 5 * HUGE_PAGE
        binning = max(binning, 2 * bins * (LINE_BYTES * sizes.threads + STAGED_BYTES))
        padding += 2 * sizes.threads * 1024
    piece = max(LEAST_PIECE, sizes.edges // MOST_PIECES) + padding
    group = 16 * piece + 3 * 8 * BIN_NODES + 2 * MOST_PIECES * 8192
    quarter = max(LEAST_PIECE, sizes.edges // 4) + piece
    plenty = 4 * (sizes.edges + len(sizes.relations) * padding) + 8 * quarter + 66 * 8 * BIN_NODES
    least = always + min(max(group, binning), plenty)
    return Need(least, always + max(plenty, binning), "", always)


def degree_need(sizes: Sizes) -> Need:
    """``degree``: 8 N, 8 more for the largest type if it is the source of several relations, 4 for 2^25 edges."""
    sources = [source for source, _, _ in sizes.relations]
    again = max((sizes.nodes[s] for s in sources if sources.count(s) > 1), default=0)
    batch = 4 * min(max((edges for _, _, edges in sizes.relations), default=0), COUNTED_EDGES)
    need = 8 * (sizes.all_nodes + again) + batch + 256 * 160 * sizes.threads + SLACK + 2 * HUGE_PAGE
    return Need(need, need, f"degree: 8 bytes for each of {format_count(sizes.all_nodes)} nodes and counters")


def rank_need(sizes: Sizes) -> Need:
    """``rpr``, ``wrpr``: 8 N for the scores, 8 T for the training nodes in order, and `sums`."""
    what = f"reverse PageRank: {format_count(sizes.all_nodes)} nodes, their columns and one piece of the edges"
    return sums(sizes).beside(8 * sizes.all_nodes + 8 * sizes.train + len(sizes.nodes) * HUGE_PAGE, what)


def vip_need(sizes: Sizes) -> Need:
    """``vip``: 16 N, 24 D (16 D where only new nodes ask), 8 T, and `sums`."""
    lists = 24 * sizes.list_nodes + 3 * len(sizes.relations) * HUGE_PAGE
    held = 16 * sizes.all_nodes + lists + 8 * sizes.train + 2 * len(sizes.nodes) * HUGE_PAGE
    what = f"vip: {format_count(sizes.all_nodes)} nodes, their lists and columns and one piece of the edges"
    return sums(sizes).beside(held, what)


def presample_need(graph: SizedGraph, sizes: Sizes, sampling: SamplingOptions) -> Need:
    """``presample``: 8 (N + D) for the counters, 24 T for an epoch's order, and sampling.

    Sampling takes a batch per thread (`tiering.sampling.memory.batch_bytes`), one at the least, and 8 E with edge
    weights.
    """
    held = 8 * (sizes.all_nodes + sizes.list_nodes) + 24 * sizes.train + sums_bytes(graph, sampling) + SLACK
    batch = batch_bytes(graph, sampling)
    what = f"presample: counters of {format_count(sizes.all_nodes)} nodes and their lists, and a batch"
    return Need(held + batch, held + sizes.threads * batch, what)


def hybrid_need(graph: SizedGraph, sizes: Sizes, sampling: SamplingOptions, squares: bool, prior: Need) -> Need:
    """``hybrid``: the largest of its steps: counting, the prior, and weighing one against the other.

    Counting is ``presample``, with 16 (N + D) more where the counts of several epochs tell what is noise. The prior is
    ``vip`` (``wrpr``) beside 8 (N + D) of counts, or 16. Weighing holds both, 8 (N + D) and 8 or 16, and per node of
    one type up to 28 to sort (40 from 2^31 nodes), then 72 per node of a bin of at most 2^22.
    """
    vectors = 8 * (sizes.all_nodes + sizes.list_nodes)
    counts = vectors * (2 if squares else 1)
    counting = presample_need(graph, sizes, sampling).beside(2 * vectors if squares else 0, "")
    largest = max(sizes.nodes, default=0)
    sort = largest * (28 if largest < 2**31 else 40) if squares else 0
    ranked = largest * (4 if largest < 2**31 else 8) + 72 * min(LARGEST_BIN, largest)
    weighing = vectors + counts + max(sort, ranked, 8 * sizes.all_nodes) + SLACK
    before = prior.beside(counts, "")
    what = f"hybrid: counters, prior and order of {format_count(sizes.all_nodes)} nodes and their lists"
    steps = (counting, before, Need(weighing, weighing, ""))
    return Need(max(step.least for step in steps), max(step.plenty for step in steps), what, before.kept)


DirectFile: TypeAlias = tuple[str, "Callable[[int, memoryview], None] | None"]


def kernel_memory(budget: Budget | None) -> int | None:
    """Bytes that a kernel may take now; ``None`` if there is no budget."""
    return None if budget is None else max(0, budget.left() - SLACK // 2)


def direct_files(graph: Graph, budget: Budget | None, need: Need) -> list[DirectFile]:
    """Per relation, the file of its indices where that is better read past the page cache than mapped, else "".

    With it who compares what is read with the file's checksums, if anybody does.

    That is where the indices are larger than what the method leaves to the cache, so that a scan would throw out its
    own pages.
    """
    if budget is None:
        return []
    arrays = [graph.csc(relation)[1] for relation in graph.relations]
    large = past_the_cache(sum(indices.nbytes for indices in arrays), budget, need)
    verifiers = [getattr(indices, "verifier", None) for indices in arrays]
    return [
        (_whole_file(indices) if large else "", None if verifier is None else verifier.passed)
        for indices, verifier in zip(arrays, verifiers, strict=True)
    ]


def past_the_cache(nbytes: int, budget: Budget, need: Need) -> bool:
    """Whether so many bytes of indices are more than a method leaves to the page cache."""
    return nbytes > max(0, available_memory() - min(need.plenty, budget.left()))


def _whole_file(array: np.ndarray[Any, Any]) -> str:
    """The file that an array maps from its begin to its end; "" if there is none."""
    if not isinstance(array, np.memmap) or array.filename is None or array.offset != 0:
        return ""
    path = Path(array.filename)
    return str(path) if path.stat().st_size == array.nbytes else ""


@contextmanager
def scratch_errors() -> Iterator[None]:
    """Say what to do where the disk refuses the scratch file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        advice = "; make room, or give more memory, so that less goes to disk" if error.errno == errno.ENOSPC else ""
        raise StorageError(error.errno or errno.EIO, f"{error.strerror or error}{advice}") from error
