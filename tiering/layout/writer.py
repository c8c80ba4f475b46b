"""Write a layout: the tiers' files, the stripe files of the SSDs, and the reordered graph."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.storage import require_space
from tiering.artifacts.writer import ArtifactWriter
from tiering.codecs import CODECS, CodecLoss, codec_of, sum_losses
from tiering.formats.encoded_rows import EncodedTable
from tiering.formats.feature_rows import table_states
from tiering.formats.graph import Graph, graph_errors
from tiering.formats.import_record import column_name
from tiering.formats.layout import CODEC, EDGE_TABLES, SUM_BYTES, UNITS, Layout, codec_file, page_sums
from tiering.formats.order import Order
from tiering.formats.scores import Scores
from tiering.layout.inputs import LayoutInput, require_order
from tiering.layout.options import LayoutOptions
from tiering.layout.plan import LayoutPlan, plan_layout
from tiering.layout.stripe_files import StripeFiles
from tiering.memory import Budget, parse_memory
from tiering.reorder.table_reader import TableReader
from tiering.reorder.tasks.rows import fit_by_tasks, locate_rows, task_rows
from tiering.run.files import (
    JoinedFile,
    PartitionRange,
    join_step,
    make_files,
    missing_windows,
    place_files,
    whole_files,
)
from tiering.run.job import Carrier, Job
from tiering.run.move import Items, move_items
from tiering.run.move_tasks import move_steps, run_moves, task_files
from tiering.text.description import to_text
from tiering.text.progress import note
from tiering.text.units import parse_threads

SCRATCH = "scratch"  # directory in the unfinished layout for rows that are being permuted


def write_layout(
    graph: Graph,
    out: str | os.PathLike[str],
    options: LayoutOptions,
    *,
    scores: Scores | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
    carrier: Carrier | None = None,
) -> Layout:
    """Place the feature rows of a reordered graph, of nodes and of edges, in tiers.

    `out`, with its stripe files, gets the memory tiers, the manifest and the graph (hard links where possible).
    `scores`: those that the graph was ordered by, of a method that knows the sampler, for an adjacency cache, or to
    place edge features by the reads of lists that they predict. The result is the same bytes for any threads, memory
    and `carrier`, which writes large tables by tasks.

    All space is reserved before the first row is moved, and too little memory is refused before anything is written.
    Cost: each row is read once and written once where the table fits the page cache, else as `tiering.run.move`
    says; codecs that depend on numbers read the table once before. A run that was killed or found the disk full
    resumes after the last finished block of 64 MiB of each file; after an error of the input nothing remains.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    source = LayoutInput.of(graph, options, scores)
    plan = plan_layout(source, options, budget)
    carrier = plan.choose_carrier(carrier, budget)
    recorded = {"graph": graph.digest, **({} if scores is None else {"scores": scores.digest})}
    asked = {**options.recorded, **({} if plan.sizes is None else {"chosen": plan.sizes.bytes})}
    provenance: dict[str, Any] = {"stage": "layout", "options": asked, "inputs": recorded}
    # The graph's digest covers the content of the feature files at the import.
    identity = {**provenance, "inputs": {**recorded, **table_states(source.tables)}}
    with ArtifactWriter(out, "layout", force=force, identity=identity, reads=(graph, scores)) as writer:
        lines = [] if plan.sizes is None else to_text([plan.sizes.table]).splitlines()
        for text in (*filter(None, lines), *(f"note: {text}" for text in plan.input_notes)):
            note(text)
        journal, body = writer.journal, plan.to_body()
        shutil.rmtree(writer.path / SCRATCH, ignore_errors=True)
        if not journal.done:  # else the space is reserved
            require_space(plan.places(writer.path))
        # The graph's digest stands for order, features and their files.
        goal = json.dumps({"graph": graph.digest, "body": body, "out": str(writer.out)}, sort_keys=True)
        digest = digest_bytes(goal.encode()).rpartition(":")[2][:12]
        with graph_errors(graph), StripeFiles(writer, plan.folders, plan.stripe_bytes, digest) as stripes:
            job = None if carrier is None else carrier.job(writer)
            coded = fit_tables(writer, plan, workers, graph, job)
            losses: dict[str, CodecLoss] = {}
            if job is not None:
                losses = _write_by_tasks(job, writer, stripes, plan, graph)
            stripes.open()
            if job is None:
                _write_rows(writer, stripes, plan, require_order(graph), budget, workers)
                losses = {name: table.measure(workers) for name, table in coded.items()}
            writer.adopt(graph, "graph")
            writer.external.update(stripes.publish())
        for name, table in coded.items():
            entry = {**table.codec.entry(), "loss": losses[name].as_dict()}
            body[EDGE_TABLES if ":" in name else "node_types"][name][CODEC] = entry
            worst = column_name(graph.manifest.body["changes"], name, losses[name].worst_column, table.dim)
            note(f"{name}: rows of {table.row_bytes} B, {table.name}: {losses[name].describe(worst)}")
        features = {EDGE_TABLES: EDGE_TABLES in body, CODEC: bool(coded)}
        writer.commit(body, provenance, (UNITS, *(name for name, needed in features.items() if needed)))
    return Layout.open(writer.out)


