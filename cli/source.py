"""`tiering import` and `tiering generate`: from a dataset to a graph, and a dataset from nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tiering.errors import InputError
from tiering.units import format_bytes, format_count

from . import options as opts
from .describe import print_artifact, print_forecast
from .options import option
from .output import note, print_json, print_line, print_table

_shape = partial(option, panel="Headerless files, labels, splits")
_table = partial(option, panel="Edge lists and parquet")
_change = partial(option, panel="Change the edges")
_size = partial(option, default=True)


def import_command(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Dataset: a directory or file.", show_default=False)],
    out: opts.OutOption,
    format_: Annotated[
        str,
        _size(
            "auto, npy, csc, csr, igb, edgelist, mtx, parquet, ogb, npz, pyg, dgl or graphbolt.",
            "--format",
            metavar="NAME",
        ),
    ] = "auto",
    spec: Annotated[
        str | None,
        option("Which published dataset it is: checked first (see tiering datasets).", metavar="NAME|FILE.toml"),
    ] = None,
    num_nodes: Annotated[str | None, _shape("Number of nodes (per type).", metavar="N|TYPE=N,..")] = None,
    feature_dim: Annotated[
        str | None, _shape("Values per row of a headerless feature file.", metavar="D|TYPE=D,..")
    ] = None,
    feature_dtype: Annotated[
        str | None, _shape("Its dtype: float32, float16, bfloat16..", metavar="NAME|TYPE=NAME,..")
    ] = None,
    label: Annotated[str | None, _shape("Which of IGB's label files.", metavar="19|2K")] = None,
    num_labelled: Annotated[int | None, _shape("Only the first N nodes have labels.", metavar="N")] = None,
    mean_features: Annotated[
        str | None, _shape("Features of a type: the mean of its neighbours'.", metavar="TYPE=RELATION,..")
    ] = None,
    relations: Annotated[str | None, _shape("Import only these relations.", metavar="SRC:NAME:DST,..")] = None,
    split: Annotated[
        str | None,
        _shape("Make splits of these shares, or by a rule.", metavar="A,B,C|igb|mlperf|official"),
    ] = None,
    split_seed: Annotated[int | None, _shape("Seed of --split.", metavar="N")] = None,
    src_column: Annotated[str | None, _table("Column of the edges' sources.", metavar="NAME|INDEX")] = None,
    dst_column: Annotated[str | None, _table("Column of the edges' destinations.", metavar="NAME|INDEX")] = None,
    weight_column: Annotated[str | None, _table("Column of edge weights.", metavar="NAME|INDEX")] = None,
    delimiter: Annotated[str | None, _table("Delimiter of text.", metavar="CHAR")] = None,
    header: Annotated[bool | None, _table("Header line?", "--header/--no-header")] = None,
    string_ids: Annotated[bool, _table("Ids in text are names.", "--string-ids")] = False,
    quoted_newlines: Annotated[bool, _table("Quoted text may hold line breaks.", "--quoted-newlines")] = False,
    comment: Annotated[str | None, _table("What begins a comment on any line.", metavar="CHAR|none")] = None,
    compact_ids: Annotated[bool, _table("Make sparse ids dense.", "--compact-ids")] = False,
    self_loops: Annotated[str, _change("Self loops.", metavar="keep|remove|add")] = "keep",
    drop_self_loops: Annotated[bool, _change("The same as --self-loops remove.", "--drop-self-loops")] = False,
    reverse_edges: Annotated[bool, _change("Add each edge reversed.", "--reverse-edges", "--add-reverse")] = False,
    deduplicate: Annotated[bool, _change("Keep the first of equal edges.", "--deduplicate")] = False,
    edge_ids: Annotated[bool, option("Keep each edge's position in SRC: 8 bytes each.", "--edge-ids")] = False,
    checksum_features: Annotated[
        bool, option("Read feature files whole, to notice any damage later.", "--checksum-features")
    ] = False,
    executor: opts.ExecutorOption = None,
    store: opts.StoreOption = None,
    address: opts.AddressOption = None,
    workers: opts.WorkersOption = None,
    task_memory: opts.TaskMemoryOption = None,
    shards: opts.ShardsOption = None,
    resources: opts.ResourcesOption = None,
    memory: opts.MemoryOption = "auto",
    threads: opts.ThreadsOption = "auto",
    force: opts.ForceOption = False,
    dry_run: opts.DryRunOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Import a dataset as a graph: adjacency by destination, labels, splits. Features stay where they are."""
    from tiering import pipeline
    from tiering.datasets.options import OPTIONS

    options = {name: context.params[name] for name in (*OPTIONS, "checksum_features") if name in context.params}
    if drop_self_loops:
        given = context.get_parameter_source("self_loops")
        if given is not None and given.name == "COMMANDLINE":
            raise InputError("--self-loops: contradicts --drop-self-loops, or says the same; leave it out")
        options["self_loops"] = "remove"
    asked = {"format": format_, "edge_ids": edge_ids, "memory": memory, "threads": threads, **options}
    cluster = opts.cluster_options(executor, store, address, workers, task_memory, shards, resources)
    if dry_run:
        print_forecast(pipeline.predict_import(source, out, cluster=cluster, **asked), json)
        return
    graph = pipeline.import_graph(source, out, force=force, cluster=cluster, **asked)
    for warning in graph.manifest.body["changes"].get("warnings", []):
        note(f"note: {warning}")
    print_artifact(graph, json)


def generate_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory to create.", show_default=False)],
    nodes: Annotated[int, _size("Nodes, over all types.", metavar="N")] = 100_000,
    edges: Annotated[int, _size("Edges, over all relations.", metavar="E")] = 1_000_000,
    dim: Annotated[int, _size("Values per feature row.", metavar="D")] = 128,
    classes: Annotated[int, _size("Labels, and communities.", metavar="C")] = 8,
    seed: opts.SeedOption = 0,
    hetero: Annotated[bool, option("Four node types, seven relations.", "--hetero")] = False,
    dtype: Annotated[str, _size("Of the features.", metavar="float32|float16|bfloat16")] = "float32",
    featureless: Annotated[
        list[str] | None, option("A type without features (with --hetero); repeatable.", metavar="TYPE")
    ] = None,
    force: opts.ForceOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Generate a dataset in IGB's format: power-law communities, labels that a GNN finds and an MLP does not."""
    from tiering.datasets.generated.synthetic import generate

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
