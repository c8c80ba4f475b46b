"""Feature files of the user: described and checked, never copied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tiering.artifacts.manifest import storage_dtype
from tiering.datasets.arrays import SourceArray
from tiering.datasets.import_context import ImportContext
from tiering.errors import InputError
from tiering.formats.features import FeatureTable
from tiering.formats.npy_file import is_npy


def describe_features(
    path: Path, node_type: str, context: ImportContext, known_rows: Mapping[str, int], usual_dim: int | None
) -> FeatureTable:
    """Describe a feature file, with or without numpy header: numpy's magic bytes decide, not the name.

    `known_rows` (where a number is known from -> rows) and `usual_dim` (values per row in this family of datasets,
    float32) help with a headerless one: the usual dim counts if the rows that follow from it are known.
    """
    context.record_file(path)
    if is_npy(path):
        return _with_header(path, node_type, context)
    return _headerless(path, node_type, context, known_rows, usual_dim)


def _with_header(path: Path, node_type: str, context: ImportContext) -> FeatureTable:
    column, options = SourceArray.open_npy(path, "a feature table (rows, dim)", context), context.options
    if column.offset is None:
        raise InputError(
            f"{path}: expected rows that lie together (C order), found Fortran order; "
            "save it again with numpy.save(path, numpy.ascontiguousarray(array))"
        )
    rows, dtype = column.rows()
    for option, wanted, has, unit in (
        ("--feature-dim", options.feature_dim.get(node_type), rows.shape[1], " values per row"),
        ("--feature-dtype", options.feature_dtype.get(node_type), dtype, ""),
    ):
        if wanted not in (None, has):
            raise InputError(
                f"{path}: {option} says {wanted}{unit}, but the file has a numpy header that says {column.described}; "
                "leave the option out"
            )
    return FeatureTable(path, rows.shape[0], rows.shape[1], dtype, column.offset)


def _headerless(
    path: Path, node_type: str, context: ImportContext, known_rows: Mapping[str, int], usual_dim: int | None
) -> FeatureTable:
    options = context.options
    dim, rows = options.feature_dim.get(node_type), options.num_nodes.get(node_type)
    dtype = options.feature_dtype.get(node_type) or "float32"
    item = storage_dtype(dtype).itemsize
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path}: expected features, found an empty file (0 bytes); get the file again")
    if dim is None and rows:
        dim = _divide(path, size, rows * item, f"{rows} rows (--num-nodes) of {dtype}", "dim")
        context.record_guess(f"{node_type} feature_dim", dim)
    elif dim is None and usual_dim is not None and size in (count * usual_dim * item for count in known_rows.values()):
        dim = usual_dim
        context.record_guess(f"{node_type} feature shape", [size // (dim * item), dim, dtype])
    if dim is None:
        raise InputError(_cannot_tell(path, size, known_rows, item, dtype))
    counted = _divide(path, size, dim * item, f"rows of {dim} x {dtype}", "rows")
    if rows not in (None, counted):
        raise InputError(
            f"{path}: expected {rows} rows (--num-nodes) x {dim} x {dtype} = {rows * dim * item} bytes, found {size} "
            f"bytes = {counted} rows; correct --num-nodes, --feature-dim or --feature-dtype, or get the file again"
        )
    return FeatureTable(path, counted, dim, dtype)


def _divide(path: Path, size: int, by: int, unit: str, result: str) -> int:
    if size % by:
        raise InputError(
            f"{path}: has no numpy header, and its {size} bytes are no whole number of {result}: expected a multiple "
            f"of {by} bytes ({unit}), {size % by} bytes remain; correct --feature-dim, --feature-dtype or --num-nodes, "
            "or the file is cut: get it again"
        )
    return size // by


def _cannot_tell(path: Path, size: int, known_rows: Mapping[str, int], item: int, dtype: str) -> str:
    fits = [
        f"{rows} rows ({origin}) x {size // (rows * item)} x {dtype}"
        for origin, rows in known_rows.items()
        if rows and size % (rows * item) == 0
    ]
    hint = f"its {size} bytes would fit {' or '.join(fits)}" if fits else f"it has {size} bytes"
    return (
        f"{path}: expected a numpy file, found no numpy header; if it is headerless (raw rows), {hint}: "
        "say so with --feature-dim (and --feature-dtype, --num-nodes); otherwise get the file again"
    )
