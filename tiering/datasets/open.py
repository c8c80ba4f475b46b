"""The registry of dataset formats: detect the format of a path, and open what lies there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tiering.artifacts.remote_cache import RemoteCache
from tiering.artifacts.remote_path import RemotePath, as_path, open_remote
from tiering.artifacts.storage import entries, file_exists, is_folder
from tiering.datasets.arrays import copy_rows, is_sparse
from tiering.datasets.arrow_tables import add_stream
from tiering.datasets.import_context import RELATION, ImportContext, Reader, Scratch, chunks
from tiering.datasets.name_ids import OtherIdsError
from tiering.datasets.named_arrays import NamedArrays
from tiering.datasets.options import (
    FORMAT_OPTIONS,
    OPTIONS,
    RANDOM_OPTIONS,
    TABLE_OPTIONS,
    ImportOptions,
    given_options,
)  # fmt: skip
from tiering.datasets.readers import edge_list, frameworks, graphbolt, igb, npy, ogb, parquet, tables
from tiering.datasets.specs import find_spec, locate_files
from tiering.datasets.splits import OFFICIAL
from tiering.datasets.table_sources import refuse_unnamed_tables
from tiering.datasets.times import add_times, time_file
from tiering.datasets.transforms import add_random, transform
from tiering.datasets.unread import refuse_table_formats, refuse_unread
from tiering.errors import InputError, MissingError
from tiering.formats.arrow import ArrowStream, name_type
from tiering.formats.dataset import Dataset
from tiering.formats.features import FeatureTable
from tiering.formats.npy_file import read_start, refuse_archive, refuse_archives
from tiering.memory import Budget, parse_memory
from tiering.text.arguments import is_url
from tiering.text.options import spell_flag

READERS: dict[str, Reader] = {
    "igb": igb.READER,
    "npy": npy.READER,
    "csc": npy.CSC_READER,
    "csr": npy.CSR_READER,
    "ogb": ogb.READER,
    "npz": npy.NPZ_READER,
    "graphbolt": graphbolt.READER,
    "pyg": frameworks.PYG_READER,
    "dgl": frameworks.DGL_READER,
    "tables": tables.READER,
    "parquet": parquet.READER,
    "mtx": edge_list.MTX_READER,
    "edgelist": edge_list.READER,
}
"""Format -> reader, in the order of detection: a tree may hold files of other formats, and text looks like any."""
ALIASES = {
    **dict.fromkeys(("csv", "tsv", "txt", "text", "edge-list", "snap"), "edgelist"), "numpy": "npy", "pt": "pyg",
    "scipy": "npz", "pq": "parquet", "igbh": "igb", "matrixmarket": "mtx",
}  # fmt: skip
"""Other names that people have for formats."""
HASHED_BYTES = 8 << 20
STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def detect_format(path: str | os.PathLike[str]) -> str:
    """Return the format of the dataset at `path`; `InputError` lists the known formats if there is none."""
    path = as_path(path)
    directory = _is_directory(path)
    detectors = {name: reader.directory if directory else reader.file for name, reader in READERS.items()}
    for name, detector in detectors.items():
        if detector is not None and detector.matches(path):
            return name
    if directory and npy.find_lists(path) is not None:
        raise InputError(
            f"{path}: {npy.INDPTR} does not tell the direction of the lists; give --format csc if there is a "
            "list of in-neighbors for each destination, --format csr if there is a list of targets for each source"
        )
    wanted = [detector.description for detector in detectors.values() if detector is not None]
    refuse_unread([path, *(entries(path) if directory else ())])
    if directory:
        refuse_archives(entries(path))
        names = [entry.name for entry in entries(path)]
        listing = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise InputError(
            f"{path}: no dataset recognized in this directory; looked for {', '.join(wanted)}; give --format "
            f"or give the right directory; found: {listing or 'nothing'}"
        )
    refuse_archive(path, start := read_start(path, 6))
    hint = "give the directory that holds it" if start == b"\x93NUMPY" else "give --format"
    raise InputError(f"{path}: no dataset recognized in this file; looked for {', '.join(wanted)}; {hint}")


def _is_directory(path: Path) -> bool:
    if str(path) in STANDARD_INPUT and not path.is_file():
        raise InputError(f"{path}: expected a file or directory, found standard input; save it in a file first")
    if is_folder(path, "a file or directory"):
        refuse_table_formats([path])
        return True
    if not file_exists(path, "a dataset"):
        bucket = "the bucket and " if isinstance(path, RemotePath) else ""
        raise MissingError(f"{path}: no such file or directory; check {bucket}the path")
    return False


def keeps_edge_ids(edge_ids: bool | None, format: str) -> bool:  # noqa: A002
    """Return whether an import keeps the positions of edges; ``None``: of PyG's and DGL's, which number their edges."""
    return format in ("pyg", "dgl") if edge_ids is None else edge_ids


def open_dataset(
    path: str | os.PathLike[str] | Any,
    format: str = "auto",  # noqa: A002 - the name the command line has
    *,
    memory: str | int | Budget | None = None,
    in_place: bool = False,
    edge_ids: bool | None = False,
    **options: Any,
) -> Dataset:
    """Open a user's dataset: check and describe it, without a copy of its large arrays.

    `path` is a file or a directory, or its URL; or a graph in memory: PyG's `Data` or `HeteroData`, a `DGLGraph`; or a
    square sparse matrix of scipy or torch, entry (i, j) of which is the edge i -> j; or an Arrow table of edges.
    `format`: ``auto``, or a name in `READERS`. What is larger than the `memory` goes to temporary files: close the
    dataset when done. `in_place` leaves columns of numbers in their parquet files, for readers of ranges
    (`EdgeData.decode`), where the files' footers say what has to be known beforehand. With `edge_ids`
    (`keeps_edge_ids`), edges that `options` (`ImportOptions`; ``None``: the default) add or remove keep their positions
    in the source, as `EdgeData.edge_ids`.
    """
    parsed, given, format = ImportOptions.parse(options), given_options(options), format.lower()  # noqa: A001
    format, spec = ALIASES.get(format, format), None  # noqa: A001
    if isinstance(path, (str, os.PathLike)):
        if parsed.cache is None and parsed.cache_size is not None:
            raise InputError("--cache-size: has no effect without --cache; add --cache, or omit --cache-size")
        if not isinstance(path, RemotePath):
            cache = None if parsed.cache is None else RemoteCache(parsed.cache, parsed.cache_size)
            path = open_remote(path, cache) if isinstance(path, str) and is_url(path) else Path(path)
        _is_directory(path)
        if parsed.spec is not None:
            spec = find_spec(str(parsed.spec))
            path = locate_files(spec, path)
            parsed = ImportOptions.parse({**spec.options, **given})
            format = spec.format if format == "auto" else format  # noqa: A001
        chosen, path = _choose_format(path, format, parsed), path.absolute()
        if ".." in path.parts:  # shorter in messages and records; otherwise symbolic links keep their names
            path = path.resolve()
        source = str(path)
    else:
        chosen, source = _find_library(path), name_type(path)
        if format not in ("auto", chosen):
            raise InputError(f"--format: expected auto or {chosen} for a {type(path).__name__}, found {format!r}")
        if parsed.spec is not None:
            raise InputError("--spec: does not apply to a graph in memory; omit it")
        named = [file for table in (*parsed.relation, *parsed.nodes) for file in table.files]
        if chosen == "tables" and parsed.relation and not any(file is path for file in named):
            raise InputError(f"source: found a {source} next to `relations`; name it there, as its table of a relation")
    for name in given:
        if name in FORMAT_OPTIONS - READERS[chosen].takes:
            others = ", ".join(other for other, reader in READERS.items() if name in reader.takes)
            raise InputError(f"{spell_flag(name)}: does not apply to format {chosen}; it applies to {others}")
    in_place = in_place and not (parsed.changes_edges or parsed.compact_ids or parsed.first_id)
    context = ImportContext(chosen, parsed, Scratch(parsed.work_dir, parse_memory(memory)), spec, in_place)
    context.notes.update(format=chosen, source=source, options=given, **({} if spec is None else {"spec": spec.name}))
    try:
        if isinstance(path, ArrowStream) and chosen == "tables":
            path = Path(name_type(path)) if parsed.relation else add_stream(path, ":".join(RELATION), context)
        dataset = READERS[chosen].open(path, context) if isinstance(path, Path) else _open_in_memory(path, context)
        for nodes in dataset.nodes.values():
            if isinstance(nodes.features, FeatureTable) and isinstance(nodes.features.path, RemotePath):
                nodes.features = copy_rows(nodes.features, nodes.features.path)
        _apply_options(dataset, context, keeps_edge_ids(edge_ids, chosen))
    except OtherIdsError:  # what is made dense is no int64
        context.scratch.close()
        return open_dataset(path, "tables", memory=memory, edge_ids=edge_ids, **options)
    except BaseException:
        context.scratch.close()
        raise
    dataset.close_files, dataset.peak = context.scratch.close, context.scratch.peak
    dataset.streams = [table.file for table in context.streams.values()]
    return dataset


def _choose_format(path: Path, format: str, options: ImportOptions) -> str:  # noqa: A002
    if format == "auto":
        format = "tables" if any(table.files for table in options.relation) else detect_format(path)  # noqa: A001
        asked = [name for name in TABLE_OPTIONS if getattr(options, name) != OPTIONS[name]]
        format = "tables" if format in ("edgelist", "parquet") and asked else format  # noqa: A001
        if format in ("edgelist", "parquet") and is_folder(path):
            refuse_unnamed_tables(path, format)
    if format not in READERS:
        hint = "; docs/importing.md has the two commands that import a BV graph" if format == "webgraph" else ""
        raise InputError(f"--format: expected auto, {', '.join(READERS)}, found {format!r}{hint}")
    # Times are a column of a table, unless they lie in a file next to it.
    if format in ("edgelist", "parquet") and (name := options.time) is not None:
        return format if any(time_file(path, kind, name).exists() for kind in ("edge", "node")) else "tables"
    return format


def _apply_options(dataset: Dataset, context: ImportContext, edge_ids: bool) -> None:
    options, source = context.options, context.notes["source"]
    if options.split == OFFICIAL and not any(nodes.splits for nodes in dataset.nodes.values()):
        problem = f"--split official: {source} has no files of splits"
        raise InputError(f"{problem}; give fractions such as --split 0.6,0.2,0.2, or a rule")
    if options.split not in (None, OFFICIAL) and "splits" not in context.notes:
        raise InputError(f"--split: no node type of {source} has labels to split; omit the option")
    transform(dataset, context, edge_ids)
    add_times(dataset, context)
    add_random(dataset, context)
    for name in ("num_nodes", "feature_dim", "feature_dtype", *sorted(RANDOM_OPTIONS)):
        for node_type in getattr(options, name).by_type:
            if node_type not in dataset.nodes:
                known = ", ".join(dataset.nodes)
                raise InputError(f"{spell_flag(name)}: no node type {node_type}; there are: {known}")


def _open_in_memory(graph: Any, context: ImportContext) -> Dataset:
    """Return a graph of PyG or DGL, with a digest: an import that was stopped continues with the same graph only."""
    name = type(graph).__name__
    target = NamedArrays(name, f"the {name}", Path(name), context.scratch)
    adders: dict[str, Callable[[Any, NamedArrays], None]] = {
        "dgl": frameworks.add_dgl_graph, "npz": frameworks.add_matrix, "pyg": frameworks.add_pyg_graph,
    }  # fmt: skip
    add = adders.get(context.format, adders["pyg"])
    add(graph.to_dict() if context.format == "pyg" else graph, target)
    dataset = target.make_dataset(context)
    digest = xxhash.xxh3_128(repr(sorted((t, target.counts.get(t)) for t in target.nodes)).encode())
    for column in target.columns:
        array = column.array
        digest.update(f"{column.where} {column.dtype} {array.shape};".encode())
        for part in chunks(array.shape[0], max(1, HASHED_BYTES // max(1, array[:1].nbytes))) if array.ndim else ():
            digest.update(np.ascontiguousarray(array[part]).view(np.uint8).data)
    context.notes["content"] = f"xxh3-128:{digest.hexdigest()}"
    return dataset


def _find_library(graph: Any) -> str:
    for kind in type(graph).__mro__:
        library = kind.__module__.partition(".")[0]
        if library == "torch_geometric" and hasattr(graph, "to_dict"):
            return "pyg"
        if library == "dgl" and kind.__name__ == "DGLGraph":
            return "dgl"
    if is_sparse(graph):
        return "npz"
    if isinstance(graph, ArrowStream):
        return "tables"
    raise InputError(
        f"source: expected a path, a graph of PyG (Data, HeteroData) or DGL (DGLGraph), a sparse matrix or an Arrow "
        f"table, found "
        f"{type(graph).__module__}.{type(graph).__qualname__}; give one of them"
    )
