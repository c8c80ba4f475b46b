"""Format ``igb``: IGB and IGBH trees, and any tree of their shape (MAG240M's too).

``TYPE/node_feat.npy``, ``TYPE/node_label_19.npy`` (or ``_2K``, or ``node_label.npy``), ``TYPE/train_idx.npy``...,
``SRC__NAME__DST/edge_index.npy`` of shape (E, 2); with three underscores (MAG240M) of shape (2, E). Every shape
but (2, 2) tells its orientation, so the rule matters for that one alone. Types need no folder: what is known of
a type without features is its count, from ``TYPE/num_nodes.txt``, ``meta.json`` (``{"num_nodes": {TYPE: N}}``),
labels, option ``num_nodes``, or else the largest id.

The features of paper and author and the labels in IGB large and full have no numpy header although their names
end in ``.npy``. Their shape follows from the size of the file; see `tiering.datasets.features`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.regular import entries, is_folder, is_there
from tiering.artifacts.storage import storage_errors
from tiering.datasets.edges import read_edge_folder
from tiering.datasets.nodes import NodeFiles, read_nodes
from tiering.datasets.options import node_count
from tiering.datasets.reading import Reading
from tiering.errors import InputError, MissingError
from tiering.formats.protocols import Dataset, NodeData

META_FILE, LONGEST_META = "meta.json", 1 << 20
USUAL_DIM = 1024
COUNTS = {
    "tiny": {"paper": 100_000, "author": 357_041},
    "small": {"paper": 1_000_000, "author": 1_926_066},
    "medium": {"paper": 10_000_000, "author": 15_544_654},
    "large": {"paper": 100_000_000, "author": 116_959_896},
    "full": {"paper": 269_346_174, "author": 277_220_883},
}
"""Published size -> type -> nodes, for the two types that come headerless."""
FULL_LABELS = {"19": (227_130_858,), "2K": (153_383_374, 157_675_969)}
"""IGB full: number of labelled papers. The 2K file has rows up to the second number, but the authors confirmed
that those from the first number on are padding, which reads as class 0."""


def parse_relation(name: str) -> tuple[Relation, bool] | None:
    """Split a folder name.

    Returns
    -------
    relation, pairs
        (source, name, destination), and whether the family writes (E, 2): ``paper__cites__paper`` does,
        ``paper___cites___paper`` does not. ``None`` if the name is no relation.
    """
    for mark, pairs in (("___", False), ("__", True)):
        parts = name.split(mark)
        if len(parts) == 3 and all(parts):
            return (parts[0], parts[1], parts[2]), pairs
    return None


def relation_folders(path: Path) -> list[Path]:
    """Folders of relations directly inside `path`, in the order of their names."""
    if not is_folder(path):
        return []
    named = [each for each in entries(path) if parse_relation(each.name) and is_folder(each)]
    return [each for each in named if is_there(each / "edge_index.npy", "edges")]


def find_tree(path: Path) -> Path | None:
    """The folder with the relations: `path`, ``path/processed``, or ``path/SIZE/processed`` if there is one.

    Raises
    ------
    InputError
        If there are several sizes to choose from.
    """
    for folder in (path, path / "processed"):
        if relation_folders(folder):
            return folder
    if not is_folder(path):
        return None
    sizes = [each for each in entries(path) if relation_folders(each / "processed")]
    if len(sizes) > 1:
        names = ", ".join(str(p) for p in sizes)
        raise InputError(f"{path}: holds {len(sizes)} datasets ({names}); give the path of one")
    return sizes[0] / "processed" if sizes else None


def open_igb(path: Path, reading: Reading) -> Dataset:
    """Open an IGB or IGBH tree at any level (ROOT with one size, ROOT/SIZE, ROOT/SIZE/processed).

    Raises
    ------
    MissingError
        If there is no relation folder, or a relation asked for is missing.
    InputError
        If a file is damaged or does not fit the others.
    """
    tree = find_tree(path)
    if tree is None:
        raise MissingError(
            f"{path}: expected an IGB tree, found no folder SRC__NAME__DST with an edge_index.npy in it, in "
            "processed/ or in SIZE/processed/; check the path or choose another --format"
        )
    size = tree.parent.name if tree.name == "processed" else tree.name
    edges, used = [], {META_FILE}
    for folder in _chosen(tree, reading):
        parsed = parse_relation(folder.name)
        if parsed is not None:
            edge, names = read_edge_folder(folder, parsed[0], reading, pairs=parsed[1])
            edges.append(edge)
            used.add(folder.name)
            reading.ignored(folder, {p.name for p in entries(folder)} - names)
    types = sorted({t for edge in edges for t in (edge.relation[0], edge.relation[2])})
    reading.notes["node_types"] = types
    stated = _stated_counts(tree, reading)
    nodes = {}
    for node_type in types:
        folder = tree / node_type
        known = is_folder(folder)
        if not known and os.path.lexists(folder):
            raise InputError(f"{folder}: expected the directory of {node_type} nodes, found a file; move it away")
        nodes[node_type], names = read_nodes(_node_files(folder, size, stated, reading), edges, reading)
        _require_label_chosen(folder, nodes[node_type], reading)
        used.add(node_type)
        if known:
            reading.ignored(folder, {p.name for p in entries(folder)} - names)
    reading.ignored(tree, {p.name for p in entries(tree) if not p.name.startswith(".")} - used)
    name = tree.parent.name if tree.name == "processed" else tree.name
    return Dataset(name, "igb", nodes, edges, reading.notes, reading.files)


def _require_label_chosen(folder: Path, nodes: NodeData, reading: Reading) -> None:
    found = [each.name for each in entries(folder) if each.match("node_label*.npy")] if is_folder(folder) else []
    if nodes.labels is None and found:
        raise MissingError(
            f"{folder}: expected node_label_{reading.options.label}.npy or node_label.npy, found {', '.join(found)}; "
            "choose with --label 19 or 2K"
        )


def _chosen(tree: Path, reading: Reading) -> list[Path]:
    folders = relation_folders(tree)
    wanted = reading.options.relations
    if not wanted:
        return folders
    by_name = {folder.name: folder for folder in folders}
    for folder in folders:
        parsed = parse_relation(folder.name)
        if parsed is not None:
            by_name[relation_key(parsed[0])] = folder
    for name in wanted:
        if name not in by_name:
            known = ", ".join(folder.name for folder in folders)
            raise MissingError(f"{tree}: no relation {name}; there are: {known}")
    return sorted({by_name[name] for name in wanted})


def _node_files(folder: Path, size: str, stated: dict[str, int], reading: Reading) -> NodeFiles:
    node_type, label = folder.name, reading.options.label
    known = {f"IGB {s}": counts[node_type] for s, counts in COUNTS.items() if node_type in counts and s == size}
    prefixes = {}
    if node_type == "paper":
        prefixes = {COUNTS["full"]["paper"]: FULL_LABELS[label]}
    return NodeFiles(
        folder=folder,
        node_type=node_type,
        label_names=(f"node_label_{label}.npy", "node_label.npy"),
        headerless=True,
        usual_dim=USUAL_DIM,
        known_rows=known,
        label_prefixes=prefixes,
        stated_count=(str(folder.parent / META_FILE), stated[node_type]) if node_type in stated else None,
    )


def _stated_counts(tree: Path, reading: Reading) -> dict[str, int]:
    path = tree / META_FILE
    if not is_there(path, "numbers of nodes"):
        return {}
    reading.used(path)
    try:
        with storage_errors(path), path.open("rb") as file:
            text = file.read(LONGEST_META + 1)
        if len(text) > LONGEST_META:
            raise ValueError(f"found more than {LONGEST_META} bytes")
        counts = json.loads(text)["num_nodes"]
        return {str(name): node_count(number, f"num_nodes of {name}") for name, number in counts.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{path}: expected JSON such as {{"num_nodes": {{"paper": 100}}}} ({str(error)[:200]}); correct it'
        ) from error
