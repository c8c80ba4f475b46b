"""Trees of published datasets with their kinds of files, dtypes and traps, at a fraction of their size.

Tests and benchmarks import them; ``source.json`` next to a tree is its specification, for ``--spec``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.replicas.containers import Array, save_csv, save_npy, save_npz, save_pickle, save_pt
from benchmarks.replicas.content import SPLITS, Content
from tiering.datasets.specs import FLAGS, DatasetSpec, SpecFile, find_spec, relation_of
from tiering.datasets.splits import OGB_SPLITS

SPECIFICATIONS = Path(__file__).resolve().parents[2] / "data_specs" / "sources"
EDGES = "node__to__node"
"""The only relation of OGB's small datasets."""
SPARSE = {"friendster": (19, 10)}
"""Dataset whose ids are sparse -> by how much: id x of the nodes is written as x * 19 // 10."""


def replicate(like: str, out: Path, scale: float, seed: int = 0) -> Path:
    """Write the tree of the published dataset `like` to the new directory `out`; return its specification.

    The replica has `scale` of the nodes and edges, and at least 16 nodes of each type. Same name, scale and seed, same
    bytes.
    """
    out.mkdir(parents=True)
    specification = out / "source.json"
    specification.write_text(json.dumps(scaled_document(like, scale), indent=1) + "\n")
    source = find_spec(str(specification))
    _Writer(source, like, out / source.roots[0], seed).write()
    return specification


def scaled_document(name: str, scale: float) -> dict[str, Any]:
    """Return the specification of a dataset with `scale` of its nodes and edges; rough numbers count as exact."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    for path in sorted(SPECIFICATIONS.glob("*.toml")):
        document: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
        for size, variant in document["variants"].items():
            if variant["name"] == name:
                return {**document, "variants": {size: _scaled(variant, scale)}}
    raise ValueError(f"{name}: no such dataset")


def _scaled(variant: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Return the counts of a variant times `scale`."""

    def times(counts: Mapping[str, int], least: int) -> dict[str, int]:
        return {name: max(min(least, count), round(count * scale)) for name, count in counts.items()}

    about = variant.get("about", {})
    edges = {**variant.get("edges", {}), **{name: count for name, count in about.items() if "__" in name}}
    types = {node_type for name in edges for node_type in relation_of(name)[::2]}
    nodes = {**variant.get("nodes", {}), **{name: count for name, count in about.items() if name in types}}
    others = {name: count for name, count in about.items() if name not in {*edges, *nodes, *FLAGS}}
    return {
        **variant,
        "nodes": times(nodes, 16),
        "edges": times(edges, 1),
        "about": {**times(others, 1), **{name: about[name] for name in FLAGS if name in about}},
        "prefixes": {
            name: [max(1, round(rows * scale)) for rows in counts]
            for name, counts in variant.get("prefixes", {}).items()
        },
    }


class _Writer:
    """Writes the files of a replica below `root`."""

    def __init__(self, source: DatasetSpec, like: str, root: Path, seed: int) -> None:
        self._source, self._like, self._root = source, like, root
        self._content = Content(source, seed)

    def write(self) -> None:
        for file in self._source.files:
            if file.optional and file.holds != "pickle":
                continue
            path = Path(os.path.normpath(self._root / file.path))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer(path)(path, file)

    def _writer(self, path: Path) -> Callable[[Path, SpecFile], None]:
        """Return the function that writes a file of that name."""
        by_suffix: Mapping[str, Callable[[Path, SpecFile], None]] = {
            ".npy": self._npy, ".npz": self._npz, ".pt": self._pt,
        }  # fmt: skip
        return by_suffix.get(path.suffix, self._text)

    def _npy(self, path: Path, file: SpecFile) -> None:
        if file.holds == "pickle":
            save_pickle(path, {f"W{number}": number for number in range(self._source.nodes[str(file.of)])})
        elif file.holds == "splits":
            save_npy(path, _of(self._content.split(str(file.of), path.stem.removesuffix("_idx"))))
        else:
            save_npy(path, self._content.array(file), header=not file.headerless)

    def _npz(self, path: Path, file: SpecFile) -> None:
        arrays = {member.path: self._content.array(member) for member in file.members}
        for name, counts in (("num_nodes_list", self._source.nodes), ("num_edges_list", self._source.edges)):
            if name in arrays:
                arrays[name] = _of(np.array(list(counts.values()), np.int64))
        if "row" in arrays:  # as scipy.sparse.save_npz
            nodes = self._source.nodes["node"]
            arrays |= {"format": _of(np.array(b"coo")), "shape": _of(np.array([nodes, nodes]))}
            arrays["data"] = Array("<f4", arrays["row"].shape, lambda: [np.ones(arrays["row"].shape, np.float32)])
        save_npz(path, arrays)

    def _pt(self, path: Path, file: SpecFile) -> None:
        if path.stem == "meta":
            save_pt(path, {**self._source.nodes, "num_classes": self._source.classes["paper"]})
            return
        train, val, test = (self._content.split(str(file.of), name) for name in SPLITS)
        development = np.arange(test.size) % 5 < 3
        save_pt(path, {
            "train": train, "valid": val, "test-whole": test, "test-dev": test[development],
            "test-challenge": test[~development],
        })  # fmt: skip

    def _text(self, path: Path, file: SpecFile) -> None:
        content, array = self._content, self._content.array(file)
        if file.holds == "splits":
            array = _of(content.split("node", OGB_SPLITS[path.name.split(".")[0]]))
        elif path.name.startswith("num-node-list"):
            array = _of(np.array([self._source.nodes["node"]]))
        elif path.name.startswith("num-edge-list"):
            array = _of(np.array([self._source.edges[EDGES]]))
        if self._source.format != "edgelist":
            save_csv(path, array)
            return
        up, down = SPARSE.get(self._like, (1, 1))
        sparse = replace(array, blocks=lambda: (edges * up // down for edges in content.edges(str(file.of))))
        counts = f"# Nodes: {self._source.nodes['node']} Edges: {array.shape[0]}\n# FromNodeId\tToNodeId\n"
        save_csv(path, sparse, delimiter="\t", head=counts)


def _of(values: npt.NDArray[Any]) -> Array:
    """Return an array that is in memory."""
    return Array(values.dtype.str, values.shape, lambda: [values])
