"""Signatures of the C++ core (``ext/bindings``). Import them through ``tiering.native``.

Conventions: ids are int32 or int64; ``indptr`` is int64 with one entry more than there are columns; output
ids are int32 below 2^31 nodes, else int64. ``threads`` is at least 1 and never changes the result.
`tiering.errors.RefusedError` names the argument, and the first place in it, that does not fit.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IdArray: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
NodeValues: TypeAlias = NDArray[np.float64] | tuple[float, float, NDArray[np.int64]]
WeightArray = NDArray[np.float32] | NDArray[np.float64]

def build_info() -> dict[str, str]:
    """What the build found: ``compiler``, ``build_type``, ``liburing``, ``nvcc``."""

# ---------------------------------------------------------------------------------------------- graph

def coo_to_csc(
    src: IdArray,
    dst: IdArray,
    num_src: int,
    num_dst: int,
    threads: int = 1,
    want_positions: bool = False,
) -> tuple[NDArray[np.int64], IdArray, NDArray[np.int64] | None]:
    """Edges ``src[k] -> dst[k]`` to CSC: ``(indptr, indices, positions)``.

    `src` and `dst` may have any stride. Within a column the edges keep their input order; duplicates stay.
    ``positions[k]`` is the input index of entry k. Memory: 8 bytes per edge beside the result, 16 with
    positions.
    """

def transpose(
    indptr: NDArray[np.int64],
    indices: IdArray,
    num_rows: int,
    threads: int = 1,
    want_positions: bool = False,
) -> tuple[NDArray[np.int64], IdArray, NDArray[np.int64] | None]:
    """CSC to CSR: row u lists the columns that contain u, ascending; ``positions[k]`` indexes the CSC."""

def check_indptr(indptr: NDArray[np.int64], num_indices: int, threads: int = 1) -> None:
    """Refuse offsets that do not start at 0, fall, or do not end at the number of indices."""

def check_csc(indptr: NDArray[np.int64], indices: IdArray, num_src: int, threads: int = 1) -> None:
    """``ValueError`` saying where indptr does not rise from 0 to len(indices), or an id is out of range."""

def scattered_bytes(num_src: int) -> int:
    """Bytes of the record of an edge that `scatter_edges` makes."""

def count_buckets(dst: IdArray, first_edge: int, num_dst: int, shift: int, threads: int = 1) -> NDArray[np.int64]:
    """Edges of a chunk by bucket ``dst >> shift``, shape (threads, buckets): each thread counts an equal part.

    ``ValueError`` naming an edge, numbered from `first_edge` on, whose destination is outside ``0..num_dst-1``.
    """

def scatter_edges(
    src: IdArray,
    dst: IdArray,
    values: Sequence[NDArray[np.uint8] | None],
    first_edge: int,
    num_src: int,
    num_dst: int,
    shift: int,
    counts: NDArray[np.int64],
    first: int,
    parts: Sequence[NDArray[np.uint8]],
) -> None:
    """Partition a chunk of edges by bucket, in input order; `counts` is what `count_buckets` said.

    Each of `values` has shape (edges, bytes of a value), or is ``None`` for the numbers of the edges as int64. `parts`
    takes the records, `scattered_bytes` each, and then each value, bucket after bucket; those of buckets below `first`
    are dropped. ``ValueError`` naming an edge whose source is outside ``0..num_src-1``.
    """

def sort_runs(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    counts: NDArray[np.int64],
    item_bytes: Sequence[int],
    num_columns: int,
    shift: int,
    num_src: int,
    first_entry: int,
    indptr: NDArray[np.int64],
    outs: Sequence[NDArray[np.uint8]],
    threads: int = 1,
) -> None:
    """Sort what consecutive buckets with `num_columns` columns hold by column; the records are used up.

    Run c begins in `memory` at ``places[c, 0]`` with its records, bucket after bucket, ``counts[c, b]`` each; its
    values of ``item_bytes[i]`` begin at ``places[c, i + 1]``. Fills ``indptr[v]`` with `first_entry` plus the entries
    before column v, and `outs` with the bytes of the ids (int32, or int64 where `num_src` is 2^31 or more) and of each
    value.
    """

def out_degrees(indices: IdArray, num_src: int, threads: int = 1) -> NDArray[np.int64]:
    """How often each id in ``0..num_src-1`` stands in `indices`."""

def rmat_edges(
    scale: int, num_edges: int, seed: int = 0, threads: int = 1, scramble: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """``(src, dst)`` of an R-MAT graph of 2**scale nodes, scale 1..30; quadrant odds .57 .19 .19 .05.

    Low ids have high degrees unless `scramble` relabels the nodes by a bijection.
    """

# --------------------------------------------------------------------------------------------- scores

def plan_sweeps(
    relations: Sequence[tuple[int, int, int, NDArray[np.int64]]],
    threads: int,
    memory: int | None = None,
    from_files: bool = False,
) -> tuple[int, int, int]:
    """``(minimum, sufficient, scratch)``: bytes that sweeps take, by the rules that they follow themselves.

    A relation is ``(nodes of the source type, of the destination type, edges, in-degrees of some columns)``; without
    degrees they may be any. The minimum suffices for every graph of these sizes; more than `sufficient` makes nothing
    faster. `scratch`, of edges on disk where `memory` bytes are given: about, as if all columns were like those whose
    degrees are known, and all bins of one size. `from_files`: indices are read from files. What belongs to the caller
    (scores, results) is in none of these.
    """

def reverse_pagerank(
    relations: Sequence[tuple[int, int, NDArray[np.int64], IdArray]],
    num_nodes: Sequence[int],
    start: Sequence[NodeValues],
    teleport: Sequence[NodeValues],
    damping: float = 0.85,
    max_sweeps: int = 5,
    tolerance: float = 0.0,
    threads: int = 1,
    memory: int | None = None,
    scratch: str = ".",
    files: Sequence[tuple[str, Callable[[int, memoryview], None] | None]] = (),
) -> tuple[list[NDArray[np.float64]], int, float]:
    """``(scores per node type, sweeps done, L1 change of the last sweep)``.

    A relation is ``(src_type, dst_type, indptr, indices)``, types being positions in `num_nodes`. A sweep is
    ``new[t](u) = teleport[t](u) + damping * (sum over relations from t, edges u -> v, of s(v) / indeg(v))``.
    Tolerance 0 does exactly `max_sweeps`; otherwise it stops once the L1 change is at most `tolerance`.
    `start` and `teleport`: per node type a vector, or ``(rest, chosen, ids)``: `chosen` for the nodes of the ascending
    int64 `ids`, `rest` for the others.
    Memory: 4 to 6 bytes per edge, 10 to 16 per column that has edges, 8 per node. With less, `memory` bytes in all,
    edges lie in a nameless file in the directory `scratch` meanwhile; the result is the same. ``OSError`` if the disk
    is full, with the bytes needed and free. Ctrl-C ends the work. `files`: per relation a file that holds its indices
    from begin to end, read past the page cache in their place; "" for none.
    """

def inclusion_probability(
    relations: Sequence[tuple[int, int, NDArray[np.int64], IdArray]],
    num_nodes: Sequence[int],
    p0: Sequence[NodeValues],
    fanouts: Sequence[Sequence[int]],
    frontier: str = "all",
    replacement: bool = False,
    threads: int = 1,
    memory: int | None = None,
    scratch: str = ".",
    files: Sequence[tuple[str, Callable[[int, memoryview], None] | None]] = (),
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """``(found per node type, reads per relation)`` of one batch of neighbour sampling.

    `relations`, `num_nodes`, `memory`, `scratch` and `files` as in `reverse_pagerank`. ``p0[t]``: probability of each
    node of type t to be a seed. ``fanouts[h][r]``: places drawn from a list of relation r in hop h; -1 all, 0 none.
    `frontier`: the nodes that ask in a hop, ``all`` found so far or only the ``new`` ones.

    ``found[t]``, shape (nodes of t,): probability that the batch contains the node. ``reads[r]``, shape (nodes
    of r's destination type,): expected number of times its list is read. Exact where every node has at most
    one out-edge and seeds are independent; elsewhere the events are counted as if they were independent.
    One sweep of the edges per hop. Memory: 4 to 6 bytes per edge, 10 to 16 per column that has edges, 24 per node
    and relation, 16 per node.
    """

# -------------------------------------------------------------------------------------------- reorder

def relabel_csc(
    indptr: NDArray[np.int64],
    indices: IdArray,
    dst_old_to_new: IdArray,
    src_old_to_new: IdArray,
    threads: int = 1,
) -> tuple[NDArray[np.int64], IdArray]:
    """The graph under new ids: column ``dst_old_to_new[v]`` is the old column v, ids mapped, in the old order."""

def relabel_indptr(indptr: NDArray[np.int64], dst_old_to_new: IdArray, threads: int = 1) -> NDArray[np.int64]:
    """``indptr`` of that graph. The old one must begin at 0 and never fall."""

def place_indices(
    indices: IdArray,
    first_entry: int,
    indptr: NDArray[np.int64],
    dst_old_to_new: IdArray,
    num_src: int,
    first: int,
    first_column: int,
    starts: NDArray[np.int64],
    out: NDArray[np.uint8],
    threads: int = 1,
) -> None:
    """Put a chunk of the old `indices`, entries from `first_entry` on, at their places in a window of the new ones.

    They keep their old ids: see `rename_sources`.

    The window `out` holds the new entries from `first` on; `starts` is the new indptr of the columns that have entries
    there, from `first_column` on. `indptr` is the old one, whole.
    """

def place_values(
    values: NDArray[np.uint8],
    first_entry: int,
    indptr: NDArray[np.int64],
    dst_old_to_new: IdArray,
    first: int,
    first_column: int,
    starts: NDArray[np.int64],
    out: NDArray[np.uint8],
    threads: int = 1,
) -> None:
    """The same for values that run along the edges: bytes of shape (entries of the chunk, bytes of a value)."""

def rename_sources(
    entries: NDArray[np.uint8], src_old_to_new: IdArray, first_source: int, num_src: int, threads: int = 1
) -> None:
    """Give the entries of a window, once all are placed, their new ids.

    `src_old_to_new` may be a part of the map, from `first_source` on. Parts come one after the other, the last part
    last: only then are the entries right.
    """

class ScoreSorter:
    """Orders nodes by descending score, ties by ascending id, from chunks of the scores; NaN is refused.

    Parameters
    ----------
    size
        Number of nodes.
    """

    def __init__(self, size: int, threads: int = 1) -> None: ...
    def count(self, scores: NDArray[np.float64]) -> None:
        """Take a chunk, front to back; all chunks once before the first `place`."""

    def place(self, scores: NDArray[np.float64]) -> None:
        """Take a chunk again, front to back."""

    def finish(self) -> IdArray:
        """``new_to_old``; once, after the last `place`."""

def sort_by_score(scores: NDArray[np.float64], threads: int = 1) -> IdArray:
    """``new_to_old``: ids by descending score, ties by ascending id. NaN is refused."""

def gather_rows(table: NDArray[np.uint8], ids: IdArray, out: NDArray[np.uint8], threads: int = 1) -> None:
    """Copy row ``table[ids[i]]`` to ``out[i]``: `table` (rows, row_bytes) C-contiguous, `out` with any stride."""

def scatter_rows(
    table: NDArray[np.uint8], places: IdArray, first: int, out: NDArray[np.uint8], threads: int = 1
) -> None:
    """Copy row ``table[i]`` to ``out[places[i]]``; a row whose place is no row of `out` is passed over."""

# ---------------------------------------------------------------------------------------------- sampling

MOST_VISITS: int
"""Most visits that one node's walks may make: what the float32 of an edge weight counts exactly."""

class Sampler:
    """Deterministic neighbour sampler; wrapped, checked and documented by ``tiering.sampling``."""

    def __init__(
        self,
        type_names: Sequence[str],
        num_nodes: Sequence[int],
        relations: Sequence[tuple[str, int, int, NDArray[np.int64], IdArray, WeightArray | None]],
        fanouts: Sequence[Sequence[int]],
        frontier: str,
        node_keys: Sequence[IdArray | None],
        seed: int,
        rule: str = "uniform",
        walks: tuple[int, int, float, Sequence[Sequence[int]]] | None = None,
        threads: int = 1,
    ) -> None: ...
    def sample(
        self, seeds: Sequence[NDArray[np.int64]], epoch: int, batch: int, want_positions: bool = False
    ) -> tuple[
        list[NDArray[np.int64]],
        list[list[int]],
        list[list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64] | None, NDArray[np.float32] | None]]],
    ]: ...
    def count_accesses(
        self,
        seeds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
        epoch: int,
        first: int,
        last: int,
        features: Sequence[NDArray[np.int64]],
        adjacency: Sequence[NDArray[np.int64]],
        threads: int,
    ) -> None: ...
    def count_marks(
        self,
        seeds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
        epoch: int,
        first: int,
        last: int,
        maps: Sequence[Sequence[NDArray[np.uint8] | None]],
        num_marks: int,
        features: Sequence[NDArray[np.int64]],
        adjacency: Sequence[NDArray[np.int64]],
        threads: int,
    ) -> NDArray[np.int64]: ...

