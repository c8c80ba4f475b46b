"""`tiering import` and `tiering generate`: from a dataset to a graph, and a dataset from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tiering.units import format_bytes, format_count, parse_threads

from .describe import print_artifact
from .describe_forecast import print_forecast
from .options import DryRunOption, ForceOption, JsonOption, MemoryOption, OutOption, SeedOption, ThreadsOption
from .output import note, print_json, print_line, print_table


def _option(panel: str, metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


def _shape(metavar: str, text: str) -> Any:
    return _option("Headerless files, labels, splits", metavar, text)


def _table(metavar: str, text: str) -> Any:
    return _option("Edge lists and parquet", metavar, text)


def _flag(name: str, text: str, panel: str) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel, show_default=False)


_EDGES = "Change the edges"
SourceArgument = Annotated[
    Path, typer.Argument(metavar="SRC", help="Dataset: a directory or file.", show_default=False)
]
FormatOption = Annotated[str, typer.Option("--format", metavar="NAME", help="auto, npy, igb, edgelist or parquet.")]


def import_command(
    source: SourceArgument,
    out: OutOption,
    format_: FormatOption = "auto",
    num_nodes: Annotated[str | None, _shape("N|TYPE=N,..", "Number of nodes (per type).")] = None,
    feature_dim: Annotated[str | None, _shape("D|TYPE=D,..", "Values per row of a headerless feature file.")] = None,
    feature_dtype: Annotated[str | None, _shape("NAME|TYPE=NAME,..", "Its dtype: float32, float16, bfloat16..")] = None,
    label: Annotated[str | None, _shape("19|2K", "Which of IGB's label files.")] = None,
    num_labelled: Annotated[int | None, _shape("N", "Only the first N nodes have labels.")] = None,
    relations: Annotated[str | None, _shape("SRC:NAME:DST,..", "Import only these relations.")] = None,
    split: Annotated[str | None, _shape("A,B,C", "Make splits train, val, test of these shares.")] = None,
    split_seed: Annotated[int | None, _shape("N", "Seed of --split.")] = None,
    src_column: Annotated[str | None, _table("NAME|INDEX", "Column of the edges' sources.")] = None,
    dst_column: Annotated[str | None, _table("NAME|INDEX", "Column of the edges' destinations.")] = None,
    weight_column: Annotated[str | None, _table("NAME|INDEX", "Column of edge weights.")] = None,
    delimiter: Annotated[str | None, _table("CHAR", "Delimiter of text.")] = None,
    header: Annotated[bool | None, _flag("--header/--no-header", "Header line?", "Edge lists and parquet")] = None,
    compact_ids: Annotated[bool, _flag("--compact-ids", "Make sparse ids dense.", "Edge lists and parquet")] = False,
    self_loops: Annotated[str, _option(_EDGES, "keep|remove|add", "Self loops.")] = "keep",
    reverse_edges: Annotated[bool, _flag("--reverse-edges", "Add each edge reversed.", _EDGES)] = False,
    deduplicate: Annotated[bool, _flag("--deduplicate", "Keep the first of equal edges.", _EDGES)] = False,
    edge_ids: Annotated[
        bool, typer.Option("--edge-ids", help="Keep each edge's position in SRC: 8 bytes each.")
    ] = False,
    checksum_features: Annotated[
        bool,
        typer.Option("--checksum-features", help="Read feature files whole, to notice any damage later."),
    ] = False,
    memory: MemoryOption = "auto",
    threads: ThreadsOption = "auto",
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Import a dataset as a graph: adjacency by destination, labels, splits. Features stay where they are."""
    from tiering import pipeline

    options = {
        "num_nodes": num_nodes,
        "feature_dim": feature_dim,
        "feature_dtype": feature_dtype,
        "label": label,
        "num_labelled": num_labelled,
        "relations": relations,
        "split": split,
        "split_seed": split_seed,
        "src_column": src_column,
        "dst_column": dst_column,
        "weight_column": weight_column,
        "delimiter": delimiter,
        "header": header,
        "compact_ids": compact_ids,
        "self_loops": self_loops,
        "reverse_edges": reverse_edges,
        "deduplicate": deduplicate,
        "checksum_features": checksum_features,
    }
    asked: dict[str, Any] = {"format": format_, "edge_ids": edge_ids, "memory": memory, **options}
    if dry_run:
        print_forecast(pipeline.predict_import(source, out, threads=threads, **asked), json)
        return
    graph = pipeline.import_dataset(source, out, threads=parse_threads(threads), force=force, **asked)
    for warning in graph.manifest.body["changes"].get("warnings", []):
        note(f"note: {warning}")
    print_artifact(graph, json)


def generate_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory to create.", show_default=False)],
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes, over all types.")] = 100_000,
    edges: Annotated[int, typer.Option("--edges", metavar="E", help="Edges, over all relations.")] = 1_000_000,
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Values per feature row.")] = 128,
    classes: Annotated[int, typer.Option("--classes", metavar="C", help="Labels, and communities.")] = 8,
    seed: SeedOption = 0,
    hetero: Annotated[bool, typer.Option("--hetero", help="Four node types, seven relations.")] = False,
    dtype: Annotated[str, typer.Option(metavar="float32|float16|bfloat16", help="Of the features.")] = "float32",
    featureless: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="A type without features (with --hetero); repeatable.", show_default=False),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Generate a dataset in IGB's format: power-law communities, labels that a GNN finds and an MLP does not."""
    from tiering.datasets.synthetic import generate

    made = generate(
        out, nodes=nodes, edges=edges, dim=dim, classes=classes, seed=seed, hetero=hetero, dtype=dtype,
        featureless=featureless or (), force=force,
    )  # fmt: skip
    if json:
        print_json(made)
        return
    print_line(f"{made['path']}: {format_bytes(made['bytes'])} in IGB's format")
    print_table("Nodes", ("type", "nodes"), [(t, format_count(n)) for t, n in made["num_nodes"].items()])
    print_table("Edges", ("relation", "edges"), [(r, format_count(n)) for r, n in made["num_edges"].items()])
    print_line(f"next: tiering import {out} --out GRAPH")
