"""What a format of datasets is: how it is recognised, how it is opened, which options mean nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tiering.datasets.reading import Reading
from tiering.formats.protocols import Dataset

COLUMN_OPTIONS = frozenset({"src_column", "dst_column", "weight_column", "compact_ids"})
TEXT_OPTIONS = frozenset({"delimiter", "header"})
RAW_OPTIONS = frozenset({"feature_dim", "feature_dtype", "num_labelled"})
TREE_OPTIONS = frozenset({"label", "relations"})


@dataclass(frozen=True)
class Sign:
    """How datasets of a format are recognised, as directories or as files."""

    looked_for: str
    """In words, for the message of who found none."""
    recognises: Callable[[Path], bool]
    """Whether it is at a path at which there is a directory, or a file."""


@dataclass(frozen=True)
class Reader:
    """One format. A new one is a file beside this with its `Reader`, and a line in `tiering.datasets.detect`."""

    open: Callable[[Path, Reading], Dataset]
    """Describes the dataset at a path; raises `InputError` or `MissingError` where it is not as the format wants."""
    foreign: frozenset[str]
    """Options that say nothing about this format: given, they are refused."""
    directory: Sign | None = None
    file: Sign | None = None
