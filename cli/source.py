"""`tiering import` and `tiering generate`: from a dataset to a graph, and a dataset from nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import click
from typer import Argument, Option

from tiering.datasets.generated import Recipe, generate_dataset
from tiering.datasets.open import READERS
from tiering.datasets.options import ImportOptions
from tiering.run.options import ClusterOptions
from tiering.text.description import Table
from tiering.text.units import format_bytes, format_count

from .options import Call, Common, Out, group, takes
from .output import print_result

_FORMATS = f"auto, {', '.join(READERS)}."


@takes(group(ImportOptions), group(ClusterOptions), group(Common, "memory", "threads", "force", "dry_run", "json"))
def import_command(
    call: Call,
    out: Out,
    source: Annotated[
        str | None,
        Argument(
            metavar="SRC",
            click_type=click.Path(),
            help="Dataset: a directory, a file, or a URL (s3://, gs://, abfs://); not needed with --relation.",
        ),
    ] = None,
    format_: Annotated[str, Option("--format", help=_FORMATS, metavar="NAME")] = "auto",
    edge_ids: Annotated[
        bool | None,
        Option("--edge-ids/--no-edge-ids", help="Keep each edge's position in SRC, 8 bytes. Default: for PyG and DGL."),
    ] = None,
    checksum_features: Annotated[
        bool, Option("--checksum-features", help="Read feature files whole, to detect later damage.")
    ] = False,
) -> None:
    """Import a dataset as a graph: adjacency by destination, labels, splits. Local feature files are not copied."""
    options = call.collect(ImportOptions)
    if checksum_features:
        options["checksum_features"] = True
    call.run_stage("estimate_import", "import_graph", source, out, format=format_, edge_ids=edge_ids, **options)


@takes(group(Recipe), group(Common, "force", "json"))
def generate_command(call: Call, out: Annotated[Path, Argument(metavar="OUT", help="Directory to create.")]) -> None:
    """Generate a dataset in IGB's format: power-law communities, and labels that a GNN can learn and an MLP cannot."""
    sizes = {"nodes": call.nodes, "edges": call.edges, **call.collect(Recipe)}
    made = generate_dataset(out, force=call.force, **sizes)
    meta = json.loads((made / "processed" / "meta.json").read_text())
    size = sum(file.stat().st_size for file in made.glob("processed/*/*.npy"))
    counts = {name: meta[name] for name in ("num_nodes", "num_edges")}
    print_result(
        call.json,
        {"path": str(made.absolute()), **counts, "bytes": size},
        f"{made.absolute()}: {format_bytes(size)} in IGB's format",
        Table("Nodes", ("type", "nodes"), [(t, format_count(n)) for t, n in meta["num_nodes"].items()]),
        Table("Edges", ("relation", "edges"), [(r, format_count(n)) for r, n in meta["num_edges"].items()]),
        f"next: tiering import {out} --out GRAPH",
    )