def fit_tables(
    writer: ArtifactWriter, plan: LayoutPlan, threads: int, graph: Graph, job: Job | None
) -> dict[str, EncodedTable]:
    """Return the tables that are stored by a codec, by name, ready to encode; write the parameters."""
    coded = {name: table for name, table in plan.tables.items() if isinstance(table, EncodedTable)}
    for number, (name, table) in enumerate(coded.items()):
        file, scaled, known = codec_file(name), CODECS[table.name].scaled, writer.journal.get(f"codec {name}")
        if known is not None and (not scaled or writer.has(file)):
            parameters = (writer.path / file).read_bytes() if scaled else b""
            table.use(codec_of({"name": table.name, **known}, table.dim, parameters, file))
            continue
        if job is None or not table.fit_memory:
            table.use(table.fit(threads))
        else:
            table.use(fit_by_tasks(job, f"fit-{number}", locate_rows(graph, name), table))
        if scaled:
            writer.put(file, np.frombuffer(table.codec.to_bytes(), np.uint8))
        writer.journal.record(f"codec {name}", largest=table.codec.largest)
    return coded


def _write_rows(
    writer: ArtifactWriter, stripes: StripeFiles, plan: LayoutPlan, order: Order, budget: Budget, threads: int
) -> None:
    """Reserve the files of all tiers, then move the rows; a run that was killed resumes with the missing blocks."""
    with ExitStack() as stack:
        files = [stack.enter_context(writer.file(*file)) for file in plan.tier_files]
        sums = [
            stack.enter_context(writer.file(page_sums(number), "uint32", (nbytes // SUM_BYTES,)))
            for number, nbytes in enumerate(plan.sum_bytes)
        ]

        def put_sums(number: int, begin: int, data: np.ndarray[Any, Any]) -> None:
            if number >= len(files):
                pages = native.page_hashes(data.reshape(-1), plan.page_bytes)
                at = begin // plan.page_bytes * SUM_BYTES
                sums[number - len(files)].put(pages.astype("<u4", copy=False).view(np.uint8), at)

        for number, file in enumerate(stripes.files, len(files)):
            earlier = set(range(file.num_blocks)) - {*file.missing()} if sums[number - len(files)].missing() else ()
            for block in earlier:
                begin, end = file.span(block)
                put_sums(number, begin, np.fromfile(file.path, np.uint8, end - begin, offset=begin))
        moves = []
        for name, places in plan.row_places.items():
            table = plan.tables[name]
            ranked = table.row_order == "rank"
            maps = None if ranked else (order.new_to_old(name), order.old_to_new(name))
            moves.append(Items(TableReader(table, maps, threads), places, threads))
        move_items(moves, [*files, *stripes.files], budget, writer.path / SCRATCH, "layout", put_sums)
        for file in sums:
            file.seal_put(threads)


def _write_by_tasks(
    job: Job, writer: ArtifactWriter, stripes: StripeFiles, plan: LayoutPlan, graph: Graph
) -> dict[str, CodecLoss]:
    """Write the files of all tiers and the stripe files by tasks; return the losses of coded tables."""
    order, tables = str(graph.path / "order"), plan.row_places
    moves = [
        task_rows(f"rows-{number}", name, plan.tables[name], locate_rows(graph, name), order, places)
        for number, (name, places) in enumerate(tables.items())
    ]
    tiers = [(name, str(writer.path), dtype, shape) for name, dtype, shape in plan.tier_files]
    images = [
        (path.name, str(path.parent), "uint8", [nbytes])
        for path, nbytes in zip(stripes.paths, plan.stripe_bytes, strict=True)
    ]
    pages = dict.fromkeys(range(len(tiers), len(tiers) + len(images)), plan.page_bytes)
    cuts, step = move_steps(job, "rows.files", moves, task_files([*tiers, *images], moves, job.grid), pages)
    named = [page_sums(number) for number in range(len(images))]
    summed = writer.has(*named)
    job.expect(len(cuts) + 1 + bool(named))
    pending = not all(map(stripes.is_whole, range(len(images)))) or not summed
    of_file = [window["file"] for window in step.params["windows"]]
    wanted = [i for i in missing_windows(writer, step) if of_file[i] < len(tiers) or pending]
    made = run_moves(job, cuts, step, wanted)
    place_files(writer, whole_files(one for one in made if of_file[one["index"]] < len(tiers)))
    losses = {
        name: sum_losses([record["facts"]["loss"] for record in job.run(cut)])
        for name, cut in zip(tables, cuts, strict=True)
        if isinstance(plan.tables[name], EncodedTable)
    }
    if named and not summed:
        sums = []
        for number, name in enumerate(named, len(tiers)):
            own = [index for index, file in enumerate(of_file) if file == number]
            pages_of = [step.params["windows"][index]["bytes"] // plan.page_bytes for index in own]
            parts = [PartitionRange(step.name, own[0], own[-1] + 1)]
            sums.append(JoinedFile(name, "uint32", (sum(pages_of),), parts, pages_of))
        make_files(job, writer, join_step("sums.files", writer.path, sums))
    for file in whole_files(one for one in made if of_file[one["index"]] >= len(tiers)):
        stripes.take([path.name for path in stripes.paths].index(file.name), file.at, bytes.fromhex(file.blocks))
    return losses
