"""`tiering generate`: a dataset of any size from a seed, in IGB or IGBH format.

See `tiering.datasets.generated.communities` for the model. With ``hetero`` the nodes are divided among four types and
the edges among seven relations, as in IGBH with the reverses that its loaders add:

====================================  =====  =========================================
relation                              edges
====================================  =====  =========================================
paper__cites__paper                   rest   30 %
paper__written_by__author             15 %   reversed: author__rev_written_by__paper
paper__topic__fos                     15 %   reversed: fos__rev_topic__paper
author__affiliated_to__institute       5 %   reversed: institute__rev_affiliated_to__author
====================================  =====  =========================================
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.manifest import Relation
from tiering.artifacts.storage import disk_free, storage_errors
from tiering.datasets.arrays import narrow_rows
from tiering.datasets.generated.communities import EDGE_BLOCK, FEATURE_BLOCK, KeyedPermutation, Population, draw_edges
from tiering.datasets.options import split_fractions
from tiering.datasets.scratch import chunks
from tiering.errors import InputError, StorageError
from tiering.progress import Progress, progress
from tiering.units import format_bytes

DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
"""Feature dtypes that can be generated -> dtype in the file (bfloat16 is stored as uint16)."""
HOMOPHILY = 0.7
SIGNAL = 1.5
CITES = ("paper", "cites", "paper")

TYPE_SHARES = {"author": 0.40, "fos": 0.08, "institute": 0.02}
"""Fraction of the nodes of each type in a heterogeneous dataset; papers are the rest."""
RELATION_SHARES = {  # fraction of the edges of each relation; its reverse has as many, citations the rest
    ("paper", "written_by", "author"): 0.15,
    ("paper", "topic", "fos"): 0.15,
    ("author", "affiliated_to", "institute"): 0.05,
}


RANGES = {"nodes": (2, 2**40), "edges": (0, 2**44), "dim": (1, 2**20), "classes": (1, 2**20), "seed": (0, 2**64 - 1)}
"""Least and greatest value of each number that `generate` takes."""


@dataclass(frozen=True)
class Recipe:
    """The parameters of `generate`, checked, and the sizes that follow from them."""

    nodes: int
    edges: int
    dim: int
    classes: int
    seed: int
    hetero: bool
    dtype: str
    split: Sequence[float]
    featureless: Sequence[str]

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name}: expected {low} to {high}, found {getattr(self, name)}")
        if self.dtype not in DTYPES:
            raise InputError(f"dtype: expected {', '.join(DTYPES)}, found {self.dtype!r}")
        smallest, size = min(self.counts.items(), key=lambda item: item[1])
        if size < 2 * self.classes:
            raise InputError(
                f"nodes: {size} {smallest} nodes are too few for {self.classes} classes, expected 2 per class or "
                "more; raise nodes or lower classes"
            )
        others = [name for name in self.counts if name != "paper"]
        for name in self.featureless:
            if name not in others:
                known = ", ".join(others) or "none without hetero"
                raise InputError(f"featureless: expected some of {known}, found {name!r}")
        split_fractions(self.split, "split")
        if self.splits["train"] == 0:
            papers = self.counts["paper"]
            raise InputError(f"split: {self.split[0]} of {papers} papers leaves the train set empty; raise it")

    @cached_property
    def counts(self) -> dict[str, int]:
        """Nodes by type."""
        others = {name: int(self.nodes * share) for name, share in TYPE_SHARES.items()} if self.hetero else {}
        return {"paper": self.nodes - sum(others.values()), **others}

    @cached_property
    def relations(self) -> dict[Relation, int]:
        """Edges by relation, of those that are drawn; all but citations are written reversed too, as ``rev_NAME``."""
        others = {r: int(self.edges * share) for r, share in RELATION_SHARES.items()} if self.hetero else {}
        return {CITES: self.edges - 2 * sum(others.values()), **others}

    @cached_property
    def splits(self) -> dict[str, int]:
        """Papers in ``train``, ``val``, ``test``."""
        papers = self.counts["paper"]
        return {name: int(papers * share) for name, share in zip(("train", "val", "test"), self.split, strict=True)}

    @property
    def bytes(self) -> int:
        """Bytes all files will take."""
        item = np.dtype(DTYPES[self.dtype]).itemsize
        rows = sum(n for name, n in self.counts.items() if name not in self.featureless)
        return rows * self.dim * item + 4 * self.counts["paper"] + 8 * sum(self.splits.values()) + 16 * self.edges


def generate(
    out: str | os.PathLike[str],
    *,
    nodes: int,
    edges: int,
    dim: int = 128,
    classes: int = 8,
    seed: int = 0,
    hetero: bool = False,
    dtype: str = "float32",
    split: tuple[float, float, float] = (0.1, 0.05, 0.1),
    featureless: Sequence[str] = (),
    force: bool = False,
) -> dict[str, Any]:
    """Generate a dataset whose labels a GNN finds and a network without neighbours does not.

    Parameters
    ----------
    out
        Directory to create; the dataset is in ``OUT/processed``, for ``tiering import OUT``.
    nodes, edges
        Exact numbers; with `hetero`, over all types and relations, reverse ones included.
    dim
        Values per feature row.
    classes
        Number of labels, and of communities.
    seed
        Same seed and sizes, same bytes.
    hetero
        Four types and seven relations instead of papers and citations.
    dtype
        ``float32``, ``float16`` or ``bfloat16``.
    split
        Fractions of the papers in train, val and test.
    featureless
        Types without features (with `hetero`): their count stands in ``meta.json``.
    force
        Replace an earlier dataset of this function at `out`.

    Returns
    -------
    dict
        Numbers of nodes and edges by type and relation, and bytes.

    Notes
    -----
    Memory is bounded whatever the size (about 100 MiB). Disk space is checked first; all files appear at once.
    """
    recipe = Recipe(nodes, edges, dim, classes, seed, hetero, dtype, split, featureless)
    target = Path(out).absolute()
    with OutputDirectory(target, force=force) as output:
        free = disk_free(output.path)
        if recipe.bytes > free:
            raise StorageError(
                errno.ENOSPC,
                f"{target}: not enough room: {format_bytes(recipe.bytes)} needed, {format_bytes(free)} free; "
                "make room, choose another disk, or generate less",
            )
        with progress(recipe.bytes, "generating", "B", scale=True) as bar:
            summary = _write(recipe, output.path / "processed", bar)
        output.commit()
    return {"path": str(target), **summary}


def _write(recipe: Recipe, tree: Path, bar: Progress) -> dict[str, Any]:
    populations = {
        name: Population(size, recipe.classes, recipe.seed, stream)
        for stream, (name, size) in enumerate(recipe.counts.items())
    }
    for name, population in populations.items():
        if name not in recipe.featureless:
            shape = (population.size, recipe.dim)
            rows = (
                narrow_rows(population.features(block, part, recipe.dim, SIGNAL), recipe.dtype)
                for block, part in enumerate(chunks(population.size, max(1, FEATURE_BLOCK // recipe.dim)))
            )
            _save(tree / name / "node_feat.npy", DTYPES[recipe.dtype], shape, rows, bar)
    papers = populations["paper"]
    labels = (
        papers.community_of_ids(np.arange(part.start, part.stop)).astype("<f4")
        for part in chunks(papers.size, EDGE_BLOCK)
    )
    _save(tree / "paper" / "node_label_19.npy", "<f4", (papers.size,), labels, bar)
    order, start = KeyedPermutation(papers.size, (recipe.seed, 3)), 0
    for split, size in recipe.splits.items():
        ids = (order.forward(np.arange(start + p.start, start + p.stop)) for p in chunks(size, EDGE_BLOCK))
        _save(tree / "paper" / f"{split}_idx.npy", "<i8", (size,), ids, bar)
        start += size
    edges: dict[str, int] = {}
    for stream, (relation, count) in enumerate(recipe.relations.items()):
        source, name, target = relation
        for reverse in (False,) if relation == CITES else (False, True):
            folder = f"{target}__rev_{name}__{source}" if reverse else f"{source}__{name}__{target}"
            blocks = _draw_blocks(populations[source], populations[target], stream, count, reverse)
            _save(tree / folder / "edge_index.npy", "<i8", (count, 2), blocks, bar)
            edges[folder] = count
    sizes = {"num_nodes": recipe.counts, "num_edges": edges}
    parameters = {"dim": recipe.dim, "dtype": recipe.dtype, "classes": recipe.classes, "seed": recipe.seed}
    meta = {"generator": "tiering generate", **sizes, **parameters, "homophily": HOMOPHILY, "signal": SIGNAL}
    with storage_errors(tree):
        (tree / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    return {**sizes, "bytes": recipe.bytes}


def _draw_blocks(
    source: Population, target: Population, stream: int, count: int, reverse: bool
) -> Iterator[npt.NDArray[Any]]:
    for block, part in enumerate(chunks(count, EDGE_BLOCK)):
        edges = draw_edges(source, target, stream, block, part.stop - part.start, HOMOPHILY)
        yield edges[:, ::-1] if reverse else edges


def _save(path: Path, dtype: str, shape: tuple[int, ...], blocks: Iterator[npt.NDArray[Any]], bar: Progress) -> None:
    """Write a numpy file block by block."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
            for block in blocks:
                data = np.ascontiguousarray(block)
                file.write(data.reshape(-1).view(np.uint8).data)
                bar.update(data.nbytes)
            file.flush()
            os.fsync(file.fileno())
