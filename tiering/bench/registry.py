"""The benchmarks by name, as `tiering bench` runs them, at full size or tiny."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tiering.bench.copy import bench_copy
from tiering.bench.gpu_epoch import bench_gpu_epoch, bench_gpu_ssd
from tiering.bench.gpu_mixed import bench_gpu_mixed_rows
from tiering.bench.gpu_rows import bench_gpu_host_rows, bench_gpu_local_rows
from tiering.bench.gpu_sampling import bench_gpu_sampling
from tiering.bench.gpu_side import gpu_missing
from tiering.bench.gpu_times import bench_gpu_times
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
    run: Callable[[Sizes], Comparison | list[Comparison]]
    """Runs it."""
    gpu: bool = False
    """Whether it needs a GPU."""

    def results(self, sizes: Sizes) -> list[Comparison]:
        """Run it; one comparison for each setting that it tries.

        Raises
        ------
        CapabilityError
            If it needs a GPU and none can be used.
        """
        found = self.run(sizes)
        return [found] if isinstance(found, Comparison) else found

    def missing(self) -> str:
        """Why it cannot run on this machine; empty if it can."""
        return gpu_missing() if self.gpu else ""


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
    Benchmark("gpu-host-rows", "GPU: rows in host memory, beside copying and torch", bench_gpu_host_rows, True),
    Benchmark("gpu-local-rows", "GPU: rows in its own memory, beside copying and torch", bench_gpu_local_rows, True),
    Benchmark("gpu-mixed-rows", "GPU: the hottest rows local, the rest on the host", bench_gpu_mixed_rows, True),
    Benchmark("gpu-sampling", "GPU: sampling with lists split over memories", bench_gpu_sampling, True),
    Benchmark("gpu-epoch", "GPU: epochs of GraphSAGE, by where rows lie", bench_gpu_epoch, True),
    Benchmark("gpu-ssd", "GPU: epochs with half the rows on SSD", bench_gpu_ssd, True),
    Benchmark("gpu-times", "GPU: seconds per access, for layout --access-costs", bench_gpu_times, True),
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
