"""Write an export: array after array, streamed from where it lies into the file of another program's format."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.manifest import FileEntry, Relation, storage_dtype
from tiering.artifacts.storage import require_space
from tiering.errors import InputError
from tiering.exports.arrays import (
    AnyArray,
    append_array,
    append_destinations,
    append_rows,
    append_split,
    mapped,
)
from tiering.exports.contents import Contents, ExportedEdges, ExportedFile, ExportedNodes
from tiering.exports.kinds import Kind, kind_of
from tiering.exports.plan import plan_export
from tiering.exports.source import Source
from tiering.exports.writer import ExportWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.layout import Layout
from tiering.formats.refusals import graph_errors
from tiering.memory import Budget, parse_memory
from tiering.progress import progress
from tiering.reorder.adjacency import OldRelation, write_relation
from tiering.reorder.arrays import NodeWindows
from tiering.reorder.sizes import SIZES
from tiering.units import parse_threads
from tiering.version import __version__

DOCUMENT = "export.json"
"""Says what each file is; written last."""
SCRATCH = "scratch"


@dataclass(frozen=True)
class Export:
    """What was written."""

    path: Path
    to: str
    """The format."""
    order: str
    """What node ids are: ``rank`` or ``original``."""
    contents: Contents
    document: dict[str, Any]
    """``export.json``."""

    @property
    def lines(self) -> list[str]:
        """Python that reads it."""
        return kind_of(self.to).lines(self.path, self.contents)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def summary(self) -> dict[str, Any]:
        """What the command prints as JSON."""
        return {"path": str(self.path), "bytes": self.bytes, "read_with": self.lines, **self.document}


def checked_kind(source: Source, to: str) -> Kind:
    """The format, once it is plain that it can hold the features."""
    kind = kind_of(to)
    for node_type in source.feature_types:
        if kind.dtypes and source.dtype(node_type) not in kind.dtypes:
            raise InputError(
                f"{source.artifact.path}: features of node type {node_type!r}: expected a type that {to} knows "
                f"({', '.join(sorted(kind.dtypes))}), found {source.dtype(node_type)}; export with --to raw"
            )
    return kind


def write_export(
    artifact: Layout | Graph,
    to: str,
    out: str | os.PathLike[str],
    *,
    original_order: bool = False,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> Export:
    """Write what other programs read of a layout or graph.

    Parameters
    ----------
    artifact
        A layout, whose rows are read from its tiers; or a graph, reordered or not, whose rows lie in its feature files.
    to
        ``graphbolt``, ``wholegraph``, ``pyg``, ``dgl`` or ``raw``.
    out
        Directory to create.
    original_order
        Nodes have the ids of the source; else their ranks, if they have any, and ``new_to_old`` lies beside.
    threads, memory, force
        As in every stage; the result is the same bytes for any memory and number of threads.

    Raises
    ------
    InputError
        If there is no such format, or it cannot hold a type of features.
    FormatError
        If the artifact is damaged.
    BudgetError
        If the memory is less than what copying takes, some 100 MiB.
    StorageError
        If the disk is full: asked before anything is written.

    Notes
    -----
    Cost: every byte is read once and written once, front to back. With `original_order` and ranks, adjacency is
    relabelled into a scratch file first, as a reorder does it, and rows come into order as `tiering.reorder.rows` says.
    A run that was stopped goes on from the last finished 64 MiB of each file.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    source = Source(artifact, original=original_order)
    kind = checked_kind(source, to)
    inputs = {artifact.kind: artifact.digest}
    provenance: dict[str, Any] = {
        "package": f"tiering {__version__}",
        "stage": "export",
        "options": {"to": to, "original_order": original_order},
        "inputs": inputs,
    }
    identity = {**provenance, "inputs": {**inputs, **source.states}}
    plan = plan_export(source, kind, Path(out).absolute(), budget, workers)
    with ExportWriter(out, force=force, identity=identity, reads=(artifact,)) as writer:
        if writer.journal is None or not writer.journal.done:
            require_space({writer.path: sum(plan.needed().values())})
        contents = _Exporting(source, kind, writer, budget, workers).write()
        document = {
            "format": "tiering.export",
            "version": "1.0",
            "to": to,
            "order": source.order,
            "provenance": provenance,
            **contents.to_json(),
        }
        texts = {**kind.documents(writer.out.name, contents), DOCUMENT: json.dumps(document, indent=1) + "\n"}
        writer.commit({name: text.encode() for name, text in texts.items()})
    return Export(writer.out, to, source.order, contents, document)


