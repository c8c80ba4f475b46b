"""Build a graph artifact from an opened dataset: COO to CSC per relation, labels, splits, references to features."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import file_digests, file_state
from tiering.artifacts.manifest import External, relation_key, valid_name
from tiering.artifacts.storage import storage_errors
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, TieringError
from tiering.formats.feature_rows import take
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.protocols import Dataset, EdgeData, NodeData, fingerprint
from tiering.formats.shape import GraphShape
from tiering.graph.bucket_sort import write_by_buckets
from tiering.graph.plan import SIZES, CscSizes, SortSizes, csc_sizes, least_memory, plan_relation
from tiering.memory import Budget, parse_memory
from tiering.progress import progress
from tiering.units import parse_threads
from tiering.version import __version__


def build_graph(
    dataset: Dataset,
    out: str | os.PathLike[str],
    *,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
    edge_ids: bool = False,
    checksum_features: bool = False,
    options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    sizes: SortSizes = SIZES,
) -> Graph:
    """Write `dataset` as a graph artifact.

    Duplicate edges, self loops and isolated nodes stay as the dataset has them. Inside a column the edges keep the
    order of the input. Features are referred to, not copied.

    Parameters
    ----------
    dataset
        Opened dataset; its arrays may be memory maps of any stride.
    out
        Directory to create.
    threads
        Worker threads; the result is the same bytes for any number.
    memory
        What to stay within, such as ``8GiB``, ``50%`` or ``auto``; the result is the same bytes for any.
    force
        Replace an existing `out`.
    checksum_features
        Read the feature files whole, and record a checksum of each block; else 64 samples of each file.
    edge_ids
        Keep the position of each edge in the input as edge data ``edge_ids`` (8 bytes per edge). A dataset that
        brings edge ids of its own keeps those in any case.
    options
        Options of the import, for the record; JSON types.
    seed
        Seed of a random split made by the import, for the record.
    sizes
        How much is done at a time; the result is the same bytes for any.

    Returns
    -------
    Graph
        The artifact, opened.

    Raises
    ------
    InputError
        If names, shapes, dtypes or ids do not fit; says which file, relation, edge and id.
    BudgetError
        If a relation does not fit, and the memory is less than some 70 to 110 MiB.

    Notes
    -----
    Cost: a relation that fits (`tiering.graph.plan.CscSizes.in_memory`: 12 bytes per edge and 8 per node, more with
    edge data or 64-bit ids) is read twice. One that does not is read once, edge data included, and goes by way of the
    disk (`tiering.graph.bucket_sort`), relation by relation.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    _check_dataset(dataset)
    recorded = {"name": dataset.name, "format": dataset.format, **_json(options or {}, "options")}
    inputs = {str(file): found.sampled for file, found in sorted(dataset.files.items())}
    provenance = {"stage": "import", "options": recorded, "inputs": inputs, "seed": seed}
    states = {file: file_state(Path(file), sampled) for file, sampled in inputs.items()}
    identity = {**provenance, "inputs": states, "edge_ids": edge_ids, "package": __version__}
    with ArtifactWriter(out, "graph", force=force, identity=identity) as writer:
        shape = GraphShape.of_dataset(dataset, edge_ids=edge_ids)
        all_sizes = csc_sizes(dataset, shape)
        budget = budget.expecting(max((least_memory(csc, sizes) for csc in all_sizes), default=0))
        relations = []
        with progress(shape.num_edges(), "graph", "edge", scale=True) as bar:
            for edges, csc in zip(dataset.edges, all_sizes, strict=True):
                with _edge_errors(dataset, edges):
                    relations.append(_write_relation(writer, edges, csc, budget, sizes, workers))
                bar.update(csc.num_edges)
        nodes = {name: _write_nodes(writer, name, data) for name, data in sorted(dataset.nodes.items())}
        _write_features(writer, dataset, workers if checksum_features else 0)
        body = {"node_types": nodes, "relations": relations, "changes": _json(dataset.notes, "notes")}
        writer.commit(body, provenance)
    return Graph.open(writer.out)


