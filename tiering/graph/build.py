"""Build a graph artifact from an opened dataset: COO to CSC per relation, labels, splits, references to features."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.checksum import file_digests, file_state
from tiering.artifacts.manifest import External, Relation, relation_key, valid_name
from tiering.artifacts.overlap import refuse_overlap
from tiering.artifacts.reader import chunks
from tiering.artifacts.remote_path import RemotePath, as_path
from tiering.artifacts.storage import AnyArray, open_raw
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, TieringError
from tiering.formats.dataset import ColumnIds, Dataset, EdgeData, FeatureStream, GraphSoFar, NodeData, fingerprint
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.names import TABLE_ORDER
from tiering.formats.shape import value_bytes
from tiering.formats.times import REQUIRES
from tiering.graph.bucket_sort import write_by_buckets
from tiering.graph.plan import SIZES, ImportPlan, RelationPlan, SortSizes, copied_entries, plan_import
from tiering.graph.tasks import write_relation as write_by_tasks
from tiering.memory import Budget, parse_memory
from tiering.run.grid import Int64Array
from tiering.run.job import Carrier
from tiering.text.progress import progress
from tiering.text.units import parse_threads


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
    carrier: Carrier | None = None,
) -> Graph:
    """Write `dataset` as a graph artifact, and open it; the same bytes for any threads, memory, sizes and tasks.

    Duplicate edges, self loops and isolated nodes stay as the dataset has them; inside a column the edges keep the
    order of the input, or the order of their times, and of the input where these are equal. Features are referred to,
    not copied, unless they come as a stream; with `checksum_features` their files are read whole, and a checksum of
    each block recorded. `edge_ids` keeps the position of each edge in the input as edge data, unless the dataset brings
    ids of its own. `options` and `seed` are for the record.

    Cost: a relation is read once, edge data included, and what memory has no room for goes by way of the disk
    (`tiering.graph.bucket_sort`), relation by relation; 70 to 110 MiB suffice for any. Lists by destination are copied.

    `InputError`: names, shapes, dtypes or ids do not match; names file, relation, edge and id. `BudgetError`: a
    relation needs more memory.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    _check_dataset(dataset)
    recorded = {"name": dataset.name, "format": dataset.format, **_json(options or {}, "options")}
    inputs = {str(file): seen.digest for file, seen in sorted(dataset.files.items())}
    provenance = {"stage": "import", "options": recorded, "inputs": inputs, "seed": seed}
    paths = [as_path(file) for file in inputs]
    remote = [path for path in paths if isinstance(path, RemotePath)]
    refuse_overlap(Path(out).absolute(), [path for path in paths if path not in remote])  # where links lead to, too
    states = {str(path): file_state(path, inputs[str(path)]) for path in paths}
    time = {} if dataset.time is None else {REQUIRES: dataset.time._asdict()}
    streams = [[str(stream.path), stream.digest] for stream in dataset.streams]
    identity = {**provenance, "inputs": states, "streams": streams, "edge_ids": edge_ids, **time}
    with ArtifactWriter(out, "graph", force=force, identity=identity) as writer:
        plan = plan_import(dataset, budget, edge_ids=edge_ids, sizes=sizes, carrier=carrier)
        relations = []
        with progress(plan.shape.num_edges(), "graph", "edge", scale=True) as bar:
            for relation in plan.relations:
                with _edge_errors(dataset, relation.edges):
                    relations.append(_write_relation(writer, relation, workers, carrier))
                bar.update(relation.edges.num_edges)
        nodes = {name: _write_nodes(writer, name, data) for name, data in sorted(dataset.nodes.items())}
        _write_features(writer, dataset, plan, workers, checksum=checksum_features)
        _write_names(writer, dataset)
        for path in remote:
            path.refuse_change()
        body = {"node_types": nodes, "relations": relations, "changes": _json(dataset.notes, "notes"), **time}
        writer.commit(body, provenance, requires=tuple(time))
    return Graph.open(writer.out)


def _json(record: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(record), allow_nan=False, default=_plain))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected values that JSON can hold ({error})") from error
    return copied


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else os.fspath(value)


def _check_dataset(dataset: Dataset) -> None:
    if not dataset.nodes:
        raise InputError(f"{dataset.name}: the dataset has no node type")
    for node_type, data in dataset.nodes.items():
        _check_name(dataset, "node type", node_type)
        for kind, names in (("split", data.splits), ("node array", data.extra)):
            for name in names:
                _check_name(dataset, f"{kind} of {node_type!r}", name)
        _check_nodes(dataset, node_type, data)
    if len(set(dataset.relations)) != len(dataset.relations):
        twice = next(r for r in dataset.relations if dataset.relations.count(r) > 1)
        raise InputError(f"{dataset.name}: relation {relation_key(twice)} occurs twice; rename one")
    for edges in dataset.edges:
        _check_edges(dataset, edges)


