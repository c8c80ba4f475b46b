"""Format ``igb``: IGB and IGBH trees, and any tree of their shape (MAG240M's too).

``TYPE/node_feat.npy``, ``TYPE/node_label_19.npy`` (or ``_2K``, or ``node_label.npy``), ``TYPE/train_idx.npy``..., and
``SRC__NAME__DST/edge_index.npy`` of shape (E, 2); with three underscores (MAG240M) of shape (2, E). The number of nodes
is in ``TYPE/num_nodes.txt``, ``meta.json`` or MAG240M's ``meta.pt``. Files of IGB large and full have no numpy header.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.storage import entries, file_exists, is_folder
from tiering.datasets.edges import EdgeReader, read_edge_folder, read_edge_values
from tiering.datasets.import_context import Detector, ImportContext, Reader
from tiering.datasets.neighbor_means import add_neighbor_means
from tiering.datasets.nodes import NodeFiles, make_dataset, read_node_folder
from tiering.datasets.options import RAW_OPTIONS, TREE_OPTIONS, node_count
from tiering.datasets.specs import known_specs
from tiering.datasets.splits import OFFICIAL, SplitArray, read_torch_splits
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset
from tiering.formats.npy_file import read_start
from tiering.formats.torch_file import read_torch
from tiering.text.options import choice

EDGES = "edge_index.npy"  # file by which a relation's folder is known
META_FILE, LONGEST_META = "meta.json", 1 << 20
TORCH_META, TORCH_SPLITS = ("meta.pt", "split_dict.pt")  # of MAG240M, next to processed: numbers of nodes, splits
MLPERF_SPLITS = {"train": "train_idx.pt", "val": "val_idx.pt"}  # in processed, where MLPerf's split_seeds.py was run
USUAL_DIM = 1024


def parse_relation(name: str) -> tuple[Relation, bool] | None:
    """Return the relation that a folder is named after, if it is, and whether it means shape (E, 2): not with ___."""
    for mark, pairs in (("___", False), ("__", True)):
        parts = name.split(mark)
        if len(parts) == 3 and all(parts):
            return (parts[0], parts[1], parts[2]), pairs
    return None


def _relation_folders(path: Path, sign: str) -> dict[Path, tuple[Relation, bool]]:
    """Return the folders of relations directly inside `path`, by name, with what the names say."""
    if not is_folder(path):
        return {}
    named = {entry: parsed for entry in entries(path) if (parsed := parse_relation(entry.name)) and is_folder(entry)}
    return {folder: parsed for folder, parsed in named.items() if file_exists(folder / sign, "edges")}


def find_tree(path: Path, sign: str = EDGES) -> Path | None:
    """Return the folder of the folders with `sign`: `path`, ``path/processed``, or the one ``path/SIZE/processed``."""
    for folder in (path, path / "processed"):
        if _relation_folders(folder, sign):
            return folder
    sizes = [size for size in (entries(path) if is_folder(path) else []) if _relation_folders(size / "processed", sign)]
    if len(sizes) > 1:
        names = ", ".join(str(p) for p in sizes)
        raise InputError(f"{path}: there are {len(sizes)} datasets ({names}); give the path of one")
    return sizes[0] / "processed" if sizes else None


def _open_igb(path: Path, context: ImportContext) -> Dataset:
    tree = find_tree(path)
    if tree is None:
        raise MissingError(
            f"{path}: expected an IGB tree, found no folder SRC__NAME__DST with a file {EDGES} in "
            "processed/ or SIZE/processed/; check the path or choose another --format"
        )
    return open_tree(tree, context, EDGES, read_edge_folder)


def open_tree(tree: Path, context: ImportContext, sign: str, read_edges: EdgeReader) -> Dataset:
    """Return the relations of a tree, whose edges `read_edges` reads from each folder with `sign`, and their nodes."""
    size = tree.parent.name if tree.name == "processed" else tree.name
    edges = []
    for folder, (relation, pairs) in _choose(tree, context.options.relations, sign).items():
        edges.append(read_edges(folder, relation, context, pairs))
        read_edge_values(folder, edges[-1], context)
        context.known.add(folder)
        context.record_ignored(entries(folder))
    types = sorted({t for edge in edges for t in (edge.relation[0], edge.relation[2])})
    stated, nodes = _read_counts(tree, context), {}
    for node_type in types:
        folder = tree / node_type
        if not is_folder(folder) and os.path.lexists(folder):
            raise InputError(f"{folder}: expected the directory of {node_type} nodes, found a file; move it away")
        files = _node_files(folder, size, stated, context)
        arrays = read_node_folder(files, context)
        if arrays.labels is not None and not arrays.splits and context.options.split in (None, OFFICIAL):
            arrays.splits = _read_torch_splits(tree, context)
        nodes[node_type] = arrays
        context.known.add(folder)
        if is_folder(folder):
            labels = [entry.name for entry in entries(folder) if entry.match("node_label*.npy")]
            if arrays.labels is None and labels:
                found = f"expected {' or '.join(files.label_names)}, found {', '.join(labels)}"
                raise MissingError(f"{folder}: {found}; give --label 19 or 2K")
            context.record_ignored(entries(folder))
    context.record_ignored(entries(tree))
    dataset = make_dataset(size, nodes, edges, context)
    add_neighbor_means(dataset.nodes, edges, context)
    return dataset


def _read_torch_splits(tree: Path, context: ImportContext) -> dict[str, SplitArray]:
    """Return the splits in ``split_dict.pt`` and in MLPerf's two files, which count more."""
    if tree.name != "processed":
        return {}
    path = tree.parent / TORCH_SPLITS
    splits = read_torch_splits(path, context) if file_exists(path, "splits") else {}
    for split, name in MLPERF_SPLITS.items():
        if file_exists(tree / name, "node ids"):
            splits |= read_torch_splits(tree / name, context, split)
    return splits


