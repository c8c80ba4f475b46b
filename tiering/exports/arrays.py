"""The arrays of an export, what appends the content of each, and the steps of writing them, which a dry run prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering import native
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import Relation, relation_key, storage_dtype
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import Bytes, open_raw, write_durably
from tiering.artifacts.writer import DirectoryWriter
from tiering.codecs import Codec
from tiering.errors import FormatError, InputError, InternalError
from tiering.formats.feature_rows import checked_tables, table_states, take
from tiering.formats.features import LABEL_VALUES
from tiering.formats.graph import Graph, graph_errors, relation_folder
from tiering.formats.layout import Layout
from tiering.formats.npy_file import npy_header
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.formats.tier_rows import TierRows
from tiering.memory import Budget
from tiering.reorder.adjacency import OldRelation, write_relation
from tiering.reorder.arrays import SIZES, NodeArrays, PieceSizes, Rows
from tiering.reorder.plan import ReorderPlan, own_carrier, relation_step
from tiering.reorder.table_reader import TableReader, disk_read
from tiering.reorder.tasks.relabel import write_relation as write_by_tasks
from tiering.run.move import Items, least_memory, move_items, plan_moves
from tiering.run.places import Places
from tiering.run.plan import StageEstimate, StepEstimate, base_memory

AnyArray = np.ndarray[Any, Any]
Entry: TypeAlias = dict[str, Any]  # an object of ``export.json``

SCRATCH = "scratch"
PIECE_BYTES = 8 << 20  # bytes copied at a time
COPY_MEMORY = 8 * PIECE_BYTES
"""Memory of copying an array in bytes: two pieces being read, one converted, the writer's, and some to spare."""
_COLUMNS = 1 << 18  # columns whose offsets are read together
_CHUNK_BYTES = 32 << 20


