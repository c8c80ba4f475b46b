"""The commands that only look: `tiering check`, `info`, `doctor` and `datasets`; and `report`, a page about it all."""

from __future__ import annotations

import platform
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from typer import Argument, Option

from tiering import __version__
from tiering.errors import InputError
from tiering.run.options import ClusterOptions
from tiering.text.description import Fields, Part, Table
from tiering.text.units import format_bytes, format_count, parse_bytes, parse_size

from .options import Call, Common, group, takes
from .output import print_artifact, print_estimate, print_result

if TYPE_CHECKING:
    from tiering.datasets.specs import DatasetSpec


_LOOKED_AT = {
    "header": "manifests and sizes; a copy compares the files",
    "structure": "manifest, sizes, index arrays; --full reads every byte",
    "sample": "manifest, sizes, index arrays, a sample of the checksums",
    "full": "manifest, sizes, index arrays, every edge, every checksum",
}


@takes(group(ClusterOptions), group(Common, "threads", "json"), remote=("path",))
def check_command(
    call: Call,
    path: Annotated[
        str, Argument(metavar="PATH", help="Any artifact. In an object store, only manifests and sizes are checked.")
    ],
    full: Annotated[bool, Option("--full", help="Read everything: checksums, every edge, files referred to.")] = False,
    sample: Annotated[
        str, Option(help="With --full: percentage of 64 MiB blocks to compare, for example 1%.", metavar="SHARE")
    ] = "100%",
) -> None:
    """Check an artifact and the artifacts inside it, and print every problem. Exit code 1 if there is any."""
    from tiering.artifacts.artifact import VerifyReport
    from tiering.artifacts.remote import is_url
    from tiering.formats.registry import check_artifact

    level, share = "full" if full else "structure", parse_size(sample, "sample").fraction
    if not share:
        raise InputError(f"sample: expected a fraction of the blocks such as 1%, found {sample!r}")
    if share < 1 and not full:
        raise InputError("sample: only --full compares blocks with checksums; give both options, or neither")
    if (cluster := call.cluster()) is not None and (not full or share < 1):
        raise InputError("executor: tasks compare all blocks; give --full without --sample, or omit --executor")
    damaged: Any = {}
    if cluster is not None and cluster.cuts:
        from tiering.run.checks import compare_by_tasks

        damaged = compare_by_tasks(Path(path), cluster)
    report = VerifyReport(int(call.threads), share, damaged)
    problems = check_artifact(path, level, report)
    document = {"path": path, "level": level, "sound": not problems, "problems": list(map(vars, problems))}
    verdict = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else "sound"
    looked = "header" if is_url(path) else "sample" if share < 1 else level
    summary = f"{path}: {verdict} ({_LOOKED_AT[looked]})"
    document |= {"coverage": report.to_json()} if full else {}
    print_result(call.json, document, *map(str, problems), *([str(report)] if full else []), summary)
    if problems:
        raise click.exceptions.Exit(1)


@takes(group(Common, "json"), remote=("path",))
def info_command(
    call: Call,
    path: Annotated[
        str | None, Argument(metavar="PATH", help="Any artifact, or a URL such as s3://BUCKET/DIR.")
    ] = None,
    build: Annotated[bool, Option("--build", help="Show how the native part was built.")] = False,
) -> None:
    """Describe an artifact; without PATH, or with --build, this installation."""
    if path is not None and not build:
        from tiering.formats.registry import open_artifact

        print_artifact(open_artifact(path), call.json)
        return
    from importlib.metadata import distributions

    from tiering import cuda, native

    torch = [package.version for package in distributions(name="torch")]
    document: dict[str, Any] = {
        "tiering": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "torch": torch[0] if torch else "not installed (needed by the loader only)",
        "gpu": cuda.status(),
    }
    built = {**native.build_info(), "cuda part": cuda.list_architectures() or "not built"}
    print_result(call.json, {**document, "build": built}, Fields({**document, **built}))


@takes(group(Common, "threads", "force", "dry_run", "json"))
def copy_command(
    call: Call,
    source: Annotated[str | None, Argument(metavar="SRC", help="Any artifact, or its URL: s3://BUCKET/DIR.")] = None,
    destination: Annotated[str | None, Argument(metavar="DST", help="Directory to write, or a URL.")] = None,
    ssd: Annotated[
        list[Path] | None, Option(help="Directory for stripe files, one per SSD; repeatable.", metavar="DIR")
    ] = None,
    features: Annotated[
        bool, Option("--features", help="Copy the feature tables of a layout's graph too (default: only of graphs).")
    ] = False,
    verify: Annotated[
        str, Option(help="full: read the written files again and compare them.", metavar="sizes|full")
    ] = "sizes",
    relink: Annotated[
        Path | None, Option(help="Do not copy: point a layout at stripe files moved to --ssd.", metavar="LAYOUT")
    ] = None,
) -> None:
    """Copy an artifact with the files that it refers to. A stopped copy resumes when it is run again.

    Blocks are compared with their checksums as they are read. The manifest is written last: a partial copy never opens.
    """
    from tiering import pipeline

    if relink is not None:
        if source is not None or not ssd:
            raise InputError("relink: expected `tiering copy --relink LAYOUT --ssd DIR`, without SRC and DST")
        print_artifact(pipeline.relink(relink, ssd), call.json)
        return
    if source is None or destination is None:
        raise InputError("copy: a source and a destination are needed; give both: `tiering copy SRC DST`")
    made = pipeline.copy(
        source, destination, ssd=ssd or (), features=features or None, verify=verify, force=call.force,
        threads=call.threads, dry_run=call.dry_run,
    )  # fmt: skip
    if call.dry_run:
        print_estimate(made, call.json)
        return
    about = {"kind": made.kind, "path": str(made.path), "digest": made.digest, "bytes": made.total_bytes()}
    shown = {made.kind: about["path"], "digest": made.digest, "size": format_bytes(about["bytes"])}
    print_result(call.json, about, Fields(shown))


