"""`tiering generate --like NAME`: the tree of a published dataset with its traps, at a share of its size."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.storage import disk_free, storage_errors
from tiering.datasets.generated.containers import Array, save_csv, save_npy, save_npz, save_pickle, save_pt
from tiering.datasets.generated.content import SPLITS, Content
from tiering.datasets.sources.source import (
    SPECIFICATION,
    Source,
    SourceFile,
    find_source,
    scaled_document,
    source_of,
)
from tiering.datasets.splits import OGB_SPLITS
from tiering.errors import InputError, StorageError
from tiering.progress import Progress, progress
from tiering.units import format_bytes

EDGES = "node__to__node"
"""The only relation of OGB's small datasets."""
SPARSE = {"friendster": (19, 10)}
"""Dataset whose ids are sparse -> by how much: id x of the nodes is written as x * 19 // 10."""


def replicate(
    like: str, out: str | os.PathLike[str], *, scale: float = 0.001, seed: int = 0, force: bool = False
) -> dict[str, Any]:
    """Write a small dataset with the tree of a published one: same files, kinds of files, dtypes and traps.

    Parameters
    ----------
    like
        Its name, see `tiering.datasets.sources.sources`.
    out
        Directory to create: the tree, and ``source.json``, the specification of the replica.
    scale
        Share of its nodes and edges, above 0 and at most 1; types with few nodes get at least 16.
    seed
        Same name, scale and seed, same bytes.
    force
        Replace an earlier replica at `out`.

    Returns
    -------
    dict
        What was made: path, numbers of nodes and edges, bytes.

    Raises
    ------
    InputError, MissingError
        If no replica can be made of it; if there is no dataset of that name.
    """
    if not 0 < scale <= 1:
        raise InputError(f"--scale: expected a share above 0 and at most 1, found {scale:g}")
    find_source(like)
    document = scaled_document(like, scale)
    source = source_of(document)
    if not source.nodes or not source.edges:
        raise InputError(f"--like {like}: no replica can be made of it; see `tiering datasets` for others")
    target = Path(out).absolute()
    with OutputDirectory(target, force=force) as output:
        free, needed = disk_free(output.path), source.bytes
        if needed > free:
            raise StorageError(
                errno.ENOSPC,
                f"{target}: not enough room: {format_bytes(needed)} needed, {format_bytes(free)} free; make room, or "
                "lower --scale",
            )
        with progress(needed, "generating", "B", scale=True) as bar:
            root = output.path / source.roots[0]
            _Writer(source, like, root, seed, bar).write()
        with storage_errors(output.path):
            (output.path / SPECIFICATION).write_text(json.dumps(document, indent=1) + "\n")
        output.commit()
    nbytes = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    counts = {"num_nodes": dict(source.nodes), "num_edges": dict(source.edges)}
    return {"path": str(target), "spec": str(target / SPECIFICATION), **counts, "bytes": nbytes}


class _Writer:
    """Writes the files of a replica below `root`."""

    def __init__(self, source: Source, like: str, root: Path, seed: int, bar: Progress) -> None:
        self._source, self._like, self._root, self._bar = source, like, root, bar
        self._content = Content(source, seed)

    def write(self) -> None:
        for file in self._source.files:
            if file.optional and file.holds != "pickle":
                continue
            path = Path(os.path.normpath(self._root / file.path))
            self._writer(path)(path, file)

    def _writer(self, path: Path) -> Callable[[Path, SourceFile], None]:
        """What writes a file of that name."""
        by_suffix: Mapping[str, Callable[[Path, SourceFile], None]] = {
            ".npy": self._npy, ".npz": self._npz, ".pt": self._pt,
        }  # fmt: skip
        return by_suffix.get(path.suffix, self._text)

    def _npy(self, path: Path, file: SourceFile) -> None:
        if file.holds == "pickle":
            save_pickle(path, {f"W{number}": number for number in range(self._source.nodes[str(file.of)])})
        elif file.holds == "splits":
            save_npy(path, _of(self._content.split(str(file.of), path.stem.removesuffix("_idx"))), self._bar)
        else:
            save_npy(path, self._content.array(file), self._bar, header=not file.headerless)

    def _npz(self, path: Path, file: SourceFile) -> None:
        arrays = {member.path: self._content.array(member) for member in file.members}
        for name, counts in (("num_nodes_list", self._source.nodes), ("num_edges_list", self._source.edges)):
            if name in arrays:
                arrays[name] = _of(np.array(list(counts.values()), np.int64))
        if "row" in arrays:  # as scipy.sparse.save_npz
            nodes = self._source.nodes["node"]
            arrays |= {"format": _of(np.array(b"coo")), "shape": _of(np.array([nodes, nodes]))}
            arrays["data"] = Array("<f4", arrays["row"].shape, lambda: [np.ones(arrays["row"].shape, np.float32)])
        save_npz(path, arrays, self._bar)

    def _pt(self, path: Path, file: SourceFile) -> None:
        if path.stem == "meta":
            save_pt(path, {**self._source.nodes, "num_classes": self._source.classes["paper"]})
            return
        train, val, test = (self._content.split(str(file.of), name) for name in SPLITS)
        development = np.arange(test.size) % 5 < 3
        save_pt(path, {
            "train": train, "valid": val, "test-whole": test, "test-dev": test[development],
            "test-challenge": test[~development],
        })  # fmt: skip

    def _text(self, path: Path, file: SourceFile) -> None:
        content, array = self._content, self._content.array(file)
        if file.holds == "splits":
            array = _of(content.split("node", OGB_SPLITS[path.name.split(".")[0]]))
        elif path.name.startswith("num-node-list"):
            array = _of(np.array([self._source.nodes["node"]]))
        elif path.name.startswith("num-edge-list"):
            array = _of(np.array([self._source.edges[EDGES]]))
        if self._source.format != "edgelist":
            save_csv(path, array, self._bar)
            return
        up, down = SPARSE.get(self._like, (1, 1))
        sparse = replace(array, blocks=lambda: (edges * up // down for edges in content.edges(str(file.of))))
        counts = f"# Nodes: {self._source.nodes['node']} Edges: {array.shape[0]}\n# FromNodeId\tToNodeId\n"
        save_csv(path, sparse, self._bar, delimiter="\t", head=counts)


def _of(values: npt.NDArray[Any]) -> Array:
    """An array that is in memory."""
    return Array(values.dtype.str, values.shape, lambda: [values])
