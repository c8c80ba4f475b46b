"""Datasets that every codec can hold, and what a layout of them has to hold: by json, numpy and the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from reference_codecs import CODES, DECODE, ENCODE
from toy_datasets import Toy

from tiering.artifacts.manifest import storage_dtype
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.features import FeatureTable

TABLES = {"author": ("float32", 7), "paper": ("float16", 130), "venue": ("int32", 5)}
EDGES = "author:writes:paper"
"""The relation whose edges have features."""


def coded_toy(folder: Path, rows: int = 90, holes: bool = False) -> Toy:
    """Three types of nodes and features of edges; columns of one value, of 0 and 1, of large and small numbers.

    With `holes` some numbers of authors are NaN or infinite.
    """
    random = np.random.default_rng(7)
    toy = Toy(Dataset("coded", "npy", {}, []))
    folder.mkdir(parents=True)
    for number, (name, (dtype, dim)) in enumerate(TABLES.items()):
        count = rows + 7 * number
        numbers = random.normal(size=(count, dim)) * 10.0 ** random.integers(-3, 3, dim)
        numbers = np.rint(1000 * numbers) if dtype == "int32" else numbers
        numbers[:, 0], numbers[:, 1] = 2.5, random.integers(0, 2, count)
        if holes and name == "author":
            numbers[[0, 0, 7, 8], [0, 3, 3, 4]] = np.nan, np.inf, np.nan, -np.inf
        table = numbers.astype(dtype)
        (folder / name).write_bytes(table.tobytes())
        nodes = NodeData(count, features=FeatureTable(folder / name, count, dim, dtype))
        nodes.splits = {"train": random.permutation(count)[: count // 2]}
        toy.dataset.nodes[name], toy.tables[name] = nodes, table
    for name, ends, edges in (("cites", ("paper", "paper"), 400), ("writes", ("author", "paper"), 300 * bool(rows))):
        src, dst = (random.integers(0, max(1, toy.dataset.nodes[end].num_nodes), edges) for end in ends)
        data = {"feat": random.normal(size=(edges, 3)).astype(np.float32)} if name == "writes" else {}
        toy.dataset.edges.append(EdgeData((ends[0], name, ends[1]), src, dst, data=data, where="toy.npy"))
    return toy


def stored_rows(layout: Path, table: str, source: Any) -> Any:
    """Rows of a coded table as they have to be stored, from those of the source: uint8, padded to a multiple of 4."""
    entry, codec = table_entry(layout, table)
    codes = ENCODE[codec](as_float32(source, entry["dtype"]), *parameters(layout, table, entry["dim"]))
    stored = np.zeros((len(source), entry["row_bytes"]), np.uint8)
    codes = np.ascontiguousarray(codes).view(np.uint8).reshape(len(source), -1)
    stored[:, : codes.shape[1]] = codes
    return stored


def decoded_rows(layout: Path, table: str, source: Any) -> Any:
    """Rows of a coded table as float32, from those of the source."""
    entry, codec = table_entry(layout, table)
    codes = stored_rows(layout, table, source)[:, : entry["dim"] * np.dtype(CODES[codec]).itemsize]
    codes = np.ascontiguousarray(codes).view(CODES[codec])
    return DECODE[codec](codes, *parameters(layout, table, entry["dim"]))


def table_entry(layout: Path, table: str) -> tuple[dict[str, Any], str]:
    """What the manifest says of a table, and the name of its codec."""
    body = json.loads((layout / "manifest.json").read_text())["body"]
    entry = body["edge_tables" if ":" in table else "node_types"][table]
    return entry, entry["codec"]["name"]


def parameters(layout: Path, table: str, dim: int) -> list[Any]:
    """Scales and offsets of a table; none of codecs without."""
    file = layout / "codecs" / table.replace(":", "__")
    if not file.exists():
        return []
    data = file.read_bytes()
    return [np.frombuffer(data, "<f4", dim), np.frombuffer(data, "<i4", dim, 4 * dim)]


def as_float32(rows: Any, dtype: str) -> Any:
    """Rows of a source as the codecs see them."""
    return (rows.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else rows.astype(np.float32)


def as_dtype(rows: Any, dtype: str) -> Any:
    """Float32 rows rounded to a dtype, as numpy stores it."""
    if dtype == "bfloat16":
        return ENCODE["bfloat16"](rows)
    return rows.astype(storage_dtype(dtype))