def _check_name(dataset: Dataset, what: str, name: str) -> None:
    if not valid_name(name):
        raise InputError(
            f"{dataset.name}: {what} {name!r}: a name has 1 to 100 letters, digits, _ + . -, and no double _; "
            "rename it in the source"
        )


def _check_nodes(dataset: Dataset, node_type: str, data: NodeData) -> None:
    count, where = data.num_nodes, f"{dataset.name}: node type {node_type!r}"
    if not 0 <= count <= 1 << 48:
        raise InputError(f"{where}: expected 0 to 2^48 nodes, found {count}")
    arrays = data.extra if data.labels is None else {"labels": data.labels, **data.extra}
    rows = {name: int(values.shape[0]) for name, values in arrays.items()}
    if data.features is not None:
        rows = {"features": data.features.rows, **rows}
    if data.names is not None:
        rows["names"] = len(data.names)
    for name, has in rows.items():
        if has != count:
            raise InputError(f"{where} has {count} nodes, but {has} rows of {name}; correct --num-nodes or the file")
    if "label" in data.extra or any(name.startswith("split-") for name in data.extra):
        raise InputError(f"{where}: `label` and `split-...` are reserved names")
    for name, ids in data.splits.items():
        outside = np.flatnonzero((ids < 0) | (ids >= count))
        if outside.size:
            raise InputError(
                f"{dataset.name}: split {name!r} of node type {node_type!r}: expected ids 0..{count - 1}, found "
                f"{ids[outside[0]]} at position {outside[0]}; correct the file or --num-nodes"
            )


def _check_edges(dataset: Dataset, edges: EdgeData) -> None:
    where = f"{edges.where or dataset.name}: relation {relation_key(edges.relation)}"
    source, name, destination = edges.relation
    _check_name(dataset, "relation", name)
    for node_type in (source, destination):
        if node_type not in dataset.nodes:
            known = ", ".join(dataset.nodes)
            raise InputError(f"{where}: node type {node_type!r} is not in the dataset; types: {known}")
        if edges.num_edges and not dataset.nodes[node_type].num_nodes:
            raise InputError(
                f"{where}: {edges.num_edges} edges, but no nodes of type {node_type!r}; correct --num-nodes or the file"
            )
    src, dst = edges.src, edges.dst
    if src.ndim != 1 or src.shape != dst.shape:
        raise InputError(f"{where}: expected as many sources as destinations, found {src.shape}, {dst.shape}")
    for end, ids in (("sources", src), ("destinations", dst)):
        if ids.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
            raise InputError(f"{where}: expected {end} of dtype int32 or int64, found {ids.dtype}")
    if {"indptr", "indices"} & set(edges.data) or (edges.edge_ids is not None and "edge_ids" in edges.data):
        raise InputError(f"{where}: `indptr`, `indices` and `edge_ids` are reserved names of edge data")
    for key, values in (edges.data if edges.edge_ids is None else {**edges.data, "edge_ids": edges.edge_ids}).items():
        _check_name(dataset, f"edge data of {relation_key(edges.relation)}", key)
        if values.shape[:1] != src.shape:
            raise InputError(f"{where}: expected {edges.num_edges} values of {key}, found shape {values.shape}")


def _write_relation(
    writer: ArtifactWriter, plan: RelationPlan, threads: int, carrier: Carrier | None = None
) -> dict[str, Any]:
    source, name, destination = plan.edges.relation
    folder = relation_folder(plan.edges.relation)
    if not writer.has(*(f"{folder}/{file}" for file in ("indptr", "indices", *plan.values))):
        if plan.copied:
            _write_copied(writer, folder, plan, plan.copied)
        elif plan.tasks and carrier is not None:
            write_by_tasks(carrier.job(writer), writer, plan)
        elif plan.buckets is not None:
            write_by_buckets(writer, folder, plan, plan.buckets, threads)
    count = plan.edges.num_edges
    return {"src": source, "name": name, "dst": destination, "num_edges": count, "edge_data": list(plan.values)}


def _write_copied(writer: ArtifactWriter, folder: str, relation: RelationPlan, lists: ColumnIds) -> None:
    """Copy lists by destination front to back; `ValueError` names an edge whose source is out of range."""
    count = relation.edges.num_edges
    arrays = (lists.indptr, relation.edges.src, *relation.arrays())
    with progress(count, "copy", "edge", scale=True) as bar:
        for (name, dtype, shape), values in zip(relation.files(), arrays, strict=True):
            with writer.file(f"{folder}/{name}", dtype, shape) as file:
                if values is None:
                    step = copied_entries(8)
                    for first in range(0, count, step):
                        file.append(np.arange(first, min(count, first + step)))
                    continue
                for first, end, (part,) in chunks([values], copied_entries(max(8, value_bytes(values)))):
                    if name == "indices":
                        _check_sources(part, first, relation.num_src)
                        bar.update(end - first)
                    file.append(part.astype(dtype, copy=False))


