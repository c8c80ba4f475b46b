"""Sizes of published tables by codec, calculated from their specifications: nothing is read or measured."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Sizes, Table
from benchmarks.quantized.padding import pad_to_pages
from tiering.codecs import CODECS, fit_codec
from tiering.datasets.specs import find_spec
from tiering.errors import MissingError
from tiering.formats.ssd_rows import SsdRows

TABLES = (("mag240m", "paper"), ("igb-full", "paper"))
MEMORY = 128 << 30
PAGE = 4096
HEADS = ["table", "stored as", "row bytes", "stride", "bytes", "on ssd", "on ssd, padded", "share of rows in memory"]


def published(_: Sizes) -> Table:
    """Return the bytes of the tables as the source has them and by each codec of fewer bytes."""
    lines = []
    for name, node_type in TABLES:
        rows, dim, dtype = find_table(name, node_type)
        codecs: dict[int, list[str]] = {dim * np.dtype(dtype).itemsize: [dtype]}
        for codec in CODECS:
            row_bytes = fit_codec(codec, [np.zeros((1, dim), np.float32)], dim, "float32", name).row_bytes
            if row_bytes <= max(codecs) and codec != dtype:
                codecs.setdefault(row_bytes, []).append(codec)
        for row_bytes, names in codecs.items():
            unit, (place,) = SsdRows.plan_all([(rows, row_bytes)], PAGE, 1)
            padded = pad_to_pages(rows, row_bytes).num_units * PAGE
            share, stored = min(1.0, MEMORY / (rows * row_bytes)), rows * row_bytes
            title, text = f"{name}, {node_type}: {rows:,} x {dim}", ", ".join(names)
            lines.append([title, text, row_bytes, place.stride, stored, place.num_units * unit, padded, share])
    return Table("published tables", {"memory": MEMORY}, HEADS, lines)


def find_table(name: str, node_type: str) -> tuple[int, int, str]:
    """Return rows, values of a row, and dtype of a published table."""
    for file in find_spec(name).files:
        if (file.holds, file.of) == ("features", node_type) and file.shape is not None:
            return (*file.shape, file.dtypes[0])  # type: ignore[return-value]
    raise MissingError(f"{name}: expected features of {node_type!r} in its specification, found none")
