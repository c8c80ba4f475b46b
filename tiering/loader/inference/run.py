"""Layer-wise inference: every layer for all its nodes, block by block, from the table of the layer before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.manifest import External, Manifest
from tiering.artifacts.storage import require_space
from tiering.artifacts.writer import ArtifactWriter
from tiering.codecs import CODECS, DELIVERED
from tiering.errors import BudgetError, InputError, ModelError
from tiering.formats.embeddings import PAGE_BYTES, ROWS, RowsEntry
from tiering.formats.graph import Graph
from tiering.formats.layout import CODEC, TIERS, Layout, image_name
from tiering.formats.names import Names, NodeNumbers
from tiering.formats.ssd_rows import SsdRows
from tiering.loader.adapters import edge_names
from tiering.loader.batches.pipeline import StageError
from tiering.loader.inference.block_check import refuse_changed, with_other_destinations
from tiering.loader.inference.blocks import GraphValues, InferenceBlock, NodeRuns, cut_runs, needed_nodes
from tiering.loader.inference.embeddings import TieredEmbeddings
from tiering.loader.inference.identity import identify_layers
from tiering.loader.inference.layers import as_layers, check_values, list_layers, measured, run_function
from tiering.loader.inference.order import ORDERS, NodeOrder
from tiering.loader.inference.order_choice import OrderCosts
from tiering.loader.inference.ordered import (
    feature_entries,
    feature_moves,
    graph_bytes,
    scratch_bytes,
    table_moves,
    write_graph,
    write_moved,
)
from tiering.loader.inference.supported import refuse_unsupported
from tiering.loader.loader import Loader
from tiering.loader.open_tables import OpenTables
from tiering.loader.options import LoaderOptions
from tiering.loader.tables.delivery import Delivery
from tiering.loader.targets import find_nodes
from tiering.memory import Budget, own_memory, parse_memory, release_unused
from tiering.readahead.config import SsdTables
from tiering.readahead.disk_speed import DEPTH, DiskSpeed
from tiering.readahead.memory import BatchMemory, BufferMemory, mapped_files, room_for_all
from tiering.run.plan import SMALL, Estimate, StageEstimate, StepEstimate, base_memory
from tiering.text.options import whole
from tiering.text.progress import note, progress
from tiering.text.units import format_bytes, format_count

if TYPE_CHECKING:
    from tiering.loader.batches.batch import Batch

_SPARE = 1.25  # of the memory that a first block took: others have other sources
_KEPT = 8  # of the memory that a function leaves, one part in so many may not serve the next
_PIECE = 2 << 20  # bytes written at a time: what is not kept here is the buffer's
_SAMPLED = 64  # blocks whose reads are simulated for an estimate
_EDGES = (50_000, 25_000, 12_500, 6_250, 3_000, 1_500, 800)  # of a block, the first that works
_BUFFER = 0.75  # of a layer's memory that rows get, about
_FEATURES = "features-in-order"  # file of the features in the order
_SPEED = DiskSpeed(100_000, 1e9)  # of the disk of an estimate, which counts bytes


class Inference:
    """The layers of a run, the blocks and the table of each, known before the first row is read."""

    def __init__(
        self, layout: OpenTables, layers: Iterable[Any], out: str | os.PathLike[str], *, memory: Any,
        dtype: Any, nodes: Any, edges: Any, order: Any, device: Any, force: bool, resume: str | None,
    ) -> None:  # fmt: skip
        import torch

        if not layout.feature_types:
            raise InputError(f"{layout.path}: inference starts from features, but the layout has none")
        dtype = None if dtype is None else str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
        if dtype not in (None, *DELIVERED):
            raise InputError(f"dtype: expected {', '.join(DELIVERED)}, found {dtype!r}")
        self._layout, self._artifact, self._graph = layout, layout.artifact, layout.artifact.graph
        self._dtype, self._device, self._force, self._out = dtype, device, force, Path(out).absolute()
        self._kept: Any = None  # the loader
        if resume not in (None, "trust"):
            raise InputError(f"resume: expected None or 'trust', found {resume!r}")
        layers = list_layers(layers)
        self._layers = as_layers(layers)
        self._identities, self._trust = identify_layers(layers), resume == "trust"
        self._limit = parse_memory(memory)
        self._ordered: Graph | None = None  # the graph in an order other than by rank
        for number, identity in enumerate(self._identities):
            for name, module in identity.modules:
                parts = ((f"{name}.{part}".strip("."), own) for part, own in module.named_modules())
                refuse_unsupported(f"layer {number}: ", parts)
        self._values = self._read_graph()
        self._asked: dict[str, Any] | None = None
        if nodes is not None:
            name, ids, _ = find_nodes(self._graph, nodes, None, "nodes")
            if not ids.size:
                raise InputError("nodes: the set is empty; give at least one node, or omit nodes to compute all")
            self._asked = {name: np.unique(ids)}
        self._wanted = needed_nodes(self._graph, self._asked, [layer.neighbors for layer in self._layers])
        self._plan(edges, order)
        chosen = "" if self._asked is None else [digest_bytes(ids.tobytes()) for ids in self._asked.values()]
        self._recorded = {
            "torch": torch.__version__, "device": str(device), "edges": self._edges, "order": self._order.name,
            "dtype": dtype, "nodes": chosen, "parameters": [one.parameters for one in self._identities],
            "layers": [
                [str(layer.fanouts), layer.neighbors, bool(values.edge_data), list(layer.degrees or ())]
                for layer, values in zip(self._layers, self._values, strict=True)
            ],
            "tables": [{t: entry.to_json() for t, entry in table.items()} for table in self._tables],
        }  # fmt: skip

    def _read_graph(self) -> list[GraphValues]:
        """Return by layer what its functions read of the graph in addition to edges; count degrees, once each."""
        graph = self._graph
        names, factors = edge_names(graph, None, False), dict[Any, Any]()
        data = {
            r: {name: own[name] for name in names if name in own}
            for r in graph.relations
            for own in [graph.edge_data(r)]
        }
        for degrees in dict.fromkeys(layer.degrees for layer in self._layers if layer.degrees is not None):
            factors[degrees] = degrees.factors(graph, parse_memory(self._limit.limit))
        none = dict[Any, Any]()
        return [
            GraphValues(data if layer.edge_data and layer.neighbors and names else none, factors.get(layer.degrees))
            for layer in self._layers
        ]

    def _plan(self, edges: Any, order: Any) -> None:
        """Cut the blocks of all layers, and find their tables; choose edges and order if ``auto``."""
        earlier = {} if self._force else OutputDirectory.unfinished_identity(self._out).get("inputs", {})
        if isinstance(order, str) and order == "auto" and earlier.get("order") in ORDERS:
            order = earlier["order"]
        if isinstance(edges, str) and edges == "auto":
            edges = int(earlier.get("edges", 0)) or edges
        by_count, by_size = (isinstance(option, str) and option == "auto" for option in (order, edges))
        sizes = _EDGES if by_size else [whole(1, 1 << 62, "auto or a whole number of at least 1")(edges, "edges")]
        self._chosen, self._moved = by_count or by_size, False
        self._order = NodeOrder.make(self._graph, "rank" if by_count else order, self._limit)
        for self._edges in sizes:
            try:
                spare = 1.0 if self._edges == sizes[-1] else _SPARE
                self._plan_tables(spare if by_size else None)
                break
            except BudgetError:
                if self._edges == sizes[-1]:
                    raise
        costs = OrderCosts(
            self._artifact, self._tables, [layer.neighbors for layer in self._layers],
            [int(_BUFFER * self._budget(number).left()) for number in range(len(self._layers))],
            self._limit, min(self._budget(k).left() - least for k, least in enumerate(self._least)), self._cut,
        )  # fmt: skip
        if by_count and (best := costs.cheapest()).ranks:
            self._order = best
            self._plan_tables(None)
        release_unused()  # what counting took, before layers ask for memory
        if self._order.ranks:
            self._moved = costs.first(self._order)[1]
        self._costs = costs

    def _plan_tables(self, spare: float | None) -> None:
        """Cut the blocks of all layers in the order, and find their tables.

        `spare`: refuse blocks that leave less than so many times the memory of the smallest buffer.
        """
        self._runs = [self._cut(number, self._order) for number in range(len(self._layers))]
        self._model_bytes, self._tables, self._least = list[int](), list[dict[str, RowsEntry]](), list[int]()
        for number, layer in enumerate(self._layers):
            need = self._plan_table(number)
            self._least.append(self._least_bytes(number, *need, spare or _SPARE) if layer.neighbors else 0)
            if spare is not None:
                blocks = f"blocks of {self._edges} edges, the largest of {need[2]}"
                what = f"layer {number}: {blocks}, and a buffer for rows,"
                budget, least = self._budget(number), self._least[number]
                budget = budget.expecting(budget.allocated + int(_SPARE * least))  # what is advised has some to spare
                budget.require(least, what)

    def _cut(self, number: int, order: NodeOrder) -> dict[str, NodeRuns]:
        """Return a layer's blocks of positions in an order, by node type."""
        wanted, positions = self._wanted[number], order.positions
        own = {t: None if ids is None else np.sort(order.positions_of(t, ids)) for t, ids in wanted.items()}
        return {
            t: cut_runs(self._graph, t, ids, self._edges, positions.get(t))
            for t, ids in own.items()
            if ids is None or ids.size
        }

    def _by_rank(self, run: NodeRuns) -> NodeRuns:
        """Return the same blocks with ranks in the place of positions."""
        ranks = self._order.ranks.get(run.node_type)
        return run if ranks is None else replace(run, ids=ranks if run.ids is None else ranks[run.ids])

    def _least_bytes(self, number: int, nbytes: int, nodes: int, edges: int, spare: float) -> int:
        """Return the least memory for a layer's rows: batches of so many bytes, and a buffer where it has no room."""
        tables, batch = self._cold_tables(self._view(number)), BatchMemory.of(nbytes, 8 * nodes + 16 * edges, 1, 1)
        if not tables.nbytes:
            return 0
        need = BufferMemory.of(tables, batch.outputs, 0, nodes, edges, DEPTH, 1).minimum
        whole = room_for_all(tables.nbytes + batch.work, sum(len(file) for _, file in mapped_files(self._graph)))
        return min(whole, int(spare * need))

    def _plan_table(self, number: int) -> tuple[int, int, int]:
        """Find a layer's output by its first block of each type, of ones, and the memory that its largest takes.

        Returns the largest block's bytes of rows, nodes and edges.
        """
        import torch

        if number:
            inputs = {t: (entry.dim, entry.dtype) for t, entry in self._tables[-1].items()}
        else:
            entries = {t: self._artifact.type_layout(t) for t in self._artifact.feature_types}
            inputs = {t: (e.dim, Delivery.of(self._artifact, e).dtype) for t, e in entries.items()}
        last = number == len(self._layers) - 1
        sizes, largest, block_sizes = dict[str, tuple[int, int, str, str]](), 0, (0, 0, 0)
        for t, run in ((t, self._by_rank(own)) for t, own in self._runs[number].items()):
            rows: Any = None
            widest = int(np.diff(run.bounds).argmax())
            for b in dict.fromkeys((0, widest, run.largest)):  # messages go by edges, outputs by nodes
                ((block, _),) = self._blocks(self._layout, number, run.since(b, b + 1), features=None)
                own_rows = [(len(block.nodes[name]), *inputs[name]) for name in block.nodes if name in inputs]
                own_bytes = sum(n * dim * getattr(torch, dtype).itemsize for n, dim, dtype in own_rows)
                edges = sum(pairs.shape[1] for pairs in block.edges.values())
                block_sizes = max(block_sizes, (own_bytes, sum(map(len, block.nodes.values())), edges))
                if b not in (0, widest):  # its messages are estimated
                    continue
                what = f"layer {number}: rows of a block of {int(run.edges[b])} edges, read and in the function,"
                self._limit.require(2 * own_bytes, what)  # before a trial makes them
                x: Any = {
                    name: torch.ones(len(i), inputs[name][0], dtype=getattr(torch, inputs[name][1]), device=i.device)
                    for name, i in block.nodes.items()
                    if name in inputs
                }
                x = x if len(self._graph.node_types) > 1 else x[t]
                found, nbytes = measured(lambda: run_function(self._layers[number], number, block, x))  # noqa: B023
                rows = rows if b else found
                largest = max(largest, nbytes if b else self._scaled(number, run, nbytes))
            if rows is not None:
                made, compact = str(rows.dtype).removeprefix("torch."), last and self._asked is not None
                codec = "" if self._dtype in (None, made) else str(self._dtype)
                sizes[t] = len(run) if compact else self._graph.num_nodes(t), rows.shape[1], made, codec
        if not sizes or (last and self._asked is not None and not self._asked.keys() <= sizes.keys()):
            raise ModelError(f"layer {number}: the function returned no rows of the node types that are needed")
        self._tables.append(RowsEntry.plan(sizes))
        self._model_bytes.append(int(_SPARE * largest))
        return block_sizes

    def _scaled(self, number: int, runs: NodeRuns, nbytes: int) -> int:
        """Return the memory of the function for the largest block, from that for the first; refuse what is too much."""
        weights = runs.edges + np.diff(runs.bounds)
        largest = int(weights.argmax())
        scaled = int(nbytes * weights[largest] / max(1, weights[0]))
        if scaled > self._limit.limit:
            node = int(runs.nodes(*map(int, runs.bounds[largest : largest + 2]))[0])
            raise BudgetError(
                f"memory: layer {number}: the in-lists of {runs.node_type!r} from node {node} (rank) on have "
                f"{format_count(int(runs.edges[largest]))} edges, whose messages need about {format_bytes(scaled)}, "
                f"found {self._limit.text}; give more memory, or fanouts to use a part of the neighbors"
            )
        return scaled

    def _budget(self, number: int) -> Budget:
        """Return the memory that a layer's loader may take now: without the function's and the writer's memory."""
        own = self._model_bytes[number] + appending_memory(RowsEntry.total(self._tables[number]), _PIECE)
        return parse_memory(self._limit.limit).without(own + SMALL + SMALL // 2)  # what layers before leave in pieces

    def _needed(self) -> int:
        """Return the bytes on disk at the fullest moment: of two tables, and of what is moved for another order."""
        first, tables = feature_entries(self._artifact) if self._moved else {}, [*self._tables]
        if not self._order.ranks:
            return max(map(sum, pairwise([0, *map(RowsEntry.total, tables)]))) + self._id_bytes()
        tables = [first, *tables, tables[-1]]
        scratch = scratch_bytes(self._graph, [first, tables[-1]], self._limit)
        most: int = max(map(sum, pairwise(map(RowsEntry.total, tables))))
        return most + scratch + graph_bytes(self._graph) + self._id_bytes()

    def _id_bytes(self) -> int:
        """Return the bytes of ids that are written with the rows: the nodes requested, their numbers in the source."""
        numbered = [e for t, e in self._tables[-1].items() if isinstance(self._graph.names(t), NodeNumbers)]
        return 8 * sum(e.rows for e in numbered) + sum(int(ids.nbytes) for ids in (self._asked or {}).values())

    def estimate(self) -> Estimate:
        """Return memory, reads and disk by layer."""
        steps = []
        for number, table in enumerate(self._tables):
            view = self._view(number)
            budget, written = self._budget(number), RowsEntry.total(table)
            read, how = self._estimate_reads(view, number, budget)
            how = how and f"{how}, order {self._order.name}, blocks of {self._edges}"
            edges = sum(int(run.edges.sum()) for run in self._runs[number].values())
            scratch = written if number < len(self._tables) - 1 else 0
            memory = self._limit.limit - budget.resident if how else budget.allocated + read
            steps.append(StepEstimate(
                f"layer {number}", how or "in memory", memory=memory, disk_read=read, disk_written=written - scratch,
                disk_scratch=scratch, amount=edges, unit="edge",
            ))  # fmt: skip
        if self._order.ranks:
            nbytes, last = graph_bytes(self._graph), RowsEntry.total(self._tables[-1])
            features = RowsEntry.total(feature_entries(self._artifact)) if self._moved else 0
            moved, scratch = nbytes + features + last, self._needed() - self._id_bytes() - last
            how = f"graph{', features' if features else ''} and last table to and from the order"
            steps.append(StepEstimate("order", how, disk_read=moved, disk_written=last, disk_scratch=scratch))
        if ids := self._id_bytes():
            steps.append(StepEstimate("ids", "with the rows", disk_written=ids))
        left = {self._out: RowsEntry.total(self._tables[-1]) + ids}
        return Estimate((StageEstimate("inference", self._out, tuple(steps), left, held=base_memory(self._limit)),))

    def _estimate_reads(self, view: Layout, number: int, budget: Budget) -> tuple[int, str]:
        """Return the bytes that a layer reads of the ssd tier, and of which form its reading is."""
        tables = self._cold_tables(view)
        whole = tables.nbytes
        if whole <= budget.left() or not self._layers[number].neighbors:
            return whole, "" if whole <= budget.left() else "front to back"
        if self._order.ranks:
            read = self._costs.count(number, self._order, number > 0 or self._moved)
            return read, f"{read / max(1, whole):.1f} tables"
        runs = [run.since(b, b + 1) for run in self._runs[number].values() for b in range(len(run.edges))]
        chosen = runs[:: -(-len(runs) // _SAMPLED)]
        nodes = (self._empty(next(self._blocks(self._layout, number, run, features=None))[0]) for run in chosen)
        rows = [tables.thinned(tables.among(ids)) for ids in nodes]
        mean = tables.thinning * sum(int(tables.row_sizes(batch).sum()) for batch in rows) // len(rows)
        plan = BufferMemory.of(tables, 3 * mean, 0, 0, 0, DEPTH).plan(tables, budget, rows, _SPEED)
        read = int(plan.choice.read_bytes * len(runs))
        return read, f"{read / max(1, whole):.1f} tables"

    def _cold_tables(self, view: Layout) -> SsdTables:
        """Return the rows on SSD."""
        return SsdTables.of(view, [t for t in view.feature_types if view.type_layout(t).rows("ssd")])

    def _empty(self, block: InferenceBlock) -> dict[str, Any]:
        """Return the sources of a block by type, none of missing types."""
        ids = {t: np.empty(0, np.int64) for t in self._graph.node_types}
        return {**ids, **{t: found.cpu().numpy() for t, found in block.nodes.items()}}

    def run(self) -> TieredEmbeddings:
        """Write the embeddings; resume a stopped run."""
        artifact, last = self._artifact, len(self._layers) - 1
        inputs = {"layout": artifact.digest, **{name: str(value) for name, value in self._recorded.items()}}
        identity = {"stage": "inference", "inputs": {**inputs, "functions": self._known_functions(inputs)}}
        with ArtifactWriter(self._out, "embeddings", force=self._force, identity=identity, reads=(artifact,)) as writer:
            if self._force:  # of an unfinished run nothing is kept: its functions may have been mended
                writer.journal.forget(*writer.journal.keys())
                for name in (_FEATURES, ROWS, *map(self._file_of, range(last + 1))):
                    (writer.path / name).unlink(missing_ok=True)
            if not writer.journal.done:
                require_space({writer.path: self._needed()})
            if self._chosen:
                note(f"inference: order {self._order.name}, blocks of {format_count(self._edges)} edges")
            done = writer.has(ROWS)
            first = next((k + 1 for k in range(last, -1, -1) if done or writer.has(self._file_of(k))), 0)
            if self._order.ranks and first <= last:
                self._write_inputs(writer, first)
            for number in range(first, last + 1):
                self._release_buffer()
                self._write_layer(writer, number)
                writer.drop(self._file_of(number - 1) if number else _FEATURES)
            if self._order.ranks and not done:
                self._write_result(writer)
            for name, ids in (self._asked or {}).items():
                writer.put(f"nodes/{name}", ids)
            writer.adopt(self._graph.order, "order")  # type: ignore[arg-type] # a layout's graph has one
            if (names := self._graph.part(Names.kind)) is not None:
                writer.adopt(names, Names.kind)
            for name, entry in self._tables[-1].items():
                if isinstance(numbers := self._graph.names(name), NodeNumbers):
                    self._write_ids(writer, name, entry.rows, numbers)
            body = {"node_types": {t: entry.to_json() for t, entry in self._tables[-1].items()}}
            provenance = {"stage": "inference", "options": self._recorded, "inputs": {"layout": artifact.digest}}
            writer.commit(body, provenance)
        return TieredEmbeddings.open(writer.out)

    def _file_of(self, number: int) -> str:
        """Return the name of a layer's table: the rows of the result if they lie by rank."""
        return ROWS if number == len(self._layers) - 1 and not self._order.ranks else f"layer-{number}"

    def _release_buffer(self) -> None:
        """Give back the loader before, and with it the buffer, before memory is requested."""
        self._kept = None
        release_unused()

    def _write_inputs(self, writer: ArtifactWriter, first: int) -> None:
        """Write the graph, and the features if layer `first` reads them so, in the order."""
        self._ordered = write_graph(writer, self._graph, self._order, parse_memory(self._limit.limit))
        if self._moved and not first and not writer.has(_FEATURES):
            with writer.file(_FEATURES, "uint8", (RowsEntry.total(feature_entries(self._artifact)),)) as file:
                moves = feature_moves(self._artifact, self._order)
                write_moved(file, moves, parse_memory(self._limit.limit), "features into the order")

    def _write_result(self, writer: ArtifactWriter) -> None:
        """Write the rows of the last table, which lie in the order, by rank."""
        entries, name, numbers = self._tables[-1], self._file_of(len(self._layers) - 1), {}
        for t in entries:
            ids, asked = self._runs[-1][t].ids, (self._asked or {}).get(t)
            ranks = self._order.ranks[t] if ids is None else self._order.ranks[t][ids]
            numbers[t] = ranks if asked is None else np.searchsorted(asked, ranks)
        self._release_buffer()
        with writer.file(ROWS, "uint8", (RowsEntry.total(entries),)) as file:
            moves = table_moves(writer.path / name, entries, numbers)
            write_moved(file, moves, parse_memory(self._limit.limit), "rows by rank")
        writer.drop(name)

    def _write_ids(self, writer: ArtifactWriter, name: str, rows: int, numbers: NodeNumbers) -> None:
        """Write the whole numbers that are ids of the rows' nodes in the source."""
        ranks = (self._asked or {}).get(name)
        with writer.file(f"ids/{name}", numbers.of([]).dtype.name, (rows,), piece_bytes=_PIECE) as file:
            for begin in range(0, rows, _PIECE // 8):
                end = min(rows, begin + _PIECE // 8)
                file.append(numbers.of(np.arange(begin, end) if ranks is None else ranks[begin:end]))

    def _known_functions(self, inputs: Mapping[str, str]) -> list[str]:
        """Return the digests to record of the functions' code; refuse those that an unfinished run may not have had."""
        functions = [one.code for one in self._identities]
        unknown = [u for one in self._identities for u in one.unknown]
        earlier: dict[str, Any] = OutputDirectory.unfinished_identity(self._out).get("inputs", {})
        then: list[str] = earlier.get("functions", functions)
        if self._force or not earlier:
            return functions
        if self._trust or {**earlier, "functions": None} != {**inputs, "functions": None}:  # which the writer refuses
            return then
        changed = [f"layer {k} has changed" for k, own in enumerate(functions) if own != then[k]]
        if found := unknown or changed:
            what = f"{found[0]}, which cannot be compared" if unknown else found[0]
            raise InputError(
                f"functions: the run that left {self._out} unfinished used other functions: {what}; use the "
                'same functions, give resume="trust" if both compute the same, or --force to start over'
            )
        return functions

    def _view(self, number: int, folder: Path = Path()) -> Layout:
        """Return the layout of a layer's input rows: the given one, then a view of the table of the layer before."""
        if not number and not self._moved:
            return self._artifact
        if not number:
            return table_view(self._artifact, folder / _FEATURES, feature_entries(self._artifact), self._ordered)
        table = folder / self._file_of(number - 1)
        return table_view(self._artifact, table, self._tables[number - 1], self._ordered)

    def _write_layer(self, writer: ArtifactWriter, number: int) -> None:
        """Write the table of a layer, type by type."""
        table, total = self._tables[number], RowsEntry.total(self._tables[number])
        budget, name, by_rank = self._budget(number), self._file_of(number), not number and not self._moved
        most = trim_at = self._limit.limit - self._model_bytes[number] // _KEPT
        shown = progress(total, f"layer {number}", "B", scale=True)
        opened = closing(OpenTables(self._view(number, writer.path)))
        with opened as source, writer.file(name, "uint8", (total,), piece_bytes=_PIECE) as file, shown as bar:
            bar.update(file.done)
            for t, entry in table.items():
                run = self._runs[number][t]
                gaps = run.ids is not None and entry.rows != len(run)
                done = max(0, file.done - entry.offset) // entry.row_bytes
                if done >= entry.rows:
                    continue
                reached = int(np.searchsorted(run.ids, done)) if gaps and run.ids is not None else done
                rest = run.since(min(run.block_of(reached), len(run.edges) - 1))
                at, checked = int(rest.bounds[0]), len(run.edges) < 2 and run.ids is None
                rest = self._by_rank(rest) if by_rank else rest
                for block, x in self._blocks(source, number, rest, memory=budget):
                    rows = run_function(self._layers[number], number, block, x)
                    check_values(rows, entry, number, block)
                    other = None if checked else with_other_destinations(block, x)
                    del x
                    if other is not None:
                        again = run_function(self._layers[number], number, *other)
                        refuse_changed(rows, again, number, block, other[1])
                        checked = True
                    _append(file, entry, at, rows, run.nodes(at, at + block.num_dst) if gaps else None)
                    at += block.num_dst
                    bar.update(block.num_dst * entry.row_bytes)
                    del block, other, rows  # before the next ones are made
                    if own_memory() > trim_at:  # again only once as much has grown: a trim takes milliseconds
                        release_unused(collect=False)
                        trim_at = max(most, own_memory() + self._limit.limit // 64)
                _fill(file, entry.end)

    def _in_ranks(self, graph: Graph, block: InferenceBlock) -> InferenceBlock:
        """Return a block of a graph by ranks, with the positions of its edges in the layout's graph."""
        if graph is not self._ordered:
            return block
        import torch

        ranks = {t: self._order.ranks[t][ids.cpu().numpy()].astype(np.int64) for t, ids in block.nodes.items()}
        nodes = {t: torch.from_numpy(ids).to(block.nodes[t].device) for t, ids in ranks.items()}
        positions, t = dict[Any, Any](), block.node_type
        for relation, own in block.positions.items():
            dst = block.edges[relation][1].cpu().numpy()
            (old, _), (new, _) = self._graph.csc(relation), graph.csc(relation)
            begins = old[ranks[t][dst]] - new[block.nodes[t].cpu().numpy()[dst]]
            positions[relation] = own + torch.from_numpy(begins).to(own.device)
        return replace(block, nodes=nodes, positions=positions)

    def _blocks(
        self, source: OpenTables, number: int, runs: NodeRuns, features: str | None = "tiers", memory: Any = "auto"
    ) -> Iterator[tuple[InferenceBlock, Any]]:
        """Yield the blocks of a layer with the rows of their sources."""
        layer, name, where, values = self._layers[number], runs.node_type, self._device, self._values[number]
        ranked = partial(self._in_ranks, source.graph)
        if not layer.neighbors:
            import torch

            table = source.features(name, device=where) if features else None
            plan = runs.plan(0)
            for ids in (torch.from_numpy(plan[b][name]) for b in range(len(plan))):
                rows = None if table is None else table.gather(ids)
                x = rows if len(self._graph.node_types) == 1 else {name: rows}
                yield ranked(InferenceBlock(name, {name: ids}, {}, len(ids))), x
            return
        keywords = {
            "split": None, "seeds": runs, "shuffle": False, "device": where, "rank": 0, "world_size": 1, "workers": 1,
            "prefetch": 1, "sampler": "full" if layer.fanouts == -1 else "uniform", "fanouts": [layer.fanouts],
            "edge_positions": bool(values.edge_data), "memory": memory,
        }  # fmt: skip
        self._kept = Loader(source, LoaderOptions.of(features, keywords))  # its buffer serves the next type, too
        try:
            # A generator would keep each block until the next is made.
            yield from map(partial(_block_and_rows, values, ranked), self._kept)
        except StageError as error:
            raise error.__cause__ or error from None  # a disk that failed, say: the run can go on later


def _append(file: FileWriter, entry: RowsEntry, at: int, rows: Any, ids: Any) -> None:
    """Append a block's rows, of the table's number `at` on or, with `ids`, at these ranks with zeros between."""
    import torch

    if entry.codec:
        data = CODECS[entry.codec](entry.dim).encode(rows.float().numpy())
    else:
        data = rows.view(-1).view(torch.uint8).numpy().reshape(len(rows), entry.row_bytes)
    if ids is not None:
        spread = np.zeros((int(ids[-1] - ids[0]) + 1, entry.row_bytes), np.uint8)
        spread[ids - ids[0]] = data
        data, at = spread, int(ids[0])
        _fill(file, entry.offset + at * entry.row_bytes)
    file.append(data, entry.offset + at * entry.row_bytes)


def _fill(file: FileWriter, end: int) -> None:
    """Append zeros up to a byte."""
    while (missing := end - file.end) > 0:
        file.append(np.zeros(min(missing, 1 << 20), np.uint8), file.end)


def _block_and_rows(
    values: GraphValues, rename: Callable[[InferenceBlock], InferenceBlock], batch: Batch
) -> tuple[InferenceBlock, Any]:
    """Return a batch as a layer gets it."""
    return rename(InferenceBlock.of(batch, values)), batch.x


def table_view(layout: Layout, rows: Path, entries: Mapping[str, RowsEntry], graph: Graph | None = None) -> Layout:
    """Return the layout of a graph, by default the same, with the rows of a table, all on SSD, in one file."""
    types = {}
    for name, entry in entries.items():
        ranges = {tier: [0, entry.rows if tier == "ssd" else 0] for tier in TIERS}
        place = SsdRows(entry.offset // PAGE_BYTES, (entry.end - entry.offset) // PAGE_BYTES, entry.row_bytes, 0)
        coded: dict[str, Any] = {CODEC: {"name": entry.codec, "exact_columns": [], "largest": None}}
        types[name] = {
            "num_nodes": entry.rows, "dim": entry.dim, "dtype": entry.dtype, "row_bytes": entry.row_bytes, **ranges,
            "ssd_rows": vars(place), **(coded if entry.codec else {}),
        }  # fmt: skip
    body = {"page_bytes": PAGE_BYTES, "num_images": 1, "num_peers": 0, "node_types": types}
    external = {image_name(0): External(rows, RowsEntry.total(entries), "")}
    view = Layout(Manifest(rows.parent, "layout", (1, 2), {}, {}, external, {}, body, f"{layout.digest} {rows}"))
    view._nested["graph"] = graph or layout.graph
    view._sound.add("graph")  # it was checked, or written, by this process
    scaled = [name for name, entry in entries.items() if entry.codec and CODECS[entry.codec].scaled]
    view._codecs = {name: codec for name in scaled if (codec := layout.codec(name))}  # of features, moved as stored
    return view