def _check_sources(ids: AnyArray, first: int, count: int) -> None:
    if int(ids.min()) < 0 or int(ids.max()) >= count:
        edge = int(np.argmax((ids < 0) | (ids >= count)))
        bounds = f"outside 0..{count - 1}" if count else "impossible: there are no nodes"
        raise ValueError(f"edge {first + edge}: source id {int(ids[edge])} is {bounds}")


@contextmanager
def _edge_errors(dataset: Dataset, edges: EdgeData) -> Iterator[None]:
    """Say where an edge comes from that a kernel refuses."""
    try:
        yield
    except TieringError:
        raise
    except ValueError as error:
        counts = dict.fromkeys(f"{name} has {dataset.nodes[name].describe_count()}" for name in edges.relation[::2])
        raise InputError(
            f"{edges.where or dataset.name}: relation {relation_key(edges.relation)}: {error} "
            f"({', '.join(counts)}); correct --num-nodes or the file"
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


def _write_features(
    writer: ArtifactWriter, dataset: Dataset, plan: ImportPlan, threads: int, *, checksum: bool
) -> None:
    """Refer to the feature files, with digests, from a nested artifact; rows from streams are written into it."""
    given = {t: data.features for t, data in sorted(dataset.nodes.items()) if data.features is not None}
    if not given:
        return
    part = writer.part("features", "features")
    entries: dict[str, Any] = {}
    tables: dict[str, FeatureTable] = {}

    def csc(relation: Relation) -> tuple[Int64Array, AnyArray]:
        sizes = next(planned for planned in plan.relations if planned.edges.relation == relation)
        folder, ids = writer.path / relation_folder(relation), f"int{8 * sizes.id_bytes}"
        indptr = open_raw(folder / "indptr", np.dtype(np.int64), (sizes.num_dst + 1,))
        return indptr, open_raw(folder / "indices", np.dtype(ids), (sizes.edges.num_edges,))

    graph = GraphSoFar(threads, csc, lambda node_type: tables[node_type].open())
    while given:
        node_type = next(t for t, f in given.items() if not (isinstance(f, FeatureStream) and {*f.needs} & {*given}))
        features = given.pop(node_type)
        if isinstance(features, FeatureStream):
            where = {"offset": 0, "file": f"tables/{node_type}"}
            table = _write_stream(part, node_type, features, graph)
        else:
            where = {"offset": features.offset, "external": f"features-{node_type}"}
            table = features
            part.external[f"features-{node_type}"] = _external(dataset, table, threads if checksum else 0)
        tables[node_type] = table
        entries[node_type] = table.entry(row_order="original", **where)
    part.external = dict(sorted(part.external.items()))
    part.commit({"tables": dict(sorted(entries.items()))}, {"stage": "import"})


def _write_stream(part: ArtifactWriter, node_type: str, stream: FeatureStream, graph: GraphSoFar) -> FeatureTable:
    """Write rows that come as a stream; a stopped run resumes after the last finished 64 MiB."""
    name, table = f"tables/{node_type}", stream.table(part.path, node_type)
    if part.has(name):
        return table
    with (
        part.file(name, stream.dtype, (stream.rows, stream.dim)) as file,
        progress(table.bytes, f"features of {node_type}", "B", scale=True) as bar,
    ):
        done = file.done
        bar.update(done)
        for first, rows in stream.pieces(done // table.row_bytes, graph) if done < table.bytes else ():
            begin = first * table.row_bytes
            file.append(rows, begin)
            bar.update(max(0, begin + rows.nbytes - done))
            done = max(done, begin + rows.nbytes)
    return table


def _write_names(writer: ArtifactWriter, dataset: Dataset) -> None:
    tables = {name: data.names for name, data in sorted(dataset.nodes.items()) if data.names is not None}
    if not tables:
        return
    part = writer.part("names", "names")
    for node_type, table in tables.items():
        for name, array in table.arrays.items():
            part.put(f"nodes/{node_type}/{name}", array)
    requires = (TABLE_ORDER,) if any(table.ids is not None for table in tables.values()) else ()
    part.commit({"node_types": list(tables)}, {"stage": "import"}, requires)


def _external(dataset: Dataset, table: FeatureTable, checksum_threads: int) -> External:
    path = Path(os.path.abspath(table.path))  # noqa: PTH100 - keep symbolic links in the name as given
    if checksum_threads:
        return External.of(path, path.stat().st_size, file_digests(path, checksum_threads))
    return dataset.files.get(str(path)) or fingerprint(path)
