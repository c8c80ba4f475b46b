"""``python -m benchmarks NAME...`` times kernels and stages against their peers, turn by turn; ``--list`` names them.

Reports have options of their own (``python -m benchmarks scale --help``) and write tables of docs/.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness import Comparison, Result, Sizes, Table
from benchmarks.pages import comparison_table, describe_machine, show_machine, write_json
from tiering.errors import CapabilityError, MissingError, TieringError

BENCHMARKS = {
    "memory-copy": ("kernels.copy", "memory copies: the limit of this machine"),
    "coo-to-csc": ("kernels.coo_to_csc", "edge list to CSC in fresh memory, against scipy and DGL"),
    "wrpr": ("kernels.wrpr", "five sweeps of wrpr from the CSC, against scipy on a ready CSR"),
    "vip": ("kernels.vip", "inclusion probability over three hops, against numpy with scipy's products"),
    "relabel": ("kernels.relabel", "permutation of an adjacency, against scipy and DGL"),
    "sampling": ("sampling.uniform", "neighbor sampling, fanouts 10,10,10, against DGL and GraphBolt"),
    "sampling-replacement": ("sampling.replacement", "neighbor sampling with replacement, against DGL and GraphBolt"),
    "sampling-weighted": ("sampling.weighted", "neighbor sampling by edge weights, without replacement"),
    "sampling-pinsage": ("sampling.pinsage", "random walks with restart, against DGL's"),
    "sampling-ladies": ("sampling.ladies", "layer-wise importance sampling; no other library to compare with"),
    "temporal": ("temporal.temporal", "temporal sampling and disjoint batches, against static sampling"),
    "import": ("stages.import_", "stage: edge list in a file to a graph, against the disk"),
    "score": ("stages.score", "stage: five sweeps of wrpr from file to file, against the disk"),
    "reorder": ("stages.reorder", "stage: a graph renumbered, from file to file, against the disk"),
    "layout": ("stages.layout", "stage: feature rows into tiers, against the disk and a memory map"),
    "copy": ("copies.copy", "copies of a layout to a directory and to a simulated S3, against cp and copy_files"),
    "gather": ("gather.gather", "random rows of memory, against a plain C++ loop, torch and numpy"),
    "ssd": ("ssd.ssd", "random 4 KiB rows of the ssd tier, against fio"),
    "gpu-ceilings": ("gpu.ceilings.ceilings", "GPU: memory copies over the link and within the GPU"),
    "gpu-fill": ("gpu.fill.fill", "GPU: a file read into its memory, against kvikio (cuFile)"),
    "gpu-sweep": ("gpu.sweep.sweep", "GPU: gathering rows from host memory, for each setting"),
    "gpu-rows": (
        "gpu.rows.rows",
        "GPU: gathering rows from host memory, GPU memory, or both, against copying and torch",
    ),
    "gpu-latency": ("gpu.latency.latency", "GPU: seconds to gather a batch during matrix products"),
    "gpu-sampling": ("gpu.sampling.sampling", "GPU: sampling with adjacency lists divided over GPU and host memory"),
    "gpu-epoch": ("gpu.epochs.epoch", "GPU: epochs of GraphSAGE, by the tier of the rows"),
    "gpu-ssd": ("gpu.epochs.ssd", "GPU: epochs with half the rows on SSD"),
    "gpu-profile": ("gpu.profile.profile", "GPU: time of each kernel in an epoch"),
    "gpu-times": ("gpu.times.times", "GPU: seconds per access, for layout --access-costs"),
}
"""By name: a function of `Sizes`, loaded when it runs (those for GPUs import torch), and what is compared with what."""
REPORTS = {
    "quantized": (
        "quantized.report",
        "rows stored by codecs: speed, accuracy, sizes; writes docs/internals/quantized-rows.md",
    ),
    "stages": ("against", "stages and kernels against another checkout's, or against --no-verify"),
    "startup": ("startup", "start-up of commands against another checkout's, on 100 nodes"),
    "imports": ("imports", "every reader of the import against the disk; writes a table of docs/internals/imports.md"),
    "scale": ("scale", "time by size of graph; writes docs/internals/scale.md"),
    "loader": ("loader", "epochs of the loader in little memory, against memory maps"),
    "resume": ("resume", "first batch of a resumed epoch, against sampling and discarding the batches before it"),
    "frameworks": ("frameworks", "epochs of the loaders for PyG and DGL, against the frameworks' own"),
    "inference": ("inference", "layer-wise inference in little memory, against memory maps"),
    "adjacency": ("adjacency", "batches of lists that exceed memory, against maps; writes docs/internals/adjacency.md"),
    "lookahead": ("lookahead", "reading ahead against every simulated policy; writes docs/internals/lookahead.md"),
    "plan": ("plan", "epochs predicted by `tiering plan`, then measured by the loader; writes docs/internals/plan.md"),
    "papers": ("papers.report", "reproduced figures of papers; writes docs/papers.md"),
    "nvme": ("gpu.nvme", "engine bam on a GPU without drives: commands/s of a simulated drive"),
    "locality": (
        "locality",
        "hit rates of scores by locality of the training set; writes a table of docs/internals/score-tables.md",
    ),
    "scores": ("score_tables", "hit rates of every score; writes docs/internals/score-tables.md"),
}
"""By name: the module whose ``main`` makes it, and what it reports."""


def gpu_names() -> list[str]:
    """Return the benchmarks that need a GPU."""
    return [name for name, (function, _) in BENCHMARKS.items() if function.startswith("gpu.")]


def run(name: str, sizes: Sizes) -> list[Result]:
    """Run a benchmark; a comparison for each setting that it tries, or a table."""
    module, _, function = BENCHMARKS[name][0].rpartition(".")
    done = getattr(import_module(f"benchmarks.{module}"), function)(sizes)
    return [done] if isinstance(done, (Comparison, Table)) else list(done)


def run_all(names: Sequence[str], sizes: Sizes) -> list[dict[str, Any]]:
    """Return results as JSON; what was not asked for by name and needs a GPU that cannot be used is passed over."""
    for name in names:
        if name not in BENCHMARKS:
            raise MissingError(f"no benchmark {name!r}; there are: {', '.join([*BENCHMARKS, *REPORTS])}")
    done = []
    for name in names or BENCHMARKS:
        if name in gpu_names() and (reason := _gpu_missing()):
            if names:
                raise CapabilityError(f"{name}: {reason}")
            print(f"{name}: skipped: {reason}", file=sys.stderr)
            continue
        print(f"{name}: {BENCHMARKS[name][1]} ...", file=sys.stderr, flush=True)
        done += [result.to_json() for result in run(name, sizes)]
    return done


def _gpu_missing() -> str:
    try:
        return str(import_module("benchmarks.gpu.side").gpu_missing())
    except ImportError as error:
        return str(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in REPORTS:
        return int(import_module(f"benchmarks.{REPORTS[arguments[0]][0]}").main(arguments[1:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; default: all; gpu: all for a GPU")
    parser.add_argument("--list", action="store_true", help="list benchmarks and reports")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="GPU: write DIR/benchmarks and tables of DIR/gpu.md")
    Sizes.options(parser)
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(f"{name:22}{summary}" for name, (_, summary) in (BENCHMARKS | REPORTS).items()))
        return 0
    names = [n for name in given.names for n in (gpu_names() if name == "gpu" else [name])]
    try:
        if given.docs:
            import_module("benchmarks.gpu.page").write(given.docs, names or gpu_names(), Sizes.from_options(given), run)
            return 0
        done = run_all(names, Sizes.from_options(given))
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    machine = describe_machine(gpu=any("gpu" in result["name"] for result in done))
    print(show_machine(machine) + "\n")
    for result in done:
        print(comparison_table(result))
    if given.json:
        write_json(given.json, {"machine": machine, "benchmarks": done})
    return 0


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has what it wanted: `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)
