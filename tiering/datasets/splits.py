"""Splits: node ids or masks that a dataset has, or made from fractions; checked either way."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.storage import file_exists
from tiering.datasets.arrays import SourceArray
from tiering.datasets.import_context import ImportContext, first_wrong
from tiering.datasets.options import SPLIT_RULES
from tiering.errors import InputError
from tiering.formats.names import NameTable
from tiering.formats.torch_file import read_torch, to_array
from tiering.formats.user_arrays import check_ids

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SPLIT_FILES = {  # split -> file names it may have, the first found counts
    "train": ("train_idx.npy", "train_mask.npy"),
    "val": ("val_idx.npy", "valid_idx.npy", "val_mask.npy", "valid_mask.npy"),
    "test": ("test_idx.npy", "test_mask.npy"),
}
OGB_SPLITS = {"train": "train", "valid": "val", "test": "test"}  # OGB's name of a split -> ours
_TORCH_SPLITS = {  # split -> its names in a split_dict.pt, the first counts; MAG240M's test set comes in parts as well
    "train": ("train",),
    "val": ("valid", "val"),
    "test": ("test", "test-whole", "test-dev", "test-challenge"),
}
OFFICIAL = "official"
_MLPERF_SEED = 42
SPLIT = "node ids or a mask"


class SplitArray(NamedTuple):
    """Node ids of a split, or a mask, as a dataset has them."""

    values: npt.NDArray[Any]
    where: str
    is_mask: bool = False  # True if the dataset calls it a mask

    def renumber(self, ids: npt.NDArray[Any] | None, names: NameTable | None, first_id: int) -> SplitArray:
        """Return the split by nodes, of ids of the edges: `ids` ascending, decimal `names`, or counted from `first_id`.

        A mask stays as it is: its rows are in the order of the nodes. Cost for names: a binary search for each id.
        """
        values, where = self.values.astype(np.int64 if ids is None else ids.dtype, copy=False), self.where
        if self.is_mask or self.values.dtype.kind == "b" or (ids is None and names is None and not first_id):
            return self
        if names is not None:
            ranks = (names.position(b"%d" % value) for value in self.values.tolist())
            nodes = np.array([-1 if rank is None else rank for rank in ranks], np.int64)
        elif ids is not None:
            places = np.searchsorted(ids[:-1], values)
            nodes = np.where((ids[places] == values) & ((values < 0) == (self.values < 0)), places, -1)
        else:
            nodes, where = values - first_id, f"{where} (minus --first-id {first_id})"
        if (at := first_wrong(nodes, lambda block: block < 0)) is not None:
            problem = f"expected ids of the edges, which are renumbered, found {self.values[at]} at position {at}"
            raise InputError(f"{self.where}: {problem}; correct it, or give a mask of the nodes in ascending order")
        return SplitArray(nodes, where)

    def ids(self, num_nodes: int, counted_by: str = "") -> Ids:
        """Return the node ids, int64, each once and in range; whole numbers are a mask if each is 0 or 1."""
        values = self.values
        if not self.is_mask and values.dtype.kind != "b":
            return check_ids(values, num_nodes, self.where, counted_by)
        if values.shape[0] != num_nodes or first_wrong(values, lambda b: (b != 0) & (b != 1)) is not None:
            raise InputError(
                f"{self.where}: expected a mask of {num_nodes} values, a boolean or 0 or 1 for each node, found "
                f"{values.dtype} {values.shape}; correct it, or if these are node ids, name it idx instead of "
                "mask"
            )
        return np.flatnonzero(values).astype(np.int64)


def read_split(split: str, column: SourceArray, is_mask: bool) -> dict[str, SplitArray]:
    """Return the split in an array of the dataset; of several masks, its columns, splits ``train-0``, ``train-1``..."""
    array, where = column.array, column.where
    if array.ndim == 2 and 1 not in array.shape and (array.dtype == bool or (is_mask and array.dtype.kind in "iu")):
        masks = enumerate(array.T)
        return {f"{split}-{k}": SplitArray(mask, f"{where}: column {k}", is_mask) for k, mask in masks}
    values = column.numbers(SPLIT, "biu", "node ids as whole numbers or a boolean mask")
    return {split: SplitArray(values, where, is_mask)}


def read_split_files(folder: Path, context: ImportContext) -> dict[str, SplitArray]:
    """Map the `SPLIT_FILES` in the folder of a node type."""
    splits: dict[str, SplitArray] = {}
    for split, candidates in SPLIT_FILES.items():
        existing = [folder / name for name in candidates if file_exists(folder / name, SPLIT)]
        for path in existing[:1]:
            splits |= read_split(split, SourceArray.open_npy(path, SPLIT, context), "mask" in path.name)
    return splits


def read_torch_splits(path: Path, context: ImportContext, only: str | None = None) -> dict[str, SplitArray]:
    """Return the splits of a ``split_dict.pt``; of several test sets the whole one, or all; `only`: of one file."""
    context.record_file(path)
    content = read_torch(path, "splits")
    if only is not None:
        return {only: SplitArray(_torch_ids(content, path, str(path)), str(path))}
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: expected a dictionary of splits, found {type(content).__name__}; get the file again")
    splits = {}
    for split, names in _TORCH_SPLITS.items():
        present = [name for name in names if content.get(name) is not None]
        if not present:
            continue
        chosen = present if present[0].startswith("test-dev") else present[:1]
        arrays = [_torch_ids(content[name], path, f"{path}: {name}") for name in chosen]
        splits[split] = SplitArray(np.concatenate(arrays), f"{path}: {' and '.join(chosen)}")
    if "train" not in splits or splits["train"].values.size == 0:
        raise InputError(f"{path}: expected a train set, found {', '.join(map(str, content))}; get the file again")
    return splits


def _torch_ids(values: Any, path: Path, where: str) -> npt.NDArray[Any]:
    array = to_array(values, path, where)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{where}: expected node ids, found {array.dtype} {array.shape}; get the file again")
    return array


def check_splits(
    splits: dict[str, Ids], labeled: Mask | None, num_nodes: int, where: str, context: ImportContext
) -> None:
    """Record overlaps between splits, of several masks the ones with one number, and split nodes without a label."""
    for i, (name, ids) in enumerate(splits.items()):
        inside, number = np.zeros(num_nodes, bool), name.partition("-")[2]
        inside[ids] = True
        for other in list(splits)[:i]:
            together = number == "" or other.partition("-")[2] in (number, "")
            if together and (both := int(np.count_nonzero(inside[splits[other]]))):
                context.warn(f"{where}: {both} nodes are in both {other} and {name}")
        if labeled is not None and (without := ids.size - int(np.count_nonzero(labeled[ids]))):
            context.warn(f"{where}: {without} of {ids.size} nodes in {name} have no label")


def make_splits(labeled: Mask | None, num_nodes: int, context: ImportContext) -> dict[str, Ids]:
    """Make splits of the labeled nodes (of all nodes, without labels) by option ``split``.

    Fractions: nodes are sampled in the order of a hash of (seed, id). ``igb``: in the order of ids where the labeled
    nodes are the first of all and not all, as in IGB-full, else as fractions. ``mlperf``: in torch's permutation, the
    ids that ``split_seeds.py`` of MLPerf's reference writes. Cost: O(n log n) for n nodes, 24 bytes each.
    """
    rule = context.options.split or OFFICIAL
    fractions = SPLIT_RULES[rule] if isinstance(rule, str) else rule
    pool = np.arange(num_nodes, dtype=np.int64) if labeled is None else np.flatnonzero(labeled)
    notes: dict[str, Any] = {"made": rule if isinstance(rule, str) else list(rule), "of": int(pool.size)}
    if rule == "mlperf":
        pool = pool[native.torch_permutation(pool.size, _MLPERF_SEED)]
        ends = [0, *accumulate(int(fraction * pool.size) for fraction in fractions)]  # as it rounds
    else:
        ends = [0, *(round(sum(fractions[: i + 1]) * pool.size) for i in range(3))]
        if rule == "igb" and pool.size < num_nodes and pool.size and int(pool[-1]) == pool.size - 1:
            notes["order"] = "ids"
        else:
            notes["seed"] = context.options.split_seed
            hashed = pool.astype(np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (notes["seed"] + 1)) % 2**64)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                hashed ^= hashed >> np.uint64(shift)
                hashed *= np.uint64(factor)
            pool = pool[np.argsort(hashed ^ (hashed >> np.uint64(31)), kind="stable")]
    splits = {
        name: pool[start:end].astype(np.int64) for name, (start, end) in zip(SPLIT_FILES, pairwise(ends), strict=False)
    }
    if splits["train"].size == 0:
        said = rule if isinstance(rule, str) else ",".join(map(str, rule))
        problem = f"split {said} of {pool.size} labeled nodes leaves the train set empty"
        raise InputError(f"{context.notes['source']}: {problem}; give train a larger fraction, or check the labels")
    context.notes["splits"] = notes
    return {name: ids for name, ids in splits.items() if ids.size}
