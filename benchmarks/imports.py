"""Every reader of `tiering import` on a dataset of 1 GB and more, against the disk.

``python -m benchmarks imports [--dir DIR] [--only NAME,..] [--share S] [--docs DIR]`` makes one dataset after the other
in DIR, imports it in a process of its own with its files out of the page cache, held by the kernel to a tenth more than
the budget where that can be, and reads the files that the import reads and writes as many bytes as the graph has,
directly. ``--share`` makes all of them smaller. With ``--docs`` it writes ``benchmarks/imports.json`` and the table of
``internals/imports.md``. The largest takes 10 GB of disk, all of them some fifteen minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pa_compute
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

import tiering
from benchmarks.harness import Sizes
from benchmarks.pages import describe_machine, keep_results, markdown, put
from benchmarks.replicas import replicate
from benchmarks.stages import bench_folder, stage, write_edges, write_rows
from tiering.formats.graph import Graph
from tiering.text.units import format_bytes

BEGIN, END = "<!-- imports -->", "<!-- imports: end -->"
_PART = 1 << 22
"""Edges written at a time."""


@dataclass(frozen=True)
class Case:
    """A dataset: `make` writes it below a folder for a share of its usual size, and gives the import's arguments."""

    make: Callable[[Path, float], list[Any]]
    memory: str = "1GiB"


def replica(like: str, scale: float, folder: Path, share: float, *, path: str = "") -> list[Any]:
    """Write a replica of a published dataset."""
    specification = replicate(like, folder / "data", scale * share)
    return [folder / "data" / path, "--spec", str(specification)]