@takes(group(Common, "json"))
def doctor_command(
    call: Call,
    ssd: Annotated[list[Path] | None, Option(help="Directory of a disk to measure; repeatable.", metavar="DIR")] = None,
    size: Annotated[
        str, Option(help="Size of the test file in each --ssd; at most a fourth of the free space.", metavar="SIZE")
    ] = "1GiB",
    seconds: Annotated[float, Option(help="Seconds of random reads from each --ssd.", min=0.01)] = 2.0,
) -> None:
    """Describe this machine: memory, io_uring, locked memory, GPUs, speed of SSDs; and print what is missing.

    Nothing is written unless --ssd names a directory. The file written there is deleted when the command ends.
    """
    from tiering.pipeline.doctor import examine

    findings = examine(ssd or [], size=parse_bytes(size, "--size"), seconds=seconds)
    document = [{**vars(finding), "error": finding.error and str(finding.error)} for finding in findings]
    advice = (f"{finding.name}: {finding.advice}" for finding in findings if finding.advice)
    print_result(call.json, {"findings": document}, Fields({f.name: f.text for f in findings}), *advice)
    if error := next((finding.error for finding in findings if finding.error), None):
        raise error


@takes(group(Common, "json"))
def datasets_command(
    call: Call,
    name: Annotated[str | None, Argument(metavar="NAME", help="Dataset, or the TOML file of another one.")] = None,
) -> None:
    """List published datasets, with sizes and the memory that an import needs; with NAME: files, rules, known defects.

    `tiering import DIR --spec NAME` compares a download with its description before the import begins.
    """
    from tiering.datasets.specs import find_spec, known_specs

    if name is None:
        sources = known_specs().values()
        columns = ("dataset", "format", "nodes", "edges", "size of files", "size of graph", "memory needed")
        table = Table("", columns, [_row(source) for source in sources], left=2)
        more = "`tiering datasets NAME` describes one dataset; `tiering import --spec NAME --dry-run` needs no data"
        print_result(call.json, {source.name: _document(source) for source in sources}, table, more)
        return
    source = find_spec(name)
    print_result(call.json, _document(source), *_describe(source))


def _row(source: DatasetSpec) -> tuple[str, ...]:
    from tiering.pipeline import estimate_spec

    files = format_bytes(source.bytes) if source.bytes else ""
    sizes = estimate_spec(source)
    if sizes is None:
        return source.name, source.format, "", "", files, "", ""
    graph, memory = sizes
    counts = format_count(graph.num_nodes()), format_count(graph.num_edges())
    return source.name, source.format, *counts, files, format_bytes(graph.graph_bytes()), format_bytes(memory)


def _document(source: DatasetSpec) -> dict[str, Any]:
    from tiering.pipeline import estimate_spec

    sizes, document = estimate_spec(source), asdict(source)
    for name in ("roots", "labels", "splits"):
        del document[name]
    shown = ("path", "holds", "of", "dtypes", "shape", "bytes", "optional")
    return {
        **document,
        "files": [{name: getattr(file, name) for name in shown} for file in source.files],
        "graph_bytes": sizes and sizes[0].graph_bytes(),
        "least_memory": sizes and sizes[1],
        "defects": [{name: defect[name] for name in ("id", "text", "cure")} for defect in source.defects],
    }


def _describe(source: DatasetSpec) -> tuple[Part, ...]:
    from tiering.datasets.specs import FLAGS, list_files

    *_, graph, memory = _row(source)
    fields = {name: getattr(source, name) for name in ("home", "license", "citation", "format", "labels", "splits")}
    fields["imported with"] = ", ".join(f"{key} = {value}" for key, value in source.options.items()) or "no options"
    fields["graph"] = f"{graph or '?'} in addition to the features; the import needs at least {memory or '?'} of memory"
    counts = [(name, format_count(n)) for name, n in (*source.nodes.items(), *source.edges.items())]
    counts += [(name, f"about {format_count(n)}") for name, n in source.about.items() if name not in FLAGS]
    roots = " or ".join(root or "the directory itself" for root in source.roots)
    return (
        Fields({source.name: source.title, **fields}),
        *([Table("Nodes and edges", ("type or relation", "count"), counts)] if counts else []),
        Table(f"Files, in {roots}", ("file", "contents", "size"), list_files(source), left=2),
        *(f"- {defect['text']} ({defect['id']}) {defect['cure']}" for defect in source.defects),
        f"next: tiering import DIR --spec {source.name} --out GRAPH",
    )


@takes(group(Common, "json"))
def report_command(
    call: Call,
    sources: Annotated[
        list[Path], Argument(metavar="ARTIFACT|JSON..", help="Artifacts; JSON of evaluate, plan, trace and doctor.")
    ],
    out: Annotated[Path, Option("--out", "-o", help="Page to write.", metavar="FILE.html")],
    paths: Annotated[bool, Option("--paths", help="Show whole paths instead of file names.")] = False,
) -> None:
    """Write one HTML page that needs no network: sizes, skew, hit rates, predicted and measured epochs, commands."""
    from tiering.pipeline import report

    path = report(sources, out, paths=paths)
    size = path.stat().st_size
    text = f"{path}: {format_bytes(size)}; open it in a browser"
    print_result(call.json, {"path": str(path), "bytes": size}, text)