def _json(record: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(record), allow_nan=False, default=_plain))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected values that JSON can hold ({error})") from error
    return copied


def _plain(value: Any) -> Any:
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} is no JSON value")


def _check_dataset(dataset: Dataset) -> None:
    if not dataset.nodes:
        raise InputError(f"{dataset.name}: expected at least one node type, found none")
    for node_type, data in dataset.nodes.items():
        _check_name(dataset, "node type", node_type)
        for kind, names in (("split", data.splits), ("node array", data.extra)):
            for name in names:
                _check_name(dataset, f"{kind} of {node_type!r}", name)
        _check_nodes(dataset, node_type, data)
    if len(set(dataset.relations)) != len(dataset.relations):
        twice = next(r for r in dataset.relations if dataset.relations.count(r) > 1)
        raise InputError(f"{dataset.name}: relation {relation_key(twice)} occurs twice; give each its own name")
    for edges in dataset.edges:
        _check_edges(dataset, edges)


def _check_name(dataset: Dataset, what: str, name: str) -> None:
    if not valid_name(name):
        raise InputError(
            f"{dataset.name}: {what} {name!r}: a name is 1 to 100 of letters, digits, _ + . - and has no double _; "
            "rename it in the source"
        )


def _check_nodes(dataset: Dataset, node_type: str, data: NodeData) -> None:
    count = data.num_nodes
    if not 0 <= count <= 1 << 48:
        raise InputError(f"{dataset.name}: node type {node_type!r}: expected 0 to 2^48 nodes, found {count}")
    rows = {"features": data.features.rows if data.features else count}
    rows |= {"labels": count if data.labels is None else int(data.labels.shape[0])}
    rows |= {name: int(values.shape[0]) for name, values in data.extra.items()}
    for name, found in rows.items():
        if found != count:
            raise InputError(
                f"{dataset.name}: node type {node_type!r} has {count} nodes, but {found} rows of {name}; "
                "give the right --num-nodes, or repair the file"
            )
    if "label" in data.extra or any(name.startswith("split-") for name in data.extra):
        raise InputError(f"{dataset.name}: node type {node_type!r}: `label` and `split-...` are reserved names")
    for name, ids in data.splits.items():
        outside = np.flatnonzero((ids < 0) | (ids >= count))
        if outside.size:
            raise InputError(
                f"{dataset.name}: split {name!r} of node type {node_type!r}: expected ids 0..{count - 1}, found "
                f"{ids[outside[0]]} at position {outside[0]}; repair the file, or give the right --num-nodes"
            )


def _check_edges(dataset: Dataset, edges: EdgeData) -> None:
    where = f"{edges.where or dataset.name}: relation {relation_key(edges.relation)}"
    source, name, destination = edges.relation
    _check_name(dataset, "relation", name)
    for node_type in (source, destination):
        if node_type not in dataset.nodes:
            known = ", ".join(dataset.nodes)
            raise InputError(f"{where}: node type {node_type!r} is not in the dataset; types: {known}")
    if edges.src.ndim != 1 or edges.src.shape != edges.dst.shape:
        raise InputError(
            f"{where}: expected as many sources as destinations, found {edges.src.shape}, {edges.dst.shape}"
        )
    for side, ids in (("sources", edges.src), ("destinations", edges.dst)):
        if ids.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
            raise InputError(f"{where}: expected {side} of dtype int32 or int64, found {ids.dtype}")
    arrays = dict(edges.data) if edges.edge_ids is None else {**edges.data, "edge_ids": edges.edge_ids}
    for key, values in arrays.items():
        _check_name(dataset, f"edge data of {relation_key(edges.relation)}", key)
        if values.shape[:1] != edges.src.shape:
            raise InputError(f"{where}: expected {edges.num_edges} values of {key}, found shape {values.shape}")
    if {"indptr", "indices"} & set(edges.data) or (edges.edge_ids is not None and "edge_ids" in edges.data):
        raise InputError(f"{where}: `indptr`, `indices` and `edge_ids` are reserved names of edge data")


