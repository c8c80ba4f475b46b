"""The benchmarks by name, as `tiering bench` runs them, at full size or tiny."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tiering.bench.copy import bench_copy
from tiering.bench.harness import Comparison
from tiering.bench.kernels import bench_coo_to_csc, bench_relabel
from tiering.bench.sampling import bench_ladies, bench_pinsage, bench_replacement, bench_sampling, bench_weighted
from tiering.bench.sizes import Sizes
from tiering.bench.ssd import bench_ssd
from tiering.bench.stages import bench_import, bench_layout, bench_reorder, bench_score
from tiering.bench.sweeps import bench_vip, bench_wrpr
from tiering.errors import MissingError


@dataclass(frozen=True)
class Benchmark:
    """One benchmark."""

    name: str
    """What the user types."""
    summary: str
    """What is compared with what."""
    run: Callable[[Sizes], Comparison]
    """Runs it."""


BENCHMARKS = (
    Benchmark("copy", "memory copied: the machine's own limit", bench_copy),
    Benchmark("coo-to-csc", "edge list to CSC, beside scipy and DGL", bench_coo_to_csc),
    Benchmark("wrpr", "five sweeps of weighted reverse PageRank from the CSC, beside scipy on a ready CSR", bench_wrpr),
    Benchmark("vip", "vertex inclusion probability over three hops, beside numpy with scipy's products", bench_vip),
    Benchmark("relabel", "adjacency permuted, beside scipy and DGL", bench_relabel),
    Benchmark("sampling", "neighbour sampling, fanouts 10,10,10, beside DGL and GraphBolt", bench_sampling),
    Benchmark("sampling-replacement", "the same with replacement", bench_replacement),
    Benchmark("sampling-weighted", "the same by edge weights, without replacement", bench_weighted),
    Benchmark("sampling-pinsage", "random walks with restart, beside DGL's", bench_pinsage),
    Benchmark("sampling-ladies", "layer-wise importance sampling; no peer", bench_ladies),
    Benchmark("import", "stage: edge list in a file to a graph, beside the disk", bench_import),
    Benchmark("score", "stage: five sweeps of wrpr from file to file, beside the disk", bench_score),
    Benchmark("reorder", "stage: a graph renumbered, from file to file, beside the disk", bench_reorder),
    Benchmark("layout", "stage: feature rows into tiers, beside the disk and a memory map", bench_layout),
    Benchmark("ssd", "random 4 KiB rows of the ssd tier, beside fio", bench_ssd),
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