def _choose(tree: Path, wanted: tuple[str, ...], sign: str) -> dict[Path, tuple[Relation, bool]]:
    folders = _relation_folders(tree, sign)
    by_name = {relation_key(relation): folder for folder, (relation, _) in folders.items()}
    by_name |= {folder.name: folder for folder in folders}
    for name in wanted:
        if name not in by_name:
            known = ", ".join(folder.name for folder in folders)
            raise MissingError(f"{tree}: no relation {name}; the relations are {known}")
    chosen = {by_name[name] for name in wanted or by_name}
    return {folder: parsed for folder, parsed in folders.items() if folder in chosen}


def _node_files(folder: Path, size: str, stated: dict[str, int], context: ImportContext) -> NodeFiles:
    node_type, origin = folder.name, None
    label = choice("19", "2K")((context.options.label.get(node_type) or "19").upper(), "--label")
    if node_type in stated:
        meta = folder.parent / META_FILE
        origin = str(meta if meta.is_file() else folder.parent.parent / TORCH_META), stated[node_type]
    elif context.spec is not None and node_type in context.spec.nodes:
        origin = f"--spec {context.spec.name}", context.spec.nodes[node_type]
    spec = context.spec or known_specs().get(f"igbh-{size}")
    rows = None if spec is None else spec.nodes.get(node_type)
    full = context.spec or known_specs()["igbh-full"]
    prefixes = {file.path: file.prefixes for file in full.files}.get(f"{node_type}/node_label_{label}.npy", ())
    return NodeFiles(
        folder=folder,
        node_type=node_type,
        label_names=(f"node_label_{label}.npy", "node_label.npy"),
        usual_dim=USUAL_DIM,
        known_rows={} if spec is None or rows is None else {spec.name: rows},
        label_prefixes={full.nodes[node_type]: prefixes} if prefixes else {},
        stated_count=origin,
    )


def _read_counts(tree: Path, context: ImportContext) -> dict[str, int]:
    """Return the numbers of nodes in ``meta.json``, else in ``meta.pt``, where ``num_classes`` stands among them."""
    path = tree / META_FILE
    if is_torch := not file_exists(path, what := "numbers of nodes"):
        path = tree.parent / TORCH_META
        if tree.name != "processed" or not file_exists(path, what):
            return {}
    context.record_file(path)
    counts: Any = read_torch(path, what) if is_torch else None
    expected = "a dictionary of numbers"
    try:
        if not is_torch:
            expected, text = 'JSON such as {"num_nodes": {"paper": 100}}', read_start(path, LONGEST_META + 1)
            if len(text) > LONGEST_META:
                raise ValueError(f"found more than {LONGEST_META} bytes")
            counts = json.loads(text)["num_nodes"]
        numbers = ((name, number) for name, number in counts.items() if isinstance(number, int) or not is_torch)
        return {str(name): node_count(number, f"num_nodes of {name}") for name, number in numbers}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: expected {expected} ({str(error)[:200]}); correct it") from error


READER = Reader(
    _open_igb,
    takes=RAW_OPTIONS | TREE_OPTIONS,
    directory=Detector(
        "SRC__NAME__DST/edge_index.npy (igb; also in processed/ and SIZE/processed/)",
        lambda path: find_tree(path) is not None,
    ),
)