class ExportWriter(DirectoryWriter):
    """A writer of an export's files, with documents in the place of an artifact's manifest."""

    def header(self, name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
        """Return the header of a ``.npy`` file; none of other files."""
        return npy_header(dtype, shape) if name.endswith(".npy") else b""

    def commit(self, documents: dict[str, bytes]) -> None:
        """Write the documents, and give the directory its name."""
        self.drop(SCRATCH)
        self.finish_reads()
        self.sweep()
        for name, data in documents.items():
            write_durably(self.path / name, data)
        if self._output is None:
            raise InternalError(f"{self.out}: is a part of another directory")
        self._output.commit()


@dataclass(frozen=True)
class ExportedArray:
    """An array of an export: its name, its dtype in the file, its shape, and what appends its content."""

    name: str
    stored: str
    shape: tuple[int, ...]
    append: Callable[[FileWriter, ExportWriter], Iterable[int]]
    """Appends the content piece by piece and yields the bytes of each; the writer is for scratch files."""

    @property
    def bytes(self) -> int:
        """Bytes of the content."""
        return int(np.prod(self.shape, dtype=np.int64)) * storage_dtype(self.stored).itemsize


class ExportPlan:
    """The arrays of an export, in ranks or `original` ids, and what ``export.json`` says of them."""

    def __init__(
        self, artifact: Layout | Graph, original: bool, budget: Budget, threads: int, stored: bool = False
    ) -> None:
        self.graph = artifact.graph if isinstance(artifact, Layout) else artifact
        ranked = self.graph.order is not None
        self.order = "rank" if ranked and not original else "original"
        """Numbering of the exported node ids: ``rank`` or ``original``."""
        files = {} if isinstance(artifact, Layout) else checked_tables(artifact)
        self.states = table_states(files)  # sizes and times of the feature files, for the identity of a run
        self.arrays: list[ExportedArray] = []
        self._steps: list[StepEstimate] = []
        self._budget, self._threads, self._restored = budget, threads, ranked and original
        self._own = own_carrier(budget, threads)
        self._adjacency: tuple[Relation | None, tuple[Any, ...]] = (None, ())
        tables: dict[str, Rows] = dict(files)
        codecs: dict[str, Codec | None] = {}
        if isinstance(artifact, Layout):
            tables = {name: TierRows(artifact, name) for name in artifact.feature_types}
            codecs = {name: artifact.codec(name) for name in tables}
        elif stored:
            raise InputError(f"stored: {artifact.path} is a graph; only layouts store rows by codecs; give a layout")
        self._forms = {name: RowForm.of(table, codecs.get(name), stored, threads) for name, table in tables.items()}
        shape = GraphShape.of(self.graph, tables=False)
        relabeled = ReorderPlan(shape, budget, threads).least_memory(features=False) if self._restored else 0
        rows = [self._rows(name, table) for name, table in tables.items() if table.bytes]
        needed = least_memory((items.places, items.reader.reading) for items in rows)
        budget.require(max(COPY_MEMORY, relabeled, needed), "pieces of what is exported")
        relations = [self._add_relation(edges, shape) for edges in shape.edges]
        nodes = {node_type: self._add_nodes(node_type) for node_type in self.graph.node_types}
        for node_type, table in tables.items():
            nodes[node_type]["feat"] = self._add_features(node_type, table)
        homogeneous = len(nodes) == len(relations) == 1
        self.document: Entry = {"homogeneous": homogeneous, "node_types": nodes, "relations": relations}

    def stage(self, out: Path) -> StageEstimate:
        """Return the steps of writing the export."""
        written = {out: sum(step.disk_written for step in self._steps)}
        steps, held = tuple(self._steps), base_memory(self._budget)
        return StageEstimate("export", out, steps, written, held=held, threads=self._threads)

    def _is_ordered(self, table: Rows) -> bool:
        return (table.row_order == "rank") == (self.order == "rank")

    def _sizes(self, table: Rows) -> PieceSizes:
        """Return the sizes of pieces in which rows are read: small tables need little memory."""
        return PieceSizes(chunk=max(1, min(PIECE_BYTES if self._is_ordered(table) else _CHUNK_BYTES, table.bytes)))

    def _rows(self, node_type: str, table: Rows) -> Items:
        """Return the rows of a table, on their way to the order of the export, in the form of the export."""
        form = self._forms[node_type]
        maps: tuple[AnyArray, AnyArray] | None = None
        if not self._is_ordered(table):
            new_to_old, old_to_new = self.graph.new_to_old(node_type), self.graph.old_to_new(node_type)
            maps = (old_to_new, new_to_old) if self.order == "original" else (new_to_old, old_to_new)
        reader = TableReader(table, maps, self._threads, self._sizes(table), form.convert, form.row_bytes)
        return Items(reader, Places.row_by_row(table.rows, form.row_bytes), self._threads)

    def _add(self, name: str, dtype: str, shape: tuple[int, ...], append: Any, stored: str = "") -> Entry:
        self.arrays.append(ExportedArray(name, stored or dtype, shape, append))
        return {"path": f"{name}.npy", "dtype": dtype, "stored": stored or dtype, "shape": list(shape)}

    def _add_step(self, first: int, name: str, how: str, **fields: Any) -> None:
        written = sum(array.bytes for array in self.arrays[first:])
        self._steps.append(StepEstimate(name, how, disk_written=written, **fields))

    def _add_relation(self, edges: EdgeShape, shape: GraphShape) -> Entry:
        """Add the edges of a relation as pairs, sorted by destination, and the values along them."""
        graph, relation, begin = self.graph, edges.relation, len(self.arrays)
        folder, (source, name, destination) = relation_folder(relation), relation

        def check_ids(ids: AnyArray) -> AnyArray:
            if not 0 <= ids.min() <= ids.max() < (limit := graph.num_nodes(source)):
                raise FormatError(
                    f"{folder}/edge_index: expected ids 0..{limit - 1}, found {ids.min()}..{ids.max()}; the graph is "
                    "damaged: run `tiering check --full` on it"
                )
            return ids.astype(np.int64, copy=False)

        def append_pairs(file: FileWriter, writer: ExportWriter) -> Iterator[int]:
            indptr, indices, _ = self._open_adjacency(relation, writer)
            yield from _append_array(file, indices, check_ids)
            yield from _append_destinations(file, indptr)

        def append_values(file: FileWriter, writer: ExportWriter, key: str) -> Iterator[int]:
            return _append_array(file, self._open_adjacency(relation, writer)[2][key])

        edge_index = self._add(f"{folder}/edge_index", "int64", (2, edges.num_edges), append_pairs)
        values = {
            key: self._add(f"{folder}/data/{key}", array.dtype.name, array.shape, partial(append_values, key=key))
            for key, array in sorted(graph.edge_data(relation).items())
        }
        stored, how, memory, scratch = shape.edge_bytes(edges), "copied", COPY_MEMORY, 0
        if self._restored:
            plan = ReorderPlan(shape, self._budget, self._threads)
            steps = list(plan.estimates(relation_step(shape, relation, self._budget, self._own)))
            how, memory = "relabeled", max(memory, *(step.memory for step in steps))
            scratch = stored + sum(step.disk_scratch for step in steps)
        self._add_step(
            begin, relation_key(relation), how, memory=memory, disk_read=round(stored * edges.uncached),
            disk_scratch=scratch, amount=edges.num_edges, unit="edge",
        )  # fmt: skip
        ends = {"src": source, "name": name, "dst": destination, "num_edges": edges.num_edges}
        return {**ends, "edge_index": edge_index, "data": values}

    def _open_adjacency(self, relation: Relation, writer: ExportWriter) -> tuple[Any, ...]:
        """Return ``indptr``, ``indices`` and edge data in the ids of the export; arrays of one relation are kept."""
        if self._adjacency[0] != relation:
            self._adjacency = (None, ())  # unmapped, so that the disk has its blocks back
            writer.drop(SCRATCH)
            with graph_errors(self.graph, relation):
                self._adjacency = (relation, self._relabel(relation, writer))
        return self._adjacency[1]

    def _relabel(self, relation: Relation, writer: ExportWriter) -> tuple[Any, ...]:
        graph, folder, (source, _, destination) = self.graph, f"{SCRATCH}/{relation_folder(relation)}", relation
        (indptr, indices), data = graph.csc(relation), graph.edge_data(relation)
        native.check_indptr(indptr, indices.shape[0], self._threads)
        if not self._restored:
            return indptr, indices, data
        old = OldRelation(indptr, indices, data, graph.new_to_old(destination), graph.new_to_old(source))
        own = relation_step(graph, relation, self._budget, self._own).carrier
        if own is None:
            write_relation(writer, folder, old, NodeArrays(self._budget, SIZES, self._threads))
        elif not writer.has(*(f"{folder}/{name}" for name in ("indptr", "indices", *data))):
            with own:
                order, ids = str(graph.path / "order"), "new_to_old"
                write_by_tasks(own.job(writer), writer, graph, relation, order, ids=ids, into=f"{SCRATCH}/")
                own.finish()

        def scratch(name: str, like: AnyArray) -> AnyArray:
            return open_raw(writer.path / folder / name, like.dtype, like.shape)

        values = {name: scratch(name, array) for name, array in data.items()}
        return scratch("indptr", indptr), scratch("indices", indices), values

    def _add_nodes(self, node_type: str) -> Entry:
        graph, folder, begin = self.graph, f"nodes/{node_type}", len(self.arrays)
        new_ids = None if graph.order is None else graph.new_to_old(node_type)
        nodes: Entry = {"num_nodes": graph.num_nodes(node_type), "num_classes": graph.num_classes(node_type)}
        nodes |= {"feat": None, "label": None, "new_to_old": None, "splits": {}, "seed_labels": {}, "data": {}}

        def add_values(name: str, array: AnyArray, dtype: str) -> Entry:
            append = partial(self._append_nodes, array=array, new_ids=new_ids if self._restored else None)
            return self._add(f"{folder}/{name}", dtype, array.shape, append, array.dtype.name)

        def add_split(name: str, ids: AnyArray, values: AnyArray | None) -> Entry:
            rows = ids if values is None else values[:1]
            dtype, width = np.dtype(np.int64) if values is None else values.dtype, rows.shape[1:]

            def convert(part: AnyArray) -> AnyArray:
                return (part if values is None else take(values, part, self._threads)).astype(dtype, copy=False)

            append = partial(_append_array, array=ids, convert=convert, converted=rows[:1].nbytes)
            return self._add(f"{folder}/{name}", dtype.name, (*ids.shape, *width), lambda file, _: append(file))

        if self.order == "rank" and new_ids is not None:
            nodes["new_to_old"] = add_values("new_to_old", new_ids, new_ids.dtype.name)
        splits = {f"{folder}/split-{split}" for split in graph.splits(node_type)}
        for path, entry in sorted(graph.manifest.files.items()):
            name = path.removeprefix(f"{folder}/")
            if name in ("label", LABEL_VALUES):
                nodes["label"] = add_values("label", graph.manifest.array(path), entry.dtype)
            elif name != path and path not in splits:
                nodes["data"][name] = add_values(f"data/{name}", graph.manifest.array(path), entry.dtype)
        labels = graph.labels(node_type)
        for split in sorted(graph.splits(node_type)):
            ids = graph.split(split, node_type)
            nodes["splits"][split] = add_split(f"{split}_idx", ids, new_ids if self._restored else None)
            if labels is not None:
                nodes["seed_labels"][split] = add_split(f"{split}_labels", ids, labels)
        name, count = f"nodes of {node_type}", nodes["num_nodes"]
        self._add_step(begin, name, "copied", memory=COPY_MEMORY, amount=count, unit="node")
        return nodes

    def _append_nodes(self, file: FileWriter, _: Any, array: AnyArray, new_ids: AnyArray | None) -> Iterator[int]:
        """Append an array with a value for each node; `new_ids` are the ids in the export where they differ."""
        if new_ids is None or not array.nbytes:
            yield from _append_array(file, array)
            return
        NodeArrays(self._budget, SIZES, self._threads).permuted(file, array, new_ids)
        yield array.nbytes

    def _add_features(self, node_type: str, table: Rows) -> Entry:
        begin, form, name = len(self.arrays), self._forms[node_type], f"nodes/{node_type}/feat"
        append = partial(self._append_rows, node_type=node_type, table=table)
        entry = self._add(name, form.dtype, (table.rows, table.dim), append, form.stored)
        entry |= {"codec": form.codec} if form.codec else {}
        for key, values in form.parameters.items():
            append = partial(self._append_nodes, array=values, new_ids=None)
            entry[key] = self._add(f"{name}_{key}", values.dtype.name, values.shape, append)
        fields: dict[str, Any] = {"how": "in order"}
        if table.bytes:
            items = self._rows(node_type, table)
            (cost,) = plan_moves([(items.places, items.reader.reading)], self._budget, f"{name}, in pieces,").costs
            fields = {"how": cost.how, "memory": cost.memory, "disk_scratch": cost.scratch}
            fields["disk_read"] = disk_read(table, cost)
        self._add_step(begin, f"features of {node_type}", **fields, amount=table.rows, unit="row")
        return entry

    def _append_rows(self, file: FileWriter, writer: ExportWriter, node_type: str, table: Rows) -> Iterator[int]:
        """Write the rows that are missing."""
        if not table.bytes:
            return
        items, desc = self._rows(node_type, table), f"features of {node_type}"
        move_items([items], [file], self._budget, writer.path / SCRATCH, desc)
        yield file.nbytes


@dataclass(frozen=True)
class RowForm:
    """The form in which rows of a table are exported."""

    dtype: str  # of the numbers, as torch names it
    stored: str  # of the file: numpy has no bfloat16, and no float8
    row_bytes: int
    convert: Callable[[Bytes], AnyArray]  # returns rows in this form
    codec: str = ""  # the codec that stored the rows, where they are not decoded
    parameters: Mapping[str, AnyArray] = field(default_factory=dict)  # of that codec, by name

    @classmethod
    def of(cls, table: Rows, codec: Codec | None, stored: bool, threads: int) -> RowForm:
        """Return the form of a table's rows: as they are, decoded, or as they are `stored`, without padding."""
        dtype, names = table.dtype if codec is None else codec.delivered(table.dtype), list[str]()
        if codec is not None and stored:
            dtype, *names = codec.exchange or (codec.name,)
        named = {"bfloat16": "int16", "float8_e4m3fn": "uint8"}.get(dtype, dtype)
        row_bytes = table.dim * storage_dtype(named).itemsize
        if codec is not None and not stored:
            return cls(dtype, named, row_bytes, lambda rows: codec.decode(rows, dtype, threads))
        parameters = {name: getattr(codec, name) for name in names}
        return cls(dtype, named, row_bytes, lambda rows: rows[:, :row_bytes], codec.name if codec else "", parameters)


def _append_array(
    file: FileWriter, array: AnyArray, convert: Callable[[AnyArray], AnyArray] | None = None, converted: int = 1
) -> Iterator[int]:
    item = max(converted, array.nbytes // max(1, array.shape[0]))
    for _, _, (part,) in chunks([array], max(1, PIECE_BYTES // item)):
        piece = part if convert is None else convert(part)
        file.append(piece)
        yield piece.nbytes


def _append_destinations(file: FileWriter, indptr: AnyArray) -> Iterator[int]:
    """Append the destination of every edge, int64, column after column."""
    step = PIECE_BYTES // 8
    for column in range(0, indptr.shape[0] - 1, _COLUMNS):
        bounds = np.array(indptr[column : column + _COLUMNS + 1])
        for first in range(int(bounds[0]), int(bounds[-1]), step):
            degrees = np.diff(np.clip(bounds, first, first + step))
            part = np.repeat(np.arange(column, column + degrees.size, dtype=np.int64), degrees)
            file.append(part)
            yield part.nbytes