def cumulative_weights(
    indptr: NDArray[np.int64], weights: NDArray[np.floating], what: str, threads: int = 1
) -> NDArray[np.uint64]:
    """Per column running sums of its weights in whole numbers, which the weighted rule draws by; shape (edges,)."""

def epoch_order(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """A permutation of 0..n-1 that depends on (n, seed, epoch) alone."""

# ---------------------------------------------------------------------------------------------------- io

def page_hashes(data: NDArray[np.uint8], page_bytes: int) -> NDArray[np.uint32]:
    """Low 32 bits of XXH3-64 (seed 0) of each page; `data` holds whole pages."""

def uring_unavailable() -> str:
    """Why io_uring cannot be used here; empty if a ring can be set up and reads."""

ALIGNMENT: int
"""Memory that begins at a multiple of this takes direct reads on any disk."""
DEFAULT_DEPTH: int
"""Reads in flight unless told otherwise: enough to saturate one NVMe SSD."""

class SsdReader:
    """Open SSD images and the engine that reads them: ``io_uring``, ``threads``, ``mmap``, or ``auto``."""

    def __init__(
        self, paths: Sequence[str], page_bytes: int, engine: str, depth: int, direct: str = "auto"
    ) -> None: ...
    @property
    def engine(self) -> str: ...
    @property
    def fallback(self) -> str:
        """Why threads read although ``auto`` prefers io_uring; empty if they do not."""

    @property
    def depth(self) -> int: ...
    @property
    def direct(self) -> bool: ...
    @property
    def note(self) -> str: ...
    @property
    def offset_alignment(self) -> int: ...
    @property
    def memory_alignment(self) -> int: ...

class StreamReader:
    """Reads ranges of files into buffers, a batch at a time, in the background (``ext/include/tiering/io``).

    Parameters
    ----------
    paths
        Files; they may lie on several disks.
    buffers
        uint8, aligned to 4096 bytes, 8 KiB larger than the ranges they are to hold. Page-locked where the limit allows.
    engine
        ``io_uring`` or ``threads``.
    direct
        ``auto``, ``on`` or ``off``.
    """

    def __init__(
        self, paths: Sequence[str], buffers: Sequence[NDArray[np.uint8]], engine: str, direct: str = "auto"
    ) -> None: ...
    def start(self, ranges: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Begin to read: number of the file, offset, bytes, number of the buffer and a place in it for each range.

        Places are multiples of 4096; up to 8 KiB more than the range is written from there on.
        """

    def finish(self) -> list[int]:
        """Wait; per range, at which byte of its buffer it begins. ``OSError`` if a read failed."""

    @property
    def registered(self) -> bool: ...
    @property
    def engine(self) -> str: ...
    @property
    def direct(self) -> bool: ...
    @property
    def note(self) -> str: ...

class GatherStats:
    """What one gather did; lists are by tier: gpu, peer, cpu, ssd."""

    @property
    def rows(self) -> list[int]: ...
    @property
    def bytes(self) -> list[int]: ...
    @property
    def nanoseconds(self) -> list[int]: ...
    @property
    def reads(self) -> int: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def direct_reads(self) -> int: ...
    @property
    def bad_page(self) -> int:
        """Logical page that differs from its checksum, the first of them; -1 if none does."""

    @property
    def fallback(self) -> str:
        """Why the reader left io_uring in this gather; empty if it did not."""

class TieredTable:
    """Rows of one node type in four tiers."""

    def __init__(
        self,
        row_bytes: int,
        ends: Sequence[int],
        gpu: NDArray[np.uint8] | None,
        peers: Sequence[NDArray[np.uint8]],
        cpu: NDArray[np.uint8] | None,
        reader: SsdReader | None,
        first_page: int = 0,
        stride: int = 0,
        rows_per_page: int = 0,
        page_bytes: int = 0,
        checksums: Sequence[NDArray[np.uint32]] = (),
    ) -> None: ...
    def gather(self, ids: NDArray[np.int64], out: NDArray[np.uint8], threads: int = 1) -> GatherStats: ...
