"""`tiering bench`: kernels beside their peers and beside the machine's limit, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, MemoryOption
from .output import note, print_fields, print_json, print_table

if TYPE_CHECKING:
    from tiering.bench.harness import Comparison
    from tiering.bench.registry import Benchmark
    from tiering.bench.sizes import Sizes


def bench_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which; all if none.")] = None,
    scale: Annotated[int, typer.Option(help="R-MAT graphs have 2**SCALE nodes.", min=4, max=30)] = 22,
    edges: Annotated[int, typer.Option(help="Edges of the R-MAT graph.", min=1)] = 50_331_648,
    repeats: Annotated[int, typer.Option(help="Timed turns of each side.", min=1)] = 5,
    scramble: Annotated[
        bool, typer.Option("--scramble", help="Ids of the R-MAT graph tell nothing about degrees.")
    ] = False,
    threads: Annotated[str, typer.Option(metavar="N|auto", help="Our threads.")] = "auto",
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="File that random reads go to; tables that a GPU gathers from.")
    ] = "4GiB",
    seconds: Annotated[float, typer.Option(help="Length of a turn of random reads.", min=0.01)] = 3.0,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Directory on the disk to measure.")] = Path(),
    nodes: Annotated[int, typer.Option(help="Stages: nodes of the graph; 0: 2**SCALE.", min=0)] = 0,
    memory: MemoryOption = "auto",
    features: Annotated[str, typer.Option(metavar="SIZE", help="Stage layout: size of the feature table.")] = "1GiB",
    row_bytes: Annotated[int, typer.Option(help="Stage layout, epochs on a GPU: bytes of a row.", min=1)] = 2048,
    slow_peers: Annotated[bool, typer.Option(help="Run peers that take tens of seconds a turn, too.")] = True,
    graphbolt_python: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            help="Interpreter of an environment with GraphBolt.",
            envvar="TIERING_GRAPHBOLT_PYTHON",
            show_default=False,
        ),
    ] = None,
    sms: Annotated[
        str, typer.Option(metavar="N|auto", help="GPU: multiprocessors for gathers from host memory; auto: a tenth.")
    ] = "auto",
    gpu_times_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="gpu-times: write them for layout --access-costs.", show_default=False),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Time kernels beside their peers and the machine's limit, turn by turn, and print ratios with their spread."""
    from tiering.bench.registry import select
    from tiering.bench.sizes import Sizes
    from tiering.errors import InputError
    from tiering.units import parse_bytes, parse_threads

    chosen = select(names or [])
    if listing:
        print_table("", ["benchmark", "what is compared"], [[b.name, b.summary] for b in chosen], left=2)
        return
    sizes = Sizes(
        scale=scale,
        edges=edges,
        repeats=repeats,
        threads=parse_threads(threads),
        scramble=scramble,
        image_bytes=parse_bytes(size, "--size"),
        seconds=seconds,
        folder=folder,
        stage_nodes=nodes,
        memory=memory,
        feature_bytes=parse_bytes(features, "--features"),
        row_bytes=row_bytes,
        slow_peers=slow_peers,
        graphbolt_python=graphbolt_python,
        gpu_sms=int(sms) if sms.isdigit() else sms,
        gpu_times_out=gpu_times_out,
    )
    if gpu_times_out is not None and "gpu-times" not in (names or []):
        raise InputError("--gpu-times-out: only with `tiering bench gpu-times`, which measures them")
    _report(_run(chosen, sizes, named=bool(names)), any(benchmark.gpu for benchmark in chosen), as_json)


def _run(chosen: list[Benchmark], sizes: Sizes, *, named: bool) -> list[Comparison]:
    """Results, one after the other; what was not asked for by name and cannot run here is passed over."""
    from tiering.errors import CapabilityError

    done: list[Comparison] = []
    for benchmark in chosen:
        if reason := benchmark.missing():
            if named:
                raise CapabilityError(f"{benchmark.name}: {reason}")
            note(f"{benchmark.name}: skipped: {reason}")
            continue
        note(f"{benchmark.name}: {benchmark.summary} ...")
        done += benchmark.results(sizes)
    return done


def _report(done: list[Comparison], gpu: bool, as_json: bool) -> None:
    """Print machine and results."""
    from tiering.bench.machine import describe_machine
    from tiering.units import format_bytes

    machine = describe_machine(gpu=gpu)
    if as_json:
        print_json({"machine": machine, "benchmarks": [comparison.to_json() for comparison in done]})
        return
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items())
    memory = format_bytes(machine["memory_bytes"])
    processor = f"{machine['processor']}, {machine['cores']} cores, {memory}"
    fields: dict[str, object] = {"machine": processor, "kernel": machine["kernel"], "versions": versions}
    if found := machine.get("gpu"):
        fields["gpu"] = f"{found['name']}, {found['multiprocessors']} SMs, {format_bytes(found['memory_bytes'])}"
        fields["driver"] = ", ".join(f"{name} {value}" for name, value in (found["driver"] | found["cuda"]).items())
    print_fields(fields)
    for comparison in done:
        _print(comparison)


def _print(comparison: Comparison) -> None:
    result = comparison.to_json()
    rows = [["tiering", _rate(result["rate"], comparison.unit), f"{result['median_seconds']:.4g} s", ""]]
    for peer in result["peers"]:
        if "ratio" in peer:
            spread = f"{peer['ratio']:.2f}x ({peer['ratio_min']:.2f} .. {peer['ratio_max']:.2f})"
            if "target" in peer:
                spread += f", aim {peer['target']:.2f}"
            median = sorted(peer["seconds"])[len(peer["seconds"]) // 2]
            rows.append([peer["name"], _rate(peer["rate"], comparison.unit), f"{median:.4g} s", spread])
        else:
            rows.append([peer["name"], "-", "-", peer["note"]])
    settings = ", ".join(f"{name} {value}" for name, value in comparison.parameters.items())
    print_table(f"{comparison.name}: {settings}", ["", "rate", "median", "tiering is faster by"], rows)


def _rate(rate: float, unit: str) -> str:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g} {prefix}{unit if unit == 'B' else ' ' + unit}/s"
    return f"{rate:.3g} {unit}/s"
