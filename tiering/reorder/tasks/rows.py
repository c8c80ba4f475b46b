"""Feature rows as tasks read them: chunks with their ranks, encoded on the way; and the parameters of their codec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import relation_key, storage_dtype
from tiering.artifacts.storage import AnyArray, Bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.codecs import Codec, ColumnFacts, LossMeter, codec_for, codec_of, column_facts
from tiering.formats.encoded_rows import EncodedTable, encode_rows
from tiering.formats.features import EDGE_FEATURES, FeatureTable
from tiering.formats.graph import Graph, relation_folder
from tiering.reorder.arrays import moved_bytes
from tiering.run.files import missing_windows, place_files, whole_files
from tiering.run.grid import equal_bounds
from tiering.run.job import Job
from tiering.run.move_tasks import COPIES, TaskItems, move_steps, run_moves, task_files
from tiering.run.places import Places
from tiering.run.step import Step, TaskContext

_HERE = "tiering.reorder.tasks.rows"
_FIT_BYTES = 8 << 20  # of rows as float32 that are looked at together


def tables_task_bytes(tables: Mapping[str, FeatureTable | EncodedTable]) -> int:
    """Return the memory of a task that brought whole tables into order."""
    return COPIES * sum(table.rows * moved_bytes(table) for table in tables.values())


@dataclass(frozen=True)
class RowLocation:
    """The place of a table's rows: a file of an artifact, or one that it refers to."""

    artifact: str
    name: str
    offset: int
    in_order: bool  # whether the rows lie in rank order


def locate_rows(graph: Graph, table: str) -> RowLocation:
    """Return where the rows of a table lie in a graph: of nodes, or of a relation's edges."""
    of_edges = {relation_key(relation): relation for relation in graph.relations}
    if table in of_edges and ":" in table:
        return RowLocation(str(graph.path), f"{relation_folder(of_edges[table])}/{EDGE_FEATURES}", 0, True)
    features: Any = graph.features
    entry = features.manifest.body["tables"][table]
    name = entry.get("file") or entry["external"]
    return RowLocation(str(features.path), name, entry["offset"], entry["row_order"] == "rank")


def task_rows(
    name: str, node_type: str, table: FeatureTable | EncodedTable, rows: RowLocation, order: str, places: Places
) -> TaskItems:
    """Return the rows of a table, cut by the tasks of step `name`; `order` is the directory of the order artifact."""
    codec, width = None, table.row_bytes
    if isinstance(table, EncodedTable):
        entry, width = {**table.codec.entry(), "dim": table.dim, "dtype": table.dtype}, table.source.row_bytes
        codec = {"entry": entry, "parameters": table.codec.to_bytes().hex(), "where": table.where}
    params = {"rows_at": vars(rows), "order": order, "node_type": node_type, "source_bytes": width, "codec": codec}
    return TaskItems(name, places, table.rows, moved_bytes(table), f"{_HERE}:read_ranked", params)


def read_ranked(context: TaskContext, begin: int, end: int) -> tuple[Bytes, AnyArray, dict[str, Any]]:
    """Return rows [begin, end) as they are stored, and their ranks; of coded rows the sums of their errors, too."""
    params = context.params
    rows, facts, ranks = _source_rows(context, begin, end), {}, np.arange(begin, end)
    if not params["rows_at"]["in_order"]:
        order = context.share(open_manifest, params["order"])
        ranks = order.read(f"nodes/{params['node_type']}/old_to_new", begin, end)
    if (codec := params["codec"]) is not None:
        entry, where = codec["entry"], codec["where"]
        meter = LossMeter(codec_of(entry, entry["dim"], bytes.fromhex(codec["parameters"]), where), where)
        rows = encode_rows(meter, rows, entry["dtype"], where, context.threads, first=begin)
        facts = {"loss": meter.sums()}
    return rows, ranks, facts


def _source_rows(context: TaskContext, begin: int, end: int) -> Bytes:
    """Return rows [begin, end) of a task's table, as bytes of the source."""
    source, width = RowLocation(**context.params["rows_at"]), context.params["source_bytes"]
    artifact = context.share(open_manifest, source.artifact)
    data = artifact.read_bytes(source.name, source.offset + begin * width, source.offset + end * width)
    return data.reshape(end - begin, width)


def write_tables(
    job: Job, writer: ArtifactWriter, graph: Graph, tables: Mapping[str, FeatureTable], order: str
) -> None:
    """Write feature tables in rank order, ``tables/TYPE``, by tasks; `order` is the directory of that artifact."""
    moves, files = [], []
    for number, (name, table) in enumerate(tables.items()):
        files.append((f"tables/{name}", str(writer.path), table.dtype, [table.rows, table.dim]))
        if table.bytes:
            places = Places.row_by_row(table.rows, table.row_bytes, number)
            moves.append(task_rows(f"table-{number}", name, table, locate_rows(graph, name), order, places))
    cuts, step = move_steps(job, "tables.files", moves, task_files(files, moves, job.grid), {})
    job.expect(len(cuts) + 1)
    place_files(writer, whole_files(run_moves(job, cuts, step, missing_windows(writer, step))))


def fit_by_tasks(job: Job, name: str, rows: RowLocation, table: EncodedTable) -> Codec:
    """Return the codec for a table's rows, at which the tasks of step `name` have looked."""
    job.expect(1)
    chunks = job.grid.parts(table.rows * 4 * table.dim * COPIES)
    params = {
        "rows_at": vars(rows), "rows": table.rows, "chunks": chunks, "source_bytes": table.source.row_bytes,
        "codec": table.name, "dim": table.dim, "dtype": table.dtype, "where": table.where,
    }  # fmt: skip
    step, parts = Step(name, f"{_HERE}:fit", chunks, params, memory=table.fit_memory), []
    for index, record in enumerate(job.run(step)):
        arrays: dict[str, Any] = job.read(name, index)
        parts.append(ColumnFacts(**record["facts"], **arrays))
    job.release(step)
    return codec_for(table.name, parts)


def fit(context: TaskContext) -> dict[str, Any]:
    """Write the facts about a chunk's rows from which the parameters of a codec follow."""
    params, step = context.params, max(1, _FIT_BYTES // (4 * context.params["dim"]))
    begin, end = equal_bounds(params["rows"], params["chunks"])[context.index : context.index + 2]
    blocks = (
        _source_rows(context, first, min(end, first + step)).view(storage_dtype(params["dtype"]))
        for first in range(begin, end, step)
    )
    about = params["codec"], blocks, params["dim"], params["dtype"], params["where"]
    facts = vars(column_facts(*about, context.threads, begin))
    context.write(**{key: np.asarray(facts.pop(key)) for key in ("low", "high", "least", "lowest_bit")})
    return facts
