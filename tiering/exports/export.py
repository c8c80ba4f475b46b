"""Write an export: array after array, streamed from where it lies into a ``.npy`` file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tiering import native
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import Relation
from tiering.artifacts.storage import open_raw, require_space
from tiering.description import Fields, Part
from tiering.exports.arrays import AnyArray, append_array, append_destinations, append_rows, append_split
from tiering.exports.graphbolt import metadata
from tiering.exports.plan import plan_export
from tiering.exports.source import ExportSource
from tiering.exports.writer import ExportWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.graph_checks import graph_errors
from tiering.formats.layout import Layout
from tiering.memory import Budget, parse_memory
from tiering.progress import Progress, progress
from tiering.reorder.adjacency import OldRelation, write_relation
from tiering.reorder.arrays import NodeWindows
from tiering.reorder.sizes import SIZES
from tiering.units import format_bytes, parse_threads
from tiering.version import __version__

SCRATCH = "scratch"
Entry: TypeAlias = dict[str, Any]
"""An object of ``export.json``."""


@dataclass(frozen=True)
class Export:
    """A written export."""

    path: Path
    document: Entry
    """``export.json``."""

    @property
    def order(self) -> str:
        """Numbering of the node ids: ``rank`` or ``original``."""
        return str(self.document["order"])

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def describe(self) -> list[Part]:
        """Return what the command prints."""
        ids = "ranks" if self.order == "rank" else "original ids"
        return [Fields({"export": str(self.path), "node ids": ids, "size": format_bytes(self.bytes)})]

    def summary(self) -> Entry:
        """Return what the command prints as JSON."""
        return {"path": str(self.path), "bytes": self.bytes, **self.document}


def write_export(
    artifact: Layout | Graph,
    out: str | os.PathLike[str],
    *,
    original_order: bool = False,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> Export:
    """Write a layout or graph as ``.npy`` files, with ``export.json`` and GraphBolt's ``metadata.yaml``.

    Parameters
    ----------
    artifact
        A layout, whose rows are read from its tiers; or a graph, reordered or not, whose rows lie in its feature files.
    out
        Directory to create.
    original_order
        Nodes have the ids of the source. By default ids are ranks, if there are any, and ``new_to_old`` is written.
    threads, memory, force
        As in every stage; the result is the same bytes for any memory and number of threads.

    Raises
    ------
    FormatError
        If the artifact is damaged.
    BudgetError
        If the memory is less than copying takes, some 100 MiB.
    StorageError
        If the disk is full: checked before anything is written.

    Notes
    -----
    Cost: every byte is read once and written once, front to back. With `original_order` and ranks, adjacency is
    relabelled into a scratch file first, as a reorder does it, and rows come into order as `tiering.reorder.rows` says.
    A run that was stopped goes on from the last finished 64 MiB of each file.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    source = ExportSource(artifact, original=original_order)
    inputs = {artifact.kind: artifact.digest}
    provenance = {
        "package": f"tiering {__version__}",
        "stage": "export",
        "options": {"original_order": original_order},
        "inputs": inputs,
    }
    identity = {**provenance, "inputs": {**inputs, **source.states}}
    plan = plan_export(source, Path(out).absolute(), budget, workers)
    with ExportWriter(out, force=force, identity=identity, reads=(artifact,)) as writer:
        if writer.journal is None or not writer.journal.done:
            require_space({writer.path: sum(plan.needed().values())})
        document = {
            "format": "tiering.export",
            "version": "1.0",
            "to": "graphbolt",
            "order": source.order,
            "provenance": provenance,
            **_ExportRun(source, writer, budget, workers).write(),
        }
        documents = {"metadata.yaml": metadata(writer.out.name, document), "export.json": document}
        writer.commit({name: (json.dumps(value, indent=1) + "\n").encode() for name, value in documents.items()})
    return Export(writer.out, document)


