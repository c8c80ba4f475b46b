"""``python -m benchmarks NAME...`` times kernels and stages beside their peers, turn by turn; ``--list`` names them.

Reports have options of their own (``python -m benchmarks scale --help``) and write tables of docs/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness import Comparison, Sizes
from benchmarks.machine import describe_machine, show_machine
from benchmarks.pages import markdown, rate, spread
from tiering.errors import CapabilityError, MissingError, TieringError


@dataclass(frozen=True)
class Benchmark:
    """One benchmark."""

    summary: str
    """What is compared with what."""
    function: str
    """Module and function, loaded when it runs: those for GPUs import torch."""

    @property
    def gpu(self) -> bool:
        """Whether it needs a GPU."""
        return self.function.startswith("gpu.")

    def load(self) -> Any:
        """The function."""
        module, _, name = self.function.rpartition(".")
        return getattr(import_module(f"benchmarks.{module}"), name)


BENCHMARKS = {
    "copy": Benchmark("memory copied: the machine's own limit", "kernels.copy"),
    "coo-to-csc": Benchmark("edge list to CSC, beside scipy and DGL", "kernels.coo_to_csc"),
    "wrpr": Benchmark("five sweeps of wrpr from the CSC, beside scipy on a ready CSR", "kernels.wrpr"),
    "vip": Benchmark("inclusion probability over three hops, beside numpy with scipy's products", "kernels.vip"),
    "relabel": Benchmark("adjacency permuted, beside scipy and DGL", "kernels.relabel"),
    "sampling": Benchmark("neighbour sampling, fanouts 10,10,10, beside DGL and GraphBolt", "sampling.uniform"),
    "sampling-replacement": Benchmark("the same with replacement", "sampling.replacement"),
    "sampling-weighted": Benchmark("the same by edge weights, without replacement", "sampling.weighted"),
    "sampling-pinsage": Benchmark("random walks with restart, beside DGL's", "sampling.pinsage"),
    "sampling-ladies": Benchmark("layer-wise importance sampling; no peer", "sampling.ladies"),
    "import": Benchmark("stage: edge list in a file to a graph, beside the disk", "stages.import_"),
    "score": Benchmark("stage: five sweeps of wrpr from file to file, beside the disk", "stages.score"),
    "reorder": Benchmark("stage: a graph renumbered, from file to file, beside the disk", "stages.reorder"),
    "layout": Benchmark("stage: feature rows into tiers, beside the disk and a memory map", "stages.layout"),
    "ssd": Benchmark("random 4 KiB rows of the ssd tier, beside fio", "ssd.ssd"),
    "gpu-rows": Benchmark("GPU: rows of host memory, its own, or both, beside copying and torch", "gpu.rows.rows"),
    "gpu-sampling": Benchmark("GPU: sampling with lists split over memories", "gpu.sampling.sampling"),
    "gpu-epoch": Benchmark("GPU: epochs of GraphSAGE, by where rows lie", "gpu.epochs.epoch"),
    "gpu-ssd": Benchmark("GPU: epochs with half the rows on SSD", "gpu.epochs.ssd"),
    "gpu-times": Benchmark("GPU: seconds per access, for layout --access-costs", "gpu.times.times"),
}
REPORTS = {
    "stages": ("stages and kernels beside another checkout's, or beside --no-verify", "against"),
    "scale": ("how time grows; writes docs/internals/scale.md", "scale"),
    "scores": ("hit rates of every score; writes docs/scores.md", "score_tables"),
}
"""By name: what it reports, and the module whose ``main`` does."""
GPU = [name for name, benchmark in BENCHMARKS.items() if benchmark.gpu]


def run(name: str, sizes: Sizes) -> list[Comparison]:
    """Run a benchmark; one comparison for each setting that it tries."""
    done = BENCHMARKS[name].load()(sizes)
    return [done] if isinstance(done, Comparison) else list(done)


def run_all(names: Sequence[str], sizes: Sizes) -> list[Comparison]:
    """Results, one after the other; what was not asked for by name and cannot run here is passed over.

    Raises
    ------
    MissingError
        If a name is not known.
    CapabilityError
        If one that was named needs a GPU and none can be used.
    """
    for name in names:
        if name not in BENCHMARKS:
            raise MissingError(f"no benchmark {name!r}; there are: {', '.join([*BENCHMARKS, *REPORTS])}")
    done: list[Comparison] = []
    for name in names or BENCHMARKS:
        if BENCHMARKS[name].gpu and (reason := _gpu_missing()):
            if names:
                raise CapabilityError(f"{name}: {reason}")
            print(f"{name}: skipped: {reason}", file=sys.stderr)
            continue
        print(f"{name}: {BENCHMARKS[name].summary} ...", file=sys.stderr, flush=True)
        done += run(name, sizes)
    return done


def _gpu_missing() -> str:
    try:
        return str(import_module("benchmarks.gpu.side").gpu_missing())
    except ImportError as error:
        return str(error)


def show(comparison: Comparison) -> str:
    """A comparison as Markdown."""
    result = comparison.to_json()
    ours = [comparison.ours.name, rate(result["rate"], result["unit"]), f"{result['median_seconds']:.4g} s", "", ""]
    rows = [ours]
    for peer in result["peers"]:
        if "ratio" not in peer:
            rows.append([peer["name"], "-", "-", "-", peer["note"]])
            continue
        median = sorted(peer["seconds"])[len(peer["seconds"]) // 2]
        ratio = spread(peer) + (f", aim {peer['target']:.2f}" if "target" in peer else "")
        cpu = spread(peer, "cpu_ratio") if "cpu_ratio" in peer else "-"
        rows.append([peer["name"], rate(peer["rate"], result["unit"]), f"{median:.4g} s", ratio, cpu])
    settings = ", ".join(f"{name} {value}" for name, value in comparison.parameters.items())
    heads = [comparison.name, "rate", "median", "faster by", "in processors' time"]
    return f"{markdown(heads, rows, left=1)}\n{settings}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in REPORTS:
        return int(import_module(f"benchmarks.{REPORTS[arguments[0]][1]}").main(arguments[1:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all if none; gpu: all for a GPU")
    parser.add_argument("--list", action="store_true", help="list benchmarks and reports")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--docs", type=Path, metavar="DIR", help="GPU: write DIR/benchmarks and the tables of DIR/gpu.md"
    )
    Sizes.options(parser)
    given = parser.parse_args(arguments)
    if given.list:
        known = [*((n, b.summary) for n, b in BENCHMARKS.items()), *((n, s) for n, (s, _) in REPORTS.items())]
        print("\n".join(f"{name:22}{summary}" for name, summary in known))
        return 0
    try:
        names = [n for name in given.names for n in (GPU if name == "gpu" else [name])]
        if given.docs:
            import_module("benchmarks.gpu.page").write(given.docs, names or GPU, Sizes.given(given), run)
        else:
            _report(run_all(names, Sizes.given(given)), given.json)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _report(done: list[Comparison], out: Path | None) -> None:
    machine = describe_machine(gpu=any("gpu" in comparison.name for comparison in done))
    print(show_machine(machine) + "\n")
    for comparison in done:
        print(show(comparison))
    if out:
        document = {"machine": machine, "benchmarks": [comparison.to_json() for comparison in done]}
        out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