def pairs(edges: int, share: float, folder: Path) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the parts of an edge list, (2, n) int64, over a fourteenth as many nodes."""
    sizes = Sizes(edges=max(1000, round(edges * share)), stage_nodes=max(100, round(edges * share) // 14))
    path = write_edges(sizes, folder / "drawn")
    drawn = np.load(path, mmap_mode="r")
    for first in range(0, sizes.edges, _PART):
        yield np.asarray(drawn[:, first : first + _PART])
    shutil.rmtree(folder / "drawn")


def npy(folder: Path, share: float) -> list[Any]:
    """Write edges in an array."""
    edges = round(65_000_000 * share)
    write_edges(Sizes(edges=edges, stage_nodes=edges // 14), folder / "data")
    return [folder / "data", "--num-nodes", edges // 14]


def lists(folder: Path, share: float) -> list[Any]:
    """Write lists of neighbors in arrays."""
    nodes, degree = round(8_000_000 * share), 14
    folder = folder / "data"
    folder.mkdir()
    np.save(folder / "indptr.npy", np.arange(0, nodes * degree + 1, degree))
    random = np.random.default_rng(0)
    np.save(folder / "indices.npy", np.sort(random.integers(0, nodes, (nodes, degree)), axis=1).reshape(-1))
    return [folder, "--format", "csc"]


def text(folder: Path, share: float, *, matrix: bool = False) -> list[Any]:
    """Write edges as text, or as a matrix."""
    path = folder / ("edges.mtx" if matrix else "edges.txt")
    edges = round(75_000_000 * share)
    options = pa_csv.WriteOptions(include_header=False, delimiter=" " if matrix else "\t")
    with path.open("wb") as file:
        if matrix:
            nodes = max(100, edges // 14)
            file.write(f"%%MatrixMarket matrix coordinate pattern general\n{nodes} {nodes} {edges}\n".encode())
        for part in pairs(edges, 1.0, folder):
            src, dst = part + 1 if matrix else part
            pa_csv.write_csv(pa.table({"src": src, "dst": dst}), file, options)
    return [path]


def columns(folder: Path, share: float) -> list[Any]:
    """Write edges in parquet."""
    return _parquet(folder, columns_of(130_000_000, share, folder))


def columns_of(edges: int, share: float, folder: Path) -> Iterator[list[Any]]:
    """Yield parts of random edges as columns."""
    return ([pa.array(end) for end in part] for part in pairs(edges, share, folder))


def typed(folder: Path, share: float) -> list[Any]:
    """Write a table of edges in parquet, whose ends are of two types."""
    return [*_parquet(folder, columns_of(30_000_000, share, folder)), "--relation", "user:rates:movie"]


def names(folder: Path, share: float) -> list[Any]:
    """Write edges between 10 M distinct names in parquet."""
    random, left, parts = np.random.default_rng(0), max(1000, round(45_000_000 * share)), []
    nodes = max(100, round(10_000_000 * share))
    while left:
        parts.append(min(left, _PART))
        left -= parts[-1]

    def name(ids: np.ndarray[Any, Any]) -> Any:
        return pa_compute.binary_join_element_wise("entity", pa.array(ids).cast(pa.string()), "/")

    return _parquet(folder, ([name(ends) for ends in random.integers(0, nodes, (2, size))] for size in parts))


def _parquet(folder: Path, parts: Iterable[Sequence[Any]]) -> list[Any]:
    """Write a file of two columns, part by part."""
    path, writer = folder / "edges.parquet", None
    for part in parts:
        table = pa.table(dict(zip(("src", "dst"), part, strict=True)))
        writer = writer or pa_parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return [path]


def in_frameworks(folder: Path, share: float, *, kind: str) -> list[Any]:
    """Save a graph of PyG or DGL: 770 MB of features, 16 M edges."""
    import torch

    nodes, edges = max(100, round(1_500_000 * share)), max(1000, round(16_000_000 * share))
    x = torch.randn(nodes, 128)
    ends = torch.from_numpy(np.random.default_rng(0).integers(0, nodes, (2, edges)))
    if kind == "pyg":
        from torch_geometric.data import Data

        torch.save(Data(x=x, edge_index=ends), folder / "graph.pt")
        return [folder / "graph.pt"]
    import dgl

    graph = dgl.graph((ends[0], ends[1]), num_nodes=nodes)
    graph.ndata["feat"] = x
    dgl.save_graphs(str(folder / "graph.bin"), [graph])
    return [folder / "graph.bin"]


def graphbolt(folder: Path, share: float) -> list[Any]:
    """Write an `OnDiskDataset`: 770 MB of features, 16 M edges."""
    nodes, edges = max(100, round(1_500_000 * share)), max(1000, round(16_000_000 * share))
    sizes = Sizes(edges=edges, stage_nodes=nodes)
    root = folder / "data"
    write_edges(sizes, root)
    write_rows(root / "feat.npy", nodes, 512)
    (root / "metadata.yaml").write_text(
        f"dataset_name: made\ngraph:\n  nodes:\n    - num: {nodes}\n  edges:\n    - format: numpy\n"
        "      path: edge_index.npy\nfeature_data:\n  - domain: node\n    name: feat\n    format: numpy\n"
        "    path: feat.npy\n"
    )
    return [root]


CASES: Mapping[str, Case] = {
    "npy": Case(npy),
    "csc": Case(lists),
    "igb: igb-medium": Case(partial(replica, "igb-medium", 0.03)),
    "igb: mag240m": Case(partial(replica, "mag240m", 0.006)),
    "ogb: papers100m": Case(partial(replica, "ogbn-papers100m", 0.02)),
    "ogb: products": Case(partial(replica, "ogbn-products", 0.5)),
    "npz: reddit": Case(partial(replica, "reddit", 0.6)),
    "edgelist": Case(text),
    "edgelist, gzip: friendster": Case(partial(replica, "friendster", 0.035)),
    "mtx": Case(partial(text, matrix=True)),
    "parquet": Case(columns),
    "parquet, 10 M names": Case(names),
    "tables": Case(typed),
    "pyg": Case(partial(in_frameworks, kind="pyg")),
    "dgl": Case(partial(in_frameworks, kind="dgl"), memory="3GiB"),
    "graphbolt": Case(graphbolt),
}


def run(name: str, sizes: Sizes, share: float) -> dict[str, Any]:
    """Make the dataset, import it, and read and write its bytes; all of it is removed."""
    case = CASES[name]
    with bench_folder(sizes) as folder:
        arguments = case.make(folder, share)
        given = sorted(path for path in folder.rglob("*") if path.is_file())
        # What a child of this process finds dirty in the page cache it would have to write out.
        os.sync()
        out = folder / "graph"
        first = tiering.import_graph(arguments[0], out=out, memory=case.memory, **_options(arguments[1:]))
        assert isinstance(first, Graph)
        edges = sum(first.num_edges(relation) for relation in first.relations)
        nodes = sum(first.num_nodes(node_type) for node_type in first.node_types)
        tables = [table for t in first.node_types if (table := first.feature_table(t)) is not None]
        left = {Path(table.path).resolve() for table in tables}
        read = [path for path in given if path.resolve() not in left]
        settings = replace(sizes, edges=edges, stage_nodes=nodes, memory=case.memory, repeats=1)
        result = stage(settings, folder, ["import", *arguments, "--out", out], read, [out])
        result.parameters["bytes"] = sum(path.stat().st_size for path in given)
        return result.to_json()


def _options(arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the options of the command line as Python takes them."""
    return {str(name)[2:].replace("-", "_"): value for name, value in zip(arguments[::2], arguments[1::2], strict=True)}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return Markdown."""
    heads = [
        "format",
        "size of the files",
        "edges",
        "`--memory`",
        "time, s",
        "million edges/s",
        "read and written",
        "fraction of the disk's speed",
    ]
    rows = []
    for name, result in results.items():
        about, seconds = result["parameters"], median(result["seconds"])
        rows.append([
            name, format_bytes(about["bytes"]), f"{about['edges']:,}", about["memory"], f"{seconds:.1f}",
            f"{about['edges'] / seconds / 1e6:.1f}", format_bytes(about["read"] + about["written"]),
            f"{result['peers'][0]['ratio']:.2f}",
        ])  # fmt: skip
    return markdown(heads, rows, left=1)


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks imports", description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of datasets, with commas; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual size of each")
    parser.add_argument("--docs", type=Path)
    Sizes.options(parser, "threads", "folder")
    given = parser.parse_args(argv)
    names = [name for name in CASES if given.only is None or name.partition(":")[0] in given.only.split(",")]
    file = (given.docs or given.folder) / "benchmarks" / "imports.json"
    works = ((name, partial(run, name, Sizes.from_options(given), given.share)) for name in names)
    results = keep_results(file, describe_machine(), works)["results"]
    shown = table({name: results[name] for name in CASES if name in results})
    if given.docs:
        put(given.docs / "internals" / "imports.md", BEGIN, END, shown)
    print(shown)
    return 0