def _write_relation(
    writer: ArtifactWriter, edges: EdgeData, csc: CscSizes, budget: Budget, sizes: SortSizes, threads: int
) -> dict[str, Any]:
    source, name, destination = edges.relation
    folder = relation_folder(edges.relation)
    if not writer.has(*(f"{folder}/{each}" for each in ("indptr", "indices", *csc.values))):
        plan = plan_relation(csc, edges, budget, sizes, folder)
        if plan is None:
            _write_in_memory(writer, folder, edges, csc, threads)
        else:
            write_by_buckets(writer, folder, edges, csc, plan, sizes, threads)
    return {"src": source, "name": name, "dst": destination, "num_edges": csc.num_edges, "edge_data": list(csc.values)}


def _write_in_memory(writer: ArtifactWriter, folder: str, edges: EdgeData, csc: CscSizes, threads: int) -> None:
    indptr, indices, positions = native.coo_to_csc(
        edges.src, edges.dst, csc.num_src, csc.num_dst, threads, bool(csc.values)
    )
    writer.put(f"{folder}/indptr", indptr)
    writer.put(f"{folder}/indices", indices)
    if positions is None:
        return
    for name in csc.values:
        values = edges.edge_ids if name == "edge_ids" else edges.data[name]
        own: npt.NDArray[Any] = positions if values is None else take(values, positions, threads)
        writer.put(f"{folder}/{name}", own.astype(np.int64, copy=False) if name == "edge_ids" else own)


@contextmanager
def _edge_errors(dataset: Dataset, edges: EdgeData) -> Iterator[None]:
    """Say where an edge comes from that a kernel refuses."""
    source, _, destination = edges.relation
    num_src, num_dst = dataset.nodes[source].num_nodes, dataset.nodes[destination].num_nodes
    try:
        yield
    except TieringError:
        raise
    except ValueError as error:
        raise InputError(
            f"{edges.where or dataset.name}: relation {relation_key(edges.relation)}: {error} "
            f"({source} has {num_src} nodes, {destination} has {num_dst}); "
            "give the right --num-nodes, or repair the file"
        ) from error


def _write_nodes(writer: ArtifactWriter, node_type: str, data: NodeData) -> dict[str, Any]:
    classes = None
    if data.labels is not None:
        labels = np.asarray(data.labels).astype(np.int64, copy=False)
        classes = max(int(labels.max(initial=-1)) + 1, data.num_classes or 0)
        writer.put(f"nodes/{node_type}/label", labels)
    for name, ids in data.splits.items():
        writer.put(f"nodes/{node_type}/split-{name}", np.asarray(ids).astype(np.int64, copy=False))
    for name, values in data.extra.items():
        writer.put(f"nodes/{node_type}/{name}", np.asarray(values))
    return {"num_nodes": data.num_nodes, "num_classes": classes, "splits": list(data.splits)}


def _write_features(writer: ArtifactWriter, dataset: Dataset, checksum_threads: int) -> None:
    """Refer to the feature files from a nested artifact, each with a digest that notices when it changes.

    With `checksum_threads` above 0 the files are read whole.
    """
    tables = {t: data.features for t, data in sorted(dataset.nodes.items()) if data.features is not None}
    if not tables:
        return
    part = writer.part("features", "features")
    entries = {}
    for node_type, table in tables.items():
        part.external[f"features-{node_type}"] = _external(dataset, table, checksum_threads)
        entries[node_type] = table.entry(offset=table.offset, row_order="original", external=f"features-{node_type}")
    part.commit({"tables": entries}, {"stage": "import"})


def _external(dataset: Dataset, table: FeatureTable, checksum_threads: int) -> External:
    path = Path(os.path.abspath(table.path))  # noqa: PTH100 - keep symbolic links in the name as given
    if checksum_threads:
        with storage_errors(path):
            return External.of(path, path.stat().st_size, file_digests(path, checksum_threads))
    known = dataset.files.get(str(path)) or fingerprint(table.path)
    return External(path, known.bytes, known.sampled)