@dataclass
class _ExportRun:
    """The arrays of an export on their way to disk."""

    source: ExportSource
    writer: ExportWriter
    budget: Budget
    threads: int

    def write(self) -> Entry:
        """Write every array; return the entries of all node types and relations."""
        graph, relations = self.source.graph, []
        with progress(graph.num_edges(), "export", "edge", scale=True) as bar:
            for relation in graph.relations:
                with graph_errors(graph, relation):
                    relations.append(self._relation(relation))
                bar.update(graph.num_edges(relation))
        nodes = {node_type: self._nodes(node_type) for node_type in graph.node_types}
        total = sum(self.source.table(name).bytes for name in self.source.feature_types)
        with progress(total, "export features", "B", scale=True) as bar:
            for name in self.source.feature_types:
                nodes[name]["feat"] = self._features(name, bar)
        homogeneous = len(nodes) == len(relations) == 1
        return {"homogeneous": homogeneous, "node_types": nodes, "relations": relations}

    @property
    def _windows(self) -> NodeWindows:
        return NodeWindows(self.budget, SIZES, self.threads)

    def _write(
        self, name: str, dtype: str, shape: tuple[int, ...], append: Callable[[FileWriter], None], stored: str = ""
    ) -> Entry:
        """Write an array by `append`, unless a run before did; return its entry."""
        path, stored = f"{name}.npy", stored or dtype
        if not self.writer.has(path):
            with self.writer.file(path, stored, shape) as file:
                append(file)
        return {"path": path, "dtype": dtype, "stored": stored, "shape": list(shape)}

    def _copy(self, name: str, array: AnyArray, dtype: str = "") -> Entry:
        stored = array.dtype.name
        return self._write(name, dtype or stored, array.shape, partial(append_array, array=array), stored)

    def _relation(self, relation: Relation) -> Entry:
        """Write the edges of a relation as pairs, sorted by destination, and the values along them."""
        graph, folder, (source, name, destination) = self.source.graph, relation_folder(relation), relation
        indptr, indices = graph.csc(relation)
        data = dict(sorted(graph.edge_data(relation).items()))
        if not self.writer.has(f"{folder}/edge_index.npy", *(f"{folder}/data/{key}.npy" for key in data)):
            native.check_indptr(indptr, indices.shape[0], self.threads)
            if self.source.restored:
                indptr, indices, data = self._restore_ids(relation, indptr, indices, data)

        def append_pairs(file: FileWriter) -> None:
            append_array(file, indices, limit=graph.num_nodes(source))
            append_destinations(file, indptr)

        edge_index = self._write(f"{folder}/edge_index", "int64", (2, indices.shape[0]), append_pairs)
        values = {key: self._copy(f"{folder}/data/{key}", array) for key, array in data.items()}
        self.writer.drop(f"{SCRATCH}/{folder}")
        edges = {"src": source, "name": name, "dst": destination, "num_edges": indices.shape[0]}
        return {**edges, "edge_index": edge_index, "data": values}

    def _restore_ids(
        self, relation: Relation, indptr: AnyArray, indices: AnyArray, data: dict[str, AnyArray]
    ) -> tuple[AnyArray, AnyArray, dict[str, AnyArray]]:
        """Return the adjacency in original ids, relabelled into scratch files."""
        graph, folder = self.source.graph, f"{SCRATCH}/{relation_folder(relation)}"
        source, _, destination = relation
        old = OldRelation(indptr, indices, data, graph.new_to_old(destination), graph.new_to_old(source))
        write_relation(self.writer, folder, old, self._windows)

        def scratch(name: str, like: AnyArray) -> AnyArray:
            return open_raw(self.writer.path / folder / name, like.dtype, like.shape)

        values = {name: scratch(name, array) for name, array in data.items()}
        return scratch("indptr", indptr), scratch("indices", indices), values

    def _nodes(self, node_type: str) -> Entry:
        """Write the arrays of a node type, except features."""
        graph, folder = self.source.graph, f"nodes/{node_type}"
        ranked = self.source.order == "rank"
        nodes: Entry = {
            "num_nodes": graph.num_nodes(node_type),
            "num_classes": graph.num_classes(node_type),
            "feat": None,
            "label": None,
            "new_to_old": self._copy(f"{folder}/new_to_old", graph.new_to_old(node_type)) if ranked else None,
            "splits": {},
            "seed_labels": {},
            "data": {},
        }
        splits = {f"{folder}/split-{split}" for split in graph.splits(node_type)}
        for path, entry in sorted(graph.manifest.files.items()):
            name = path.removeprefix(f"{folder}/")
            if name == path or path in splits:
                continue
            if name == "label":
                nodes["label"] = self._along_nodes(f"{folder}/label", node_type, path, entry.dtype)
            else:
                nodes["data"][name] = self._along_nodes(f"{folder}/data/{name}", node_type, path, entry.dtype)
        new_ids, labels = graph.new_to_old(node_type) if self.source.restored else None, graph.labels(node_type)
        for split in sorted(graph.splits(node_type)):
            ids = graph.split(split, node_type)
            nodes["splits"][split] = self._of_split(f"{folder}/{split}_idx", ids, new_ids)
            if labels is not None:
                nodes["seed_labels"][split] = self._of_split(f"{folder}/{split}_labels", ids, labels)
        return nodes

    def _along_nodes(self, name: str, node_type: str, path: str, dtype: str) -> Entry:
        """Write an array with a value for each node, in the order of the export."""
        graph = self.source.graph
        array = graph.manifest.array(path)
        if not self.source.restored or not array.nbytes:
            return self._copy(name, array, dtype)

        def append(file: FileWriter) -> None:
            self._windows.permuted(file, array, graph.new_to_old(node_type))

        return self._write(name, dtype, array.shape, append, array.dtype.name)

    def _of_split(self, name: str, ids: AnyArray, values: AnyArray | None) -> Entry:
        """Write the ids of a split, or their values."""
        append = partial(append_split, ids=ids, values=values, threads=self.threads)
        return self._write(name, "int64", ids.shape, append)

    def _features(self, node_type: str, bar: Progress) -> Entry:
        """Write the feature rows of a type; bfloat16 as int16, which torch views as bfloat16."""
        source, name = self.source, f"nodes/{node_type}/feat"
        table, dtype = source.table(node_type), source.dtype(node_type)
        if self.writer.has(f"{name}.npy"):
            bar.update(table.bytes)

        def append(file: FileWriter) -> None:
            append_rows(file, source, node_type, self.writer.path / SCRATCH, self.budget, self.threads, bar)

        stored = "int16" if dtype == "bfloat16" else dtype
        return self._write(name, dtype, (table.rows, source.dim(node_type)), append, stored)