@dataclass
class _Exporting:
    """An export under way."""

    source: Source
    kind: Kind
    writer: ExportWriter
    budget: Budget
    threads: int

    def write(self) -> Contents:
        graph, contents = self.source.graph, Contents()
        with progress(graph.num_edges(), "export", "edge", scale=True) as bar:
            for relation in graph.relations:
                with graph_errors(graph, relation):
                    contents.edges.append(self._relation(relation))
                bar.update(graph.num_edges(relation))
        for node_type in graph.node_types:
            contents.nodes[node_type] = self._nodes(node_type)
        types = self.source.feature_types
        total = sum(self.source.table(name).bytes for name in types)
        with progress(total, "export features", "B", scale=True) as bar:
            for name in types:
                contents.nodes[name].feat = self._features(name, bar)
        return contents

    @property
    def _windows(self) -> NodeWindows:
        return NodeWindows(self.budget, SIZES, self.threads)

    def _file(self, name: str, dtype: str, shape: tuple[int, ...], stored: str = "") -> ExportedFile:
        return ExportedFile(f"{name}{self.kind.suffix}", dtype, stored or dtype, shape)

    def _copied(self, file: ExportedFile, array: AnyArray, limit: int | None = None) -> ExportedFile:
        """Write an array, converted to what the file stores; with a `limit`, ids beyond it are refused."""
        if not self.writer.has(file.path):
            with self.writer.file(file.path, file.stored, file.shape) as to:
                append_array(to, array, storage_dtype(file.stored), limit)
        return file

    def _relation(self, relation: Relation) -> ExportedEdges:
        """Write the edges of a relation."""
        graph, folder = self.source.graph, relation_folder(relation)
        indptr, indices = graph.csc(relation)
        data = dict(sorted(graph.edge_data(relation).items()))
        edges = ExportedEdges(relation, indices.shape[0])
        if self.kind.edge_index:
            edges.structure["edge_index"] = self._file(f"{folder}/edge_index", "int64", (2, edges.num_edges))
        else:
            ids = "int64" if self.kind.wide else indices.dtype.name
            edges.structure["indptr"] = self._file(f"{folder}/indptr", "int64", indptr.shape)
            edges.structure["indices"] = self._file(f"{folder}/indices", ids, indices.shape)
        for key, values in data.items():
            edges.data[key] = self._file(f"{folder}/data/{key}", values.dtype.name, values.shape)
        if not self.writer.has(*(file.path for file in (*edges.structure.values(), *edges.data.values()))):
            native.check_indptr(indptr, indices.shape[0], self.threads)
            if self.source.restored:
                indptr, indices, data = self._restored(relation, indptr, indices, data)
            self._structure(edges, indptr, indices)
            for key, file in edges.data.items():
                self._copied(file, data[key])
        del indptr, indices, data
        self.writer.drop(f"{SCRATCH}/{folder}")
        return edges

    def _structure(self, edges: ExportedEdges, indptr: AnyArray, indices: AnyArray) -> None:
        """Write the adjacency of a relation."""
        limit = self.source.graph.num_nodes(edges.relation[0])
        pairs = edges.structure.get("edge_index")
        if pairs is None:
            self._copied(edges.structure["indptr"], indptr)
            self._copied(edges.structure["indices"], indices, limit)
        elif not self.writer.has(pairs.path):
            with self.writer.file(pairs.path, pairs.stored, pairs.shape) as to:
                append_array(to, indices, np.dtype("<i8"), limit)
                append_destinations(to, indptr)

    def _restored(
        self, relation: Relation, indptr: AnyArray, indices: AnyArray, data: dict[str, AnyArray]
    ) -> tuple[AnyArray, AnyArray, dict[str, AnyArray]]:
        """The adjacency in original ids, in scratch files: what a reorder did, turned back."""
        graph, folder = self.source.graph, f"{SCRATCH}/{relation_folder(relation)}"
        source, _, destination = relation
        old = OldRelation(indptr, indices, data, graph.new_to_old(destination), graph.new_to_old(source))
        write_relation(self.writer, folder, old, self._windows)

        def scratch(name: str, like: AnyArray) -> AnyArray:
            return mapped(self.writer, f"{folder}/{name}", like.dtype, like.shape)

        values = {name: scratch(name, array) for name, array in data.items()}
        return scratch("indptr", indptr), scratch("indices", indices), values

    def _nodes(self, node_type: str) -> ExportedNodes:
        """Write what belongs to the nodes of a type, but for features."""
        graph, folder = self.source.graph, f"nodes/{node_type}"
        nodes = ExportedNodes(graph.num_nodes(node_type), graph.num_classes(node_type))
        if self.source.order == "rank":
            ids = graph.new_to_old(node_type)
            nodes.new_to_old = self._copied(self._file(f"{folder}/new_to_old", ids.dtype.name, ids.shape), ids)
        splits = {f"{folder}/split-{name}": name for name in graph.splits(node_type)}
        for path, entry in sorted(graph.manifest.files.items()):
            if not path.startswith(f"{folder}/"):
                continue
            name = path.removeprefix(f"{folder}/")
            if path in splits:
                nodes.splits[splits[path]] = self._split(node_type, splits[path])
            elif name == "label":
                nodes.label = self._along_nodes(f"{folder}/label", node_type, path, entry)
            else:
                nodes.data[name] = self._along_nodes(f"{folder}/data/{name}", node_type, path, entry)
        labels = graph.labels(node_type)
        for split in nodes.splits if self.kind.seeds and labels is not None else ():
            nodes.seed_labels[split] = self._seed_labels(node_type, split, labels)
        return nodes

    def _along_nodes(self, name: str, node_type: str, path: str, entry: FileEntry) -> ExportedFile:
        """Write an array that runs along the nodes, in the order of the export."""
        graph = self.source.graph
        array = graph.manifest.array(path)
        file = self._file(name, entry.dtype, array.shape, array.dtype.name)
        if not self.source.restored or not entry.bytes:
            return self._copied(file, array)
        if not self.writer.has(file.path):
            with self.writer.file(file.path, file.stored, file.shape) as to:
                self._windows.permuted(to, array, graph.new_to_old(node_type))
        return file

    def _split(self, node_type: str, split: str) -> ExportedFile:
        """Write the ids of a split, in the order of the source."""
        ids = self.source.graph.split(split, node_type)
        file = self._file(f"nodes/{node_type}/{split}_idx", "int64", ids.shape)
        if not self.writer.has(file.path):
            with self.writer.file(file.path, "int64", file.shape) as to:
                new_ids = self.source.graph.new_to_old(node_type) if self.source.restored else None
                append_split(to, ids, new_ids, self.threads)
        return file

    def _seed_labels(self, node_type: str, split: str, labels: AnyArray | None) -> ExportedFile:
        """Write the labels of the nodes of a split."""
        ids = self.source.graph.split(split, node_type)
        file = self._file(f"nodes/{node_type}/{split}_labels", "int64", ids.shape)
        if labels is not None and not self.writer.has(file.path):
            with self.writer.file(file.path, "int64", file.shape) as to:
                append_split(to, ids, labels, self.threads)
        return file

    def _features(self, node_type: str, bar: Any) -> ExportedFile:
        """Write the feature rows of a type."""
        source = self.source
        table, dtype = source.table(node_type), source.dtype(node_type)
        stored = self.kind.bfloat16 if dtype == "bfloat16" else dtype
        file = self._file(f"nodes/{node_type}/feat", dtype, (table.rows, source.dim(node_type)), stored)
        if self.writer.has(file.path):
            bar.update(table.bytes)
            return file
        with self.writer.file(file.path, file.stored, file.shape) as to:
            append_rows(to, source, node_type, self.writer.path / SCRATCH, self.budget, self.threads, bar)
        return file
