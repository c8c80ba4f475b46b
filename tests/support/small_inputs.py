"""A small valid input of each format that an import reads: 8 nodes, 12 edges, every optional file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

NODES, EDGES = 8, 12
SRC = np.arange(EDGES) * 5 % NODES
DST = np.arange(EDGES) * 3 % NODES


def write_npy(folder: Path) -> Path:
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.array([SRC, DST]))
    np.save(folder / "edge_weight.npy", np.ones(EDGES, np.float32))
    np.save(folder / "edge_type.npy", np.arange(EDGES, dtype=np.int32))
    np.save(folder / "edge_id.npy", np.arange(EDGES))
    (folder / "num_nodes.txt").write_text(f"{NODES}\n")
    write_nodes(folder, "node_label.npy")
    return folder


def write_nodes(folder: Path, label: str) -> None:
    np.save(folder / "node_feat.npy", np.arange(NODES * 3, dtype=np.float32).reshape(NODES, 3))
    np.save(folder / label, np.arange(NODES) % 3)
    for k, name in enumerate(("train", "val", "test")):
        np.save(folder / f"{name}_idx.npy", np.arange(2 * k, 2 * k + 2))


def write_igb(folder: Path) -> Path:
    """Two relations of IGBH's shape; fos has neither features nor labels, its number of nodes is in meta.json."""
    tree = folder / "tiny" / "processed"
    for name in ("paper", "paper__cites__paper", "paper__topic__fos"):
        (tree / name).mkdir(parents=True)
    write_nodes(tree / "paper", "node_label_19.npy")
    np.save(tree / "paper__cites__paper/edge_index.npy", np.stack([SRC, DST], axis=1))
    np.save(tree / "paper__cites__paper/edge_weight.npy", np.ones(EDGES, np.float32))
    np.save(tree / "paper__topic__fos/edge_index.npy", np.stack([SRC, DST], axis=1).astype(np.int32))
    (tree / "meta.json").write_text(json.dumps({"num_nodes": {"fos": NODES, "paper": NODES}}))
    return tree


def text_of_edges() -> str:
    """Twelve edges with a weight each."""
    return "src,dst,weight\n" + "".join(f"{u},{v},0.5\n" for u, v in zip(SRC, DST, strict=True))


def write_csv(folder: Path) -> Path:
    folder.mkdir()
    (folder / "edges.csv").write_text(text_of_edges())
    return folder / "edges.csv"


def write_csv_gz(folder: Path) -> Path:
    folder.mkdir()
    (folder / "edges.csv.gz").write_bytes(gzip.compress(text_of_edges().encode()))
    return folder / "edges.csv.gz"


def write_parquet(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    folder.mkdir()
    for k in range(2):
        part = slice(EDGES // 2 * k, EDGES // 2 * (k + 1))
        table = pa.table({"src": SRC[part], "dst": DST[part], "weight": np.ones(EDGES // 2)})
        pa_parquet.write_table(table, folder / f"part-{k}.parquet", row_group_size=4)
    return folder


SMALL_INPUTS: dict[str, Callable[[Path], Path]] = {
    "npy": write_npy, "igb": write_igb, "csv": write_csv, "csv.gz": write_csv_gz, "parquet": write_parquet
}  # fmt: skip
"""Format -> writes a dataset into a new folder and returns what to import."""
EDGES_ARE_IN = {
    "npy": "edge_index.npy", "igb": "paper__cites__paper/edge_index.npy", "csv": "edges.csv", "csv.gz": "edges.csv.gz",
    "parquet": "part-0.parquet",
}  # fmt: skip
"""Format -> the file with the edges, seen from the folder with the files."""
