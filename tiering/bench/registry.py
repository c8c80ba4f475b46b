"""The benchmarks by name, as `tiering bench` runs them, at full size or tiny."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tiering.bench.harness import Comparison
from tiering.errors import MissingError

if TYPE_CHECKING:
    from tiering.bench.kernels import Setting


@dataclass(frozen=True)
class Sizes:
    """How large the benchmarks are; the defaults are those the documentation quotes."""

    scale: int = 22
    """R-MAT graphs have 2**scale nodes."""
    edges: int = 50_331_648
    """Edges of the R-MAT graph."""
    repeats: int = 5
    """Timed turns of each side."""
    threads: int = 2
    """Our threads; peers use what they use."""
    image_bytes: int = 4 * 1024**3
    """Size of the file that random reads go to."""
    seconds: float = 3.0
    """Length of a turn of random reads."""
    folder: Path = Path()
    """Directory on the device whose reads are measured."""
    slow_peers: bool = True
    """Run peers that take tens of seconds a turn (`dgl.reorder_graph`), too."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark."""

    name: str
    """What the user types."""
    summary: str
    """What is compared with what."""
    run: Callable[[Sizes], Comparison]
    """Runs it."""


def _coo_to_csc(sizes: Sizes) -> Comparison:
    from tiering.bench import kernels

    return kernels.bench_coo_to_csc(_setting(sizes))


def _wrpr(sizes: Sizes) -> Comparison:
    from tiering.bench import kernels

    return kernels.bench_wrpr(_setting(sizes))


def _relabel(sizes: Sizes) -> Comparison:
    from tiering.bench import kernels

    return kernels.bench_relabel(_setting(sizes), dgl=sizes.slow_peers)


def _setting(sizes: Sizes) -> Setting:
    from tiering.bench.kernels import Setting

    return Setting(scale=sizes.scale, edges=sizes.edges, repeats=sizes.repeats, threads=sizes.threads)


def _sampling(sizes: Sizes) -> Comparison:
    from tiering.bench.sampling import sampling

    batches = max(1, min(40, (1 << sizes.scale) // 1000))
    batch_size = min(1000, 1 << sizes.scale)
    return sampling(
        scale=sizes.scale,
        num_edges=sizes.edges,
        batches=batches,
        batch_size=batch_size,
        repeats=sizes.repeats,
        threads=sizes.threads,
    )


def _ssd(sizes: Sizes) -> Comparison:
    from tiering.bench.ssd import random_rows

    return random_rows(sizes.folder, size=sizes.image_bytes, seconds=sizes.seconds, repeats=sizes.repeats)


def _copy(sizes: Sizes) -> Comparison:
    from tiering.bench.copy import copy_bandwidth

    megabytes = max(1, min(2048, sizes.edges // 25_000))
    return copy_bandwidth(megabytes=megabytes, threads=sizes.threads, repeats=sizes.repeats)


BENCHMARKS = (
    Benchmark("copy", "memory copied: the machine's own limit", _copy),
    Benchmark("coo-to-csc", "edge list to CSC, beside scipy", _coo_to_csc),
    Benchmark("wrpr", "five sweeps of weighted reverse PageRank from the CSC, beside scipy's products", _wrpr),
    Benchmark("relabel", "adjacency permuted, beside scipy and DGL", _relabel),
    Benchmark("sampling", "neighbour sampling, fanouts 10,10,10, beside DGL's NeighborSampler", _sampling),
    Benchmark("ssd", "random 4 KiB rows of the ssd tier, beside fio", _ssd),
)


def select(names: Sequence[str]) -> list[Benchmark]:
    """Benchmarks by name, all if none is named.

    Raises
    ------
    MissingError
        If a name is not known.
    """
    known = {benchmark.name: benchmark for benchmark in BENCHMARKS}
    for name in names:
        if name not in known:
            raise MissingError(f"no benchmark {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names] or list(BENCHMARKS)
