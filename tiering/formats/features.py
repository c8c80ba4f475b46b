"""The features artifact: one table of rows per node type, inside or referred to. See ``data_specs/features.md``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.checksum import Verifier
from tiering.artifacts.manifest import Problem, body_problem, storage_dtype
from tiering.artifacts.storage import OpenDirectory, open_raw
from tiering.errors import MissingError
from tiering.text.description import Part, Table
from tiering.text.units import format_bytes, format_count

FEATURE_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64")
LABEL_VALUES = "y"  # node array of labels that are no classes
EDGE_FEATURES = "feat"
"""Name of the edge data that are rows of features: shape (edges, dim), ``bfloat16`` as ``uint16``."""


@dataclass(frozen=True)
class FeatureTable:
    """A table of feature rows on disk."""

    path: Path
    rows: int
    dim: int
    dtype: str  # one of `FEATURE_DTYPES`; ``bfloat16`` is stored as ``uint16``
    offset: int = 0  # bytes before row 0 (a header of the source format)
    row_order: str = "original"  # ``original`` (row = id in the source) or ``rank`` (row = rank in the order)
    ndim: int = 2  # 1: the source has one number for each node, ``dim`` is 1, and frameworks get rows of that shape
    opener: Callable[[], str] | None = field(default=None, compare=False, repr=False)
    """Function that returns the path by which the file of an open artifact is opened, even if it was moved."""
    verifier: Verifier | None = field(default=None, compare=False, repr=False)  # where reads are to be verified
    owner: OpenDirectory | None = field(default=None, compare=False, repr=False)  # keeps that path valid

    @property
    def place(self) -> str:
        """Path by which the table is opened, even if its artifact was moved."""
        return str(self.path) if self.opener is None else self.opener()

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, without padding."""
        return self.dim * storage_dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.row_bytes

    def entry(self, **where: Any) -> dict[str, Any]:
        """Return the table's entry in the manifest; `where` are the fields of its file, first byte and row order."""
        ndim = {} if self.ndim == 2 else {"ndim": self.ndim}
        return {"rows": self.rows, "dim": self.dim, "dtype": self.dtype, **ndim, **where}

    def open(self) -> np.ndarray[Any, Any]:
        """Map the table read-only, shape (rows, dim); ``bfloat16`` comes as ``uint16``."""
        rows = open_raw(self.place, storage_dtype(self.dtype), (self.rows, self.dim), self.offset)
        if isinstance(rows, np.memmap):
            rows.held = self.owner  # type: ignore[attr-defined] # its path is good as long as that is open
        return rows

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = self.open()[index]
        return rows


def edge_feature_shape(dtype: str, shape: tuple[int, ...]) -> tuple[int, str] | None:
    """Return dim and dtype of edge data `EDGE_FEATURES` in such an array; ``None`` if it is no table."""
    name, dim = "bfloat16" if dtype == "uint16" else dtype, math.prod(shape[1:])
    return (dim, name) if len(shape) in (1, 2) and dim and name in FEATURE_DTYPES else None


class Features(Artifact):
    """Feature tables by node type; a node type without features has none."""

    kind = "features"

    @property
    def node_types(self) -> list[str]:
        """Node types that have a table."""
        return list(self.manifest.body["tables"])

    def table(self, node_type: str) -> FeatureTable:
        """Return the table of one node type; `MissingError` if it has no features."""
        tables = self.manifest.body["tables"]
        if node_type not in tables:
            known = ", ".join(tables) or "none"
            raise MissingError(f"{self.path}: node type {node_type!r} has no features (types that have: {known})")
        entry, manifest = tables[node_type], self.manifest
        inside, name = "file" in entry, entry.get("file") or entry["external"]
        path = self.path / name if inside else manifest.external[name].path
        compared = manifest.verify and (inside or manifest.external[name].whole)
        return FeatureTable(
            path, entry["rows"], entry["dim"], entry["dtype"], entry["offset"], entry["row_order"],
            entry.get("ndim", 2), partial(manifest.place, name), manifest.verifier(name) if compared else None,
            manifest.held,
        )  # fmt: skip

    def _body_problems(self) -> Iterator[Problem]:
        for node_type, entry in self.manifest.body["tables"].items():
            where = f"body.tables.{node_type}"
            needed = entry["offset"] + entry["rows"] * entry["dim"] * storage_dtype(entry["dtype"]).itemsize
            listed = self.manifest.files if "file" in entry else self.manifest.external
            file = listed.get(entry.get("file") or entry["external"])
            if file is None:
                yield body_problem(where, "refers to a file that the manifest does not list")
            elif file.bytes < needed:
                yield body_problem(where, f"needs {needed} bytes, the file has {file.bytes}", "size")

    def _summarize_content(self) -> dict[str, Any]:
        names = ("rows", "dim", "dtype", "row_bytes", "bytes", "row_order")
        tables = {}
        for node_type in self.node_types:
            table = self.table(node_type)
            tables[node_type] = {**{name: getattr(table, name) for name in names}, "path": str(table.path)}
        return {"tables": tables}

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        rows = [
            (name, format_count(e["rows"]), f"{e['dim']} x {e['dtype']}", format_bytes(e["row_bytes"]), e["path"])
            for name, e in summary["tables"].items()
        ]
        return [Table("Feature tables", ("type", "rows", "values per row", "row size", "file"), rows)]
