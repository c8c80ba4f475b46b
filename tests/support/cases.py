"""A case of a malformed input, and what the tables of them share."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from small_inputs import SMALL_INPUTS

FILES = {
    "npy": (
        "edge_index.npy", "edge_weight.npy", "edge_type.npy", "edge_id.npy", "node_feat.npy", "node_label.npy",
        "train_idx.npy", "val_idx.npy", "test_idx.npy", "num_nodes.txt",
    ),
    "igb": (
        "meta.json", "paper/node_feat.npy", "paper/node_label_19.npy", "paper/train_idx.npy", "paper/test_idx.npy",
        "paper__cites__paper/edge_index.npy", "paper__cites__paper/edge_weight.npy",
    ),
    "csv": ("edges.csv",),
    "csv.gz": ("edges.csv.gz",),
    "parquet": ("part-0.parquet", "part-1.parquet"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One malformed input."""

    name: str
    make: Callable[[Path], list[object]]
    """Writes the input; returns the arguments of ``tiering import``."""
    words: tuple[str, ...]
    """What the message must have in it."""


def damaged(kind: str, file: str, damage: Callable[[Path], object], *more: object) -> Callable[[Path], list[object]]:
    """A valid input of a format, one file of which is damaged."""

    def make(folder: Path) -> list[object]:
        source = SMALL_INPUTS[kind](folder)
        damage((source if source.is_dir() else source.parent) / file)
        return [source, *more]

    return make


def saved(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def zipped(array: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, x=array)
    return file.getvalue()
