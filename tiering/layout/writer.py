"""Write a layout: the tiers' files, the stripe files of the SSDs, and the reordered graph."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from math import gcd
from typing import Any

from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.storage import require_space
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.feature_rows import table_states
from tiering.formats.graph import Graph, graph_errors
from tiering.formats.layout import EDGE_TABLES, MEMORY_TIERS, SUM_BYTES, Layout, TypeLayout, page_sums, tier_file
from tiering.formats.order import Order
from tiering.formats.scores import Scores
from tiering.layout.inputs import LayoutInput, require_order
from tiering.layout.options import LayoutOptions
from tiering.layout.plan import LayoutPlan, plan_layout
from tiering.layout.stripe_files import StripeFiles, append_striped, first_missing
from tiering.memory import Budget, parse_memory
from tiering.progress import note, progress
from tiering.reorder.rows import PermutedRows
from tiering.reorder.rows.tasks import TablePlan, as_pages, locate_rows, make_row_files, write_step
from tiering.run.carrier import Carrier
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files, missing_files, place_files
from tiering.run.job import Job
from tiering.run.step import OutputFile
from tiering.units import parse_threads
from tiering.version import __version__

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

    All space is reserved before the first row is read, and too little memory is refused before anything is written.
    Cost: each row is read once and written once where the table fits the page cache, else as `tiering.reorder.rows`
    says. A run that was killed or found the disk full goes on from the last finished block of 64 MiB of each file;
    after an error of the input nothing remains.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    source = LayoutInput.of(graph, options, scores)
    plan = plan_layout(source, options, budget)
    carrier = plan.choose_carrier(carrier, budget)
    recorded = {"graph": graph.digest, **({} if scores is None else {"scores": scores.digest})}
    provenance = {"stage": "layout", "options": options.recorded, "inputs": recorded}
    # The graph's digest covers the content of the feature files at the import.
    identity = {**provenance, "inputs": {**recorded, **table_states(source.tables)}, "package": __version__}
    with ArtifactWriter(out, "layout", force=force, identity=identity, reads=(graph, scores)) as writer:
        for text in plan.first:
            note(f"note: {text}")
        journal, body = writer.journal, plan.to_body()
        shutil.rmtree(writer.path / SCRATCH, ignore_errors=True)
        if not journal.done:  # else the space is reserved
            require_space(plan.places(writer.path))
        # The graph's digest stands for order, features and their files.
        goal = json.dumps({"graph": graph.digest, "body": body, "out": str(writer.out)}, sort_keys=True)
        digest = digest_bytes(goal.encode()).rpartition(":")[2][:12]
        reading = budget.without(plan.writing_memory())
        with graph_errors(graph), StripeFiles(plan, writer.out, digest, journal) as stripes:
            if carrier is not None:
                _write_by_tasks(carrier.job(writer), writer, stripes, plan, graph)
            stripes.open()
            if carrier is None:
                _write_rows(writer, stripes, plan, require_order(graph), reading, workers)
            writer.adopt(graph, "graph")
            writer.external.update(stripes.publish())
        writer.commit(body, provenance, (EDGE_TABLES,) if EDGE_TABLES in body else ())
    return Layout.open(writer.out)


def _write_rows(
    writer: ArtifactWriter, stripes: StripeFiles, plan: LayoutPlan, order: Order, budget: Budget, threads: int
) -> None:
    """Reserve every file of the memory tiers, then move all rows, type by type, by rank; `budget` is for reading them.

    A run that was killed goes on from the first row that is not on disk.
    """
    total = sum(entry.num_nodes * entry.row_bytes for entry in plan.entries.values())
    with ExitStack() as stack:

        def begin(name: str, dtype: str, shape: tuple[int, ...]) -> FileWriter:
            return stack.enter_context(writer.file(name, dtype, shape))

        files: dict[tuple[str, str], list[FileWriter]] = {}
        for name, entry in plan.entries.items():
            for tier in MEMORY_TIERS:
                parts = entry.file_rows(tier, plan.num_peers)
                files[name, tier] = [
                    begin(tier_file(name, tier, part, len(parts)), entry.dtype, (rows, entry.dim))
                    for part, rows in enumerate(parts)
                    if rows
                ]
        stripes.sums = [
            begin(page_sums(number), "uint32", (nbytes // plan.page_bytes,))
            for number, nbytes in enumerate(plan.stripe_bytes)
        ]
        bar = stack.enter_context(progress(total, "layout", "B", scale=True))
        for name, entry in plan.entries.items():
            table = plan.tables[name]
            maps = (None, None) if table.row_order == "rank" else (order.new_to_old(name), order.old_to_new(name))
            with PermutedRows(
                table, *maps, budget=budget, scratch=writer.path / SCRATCH, threads=threads, copies=plan.copies(entry)
            ) as source:
                for tier in MEMORY_TIERS:
                    if files[name, tier]:
                        write_range(source, *entry.ranges[tier], files[name, tier], bar)
                if entry.rows("ssd"):
                    write_ssd(source, entry, plan.page_bytes, stripes, bar)


def write_range(source: PermutedRows, begin: int, end: int, files: Sequence[FileWriter], bar: Any) -> None:
    """Write ranks `begin`..`end` to the files of a memory tier; skip rows that are there."""
    start = begin + first_missing(files, source.table.row_bytes, end - begin)
    bar.update((start - begin) * source.table.row_bytes)
    for first, chunk in source.chunks(start, end):
        append_striped(files, first - begin, chunk)
        bar.update(chunk.nbytes)


def write_ssd(source: PermutedRows, entry: TypeLayout, page_bytes: int, stripes: StripeFiles, bar: Any) -> None:
    """Write the ssd rows of a type as pages: rows never straddle a page if one fits; gaps are zeros."""
    (begin, end), place = entry.ranges["ssd"], entry.ssd_rows
    # A piece begins where a page begins. Rows larger than a page do so every page / gcd(page, stride) rows.
    multiple = place.rows_per_page or page_bytes // gcd(page_bytes, place.stride)
    pages = multiple * place.stride // page_bytes if not place.rows_per_page else 1  # that so many rows take
    done = min(max(0, stripes.first_missing_page() - place.first_page), place.num_pages)
    start = end if done == place.num_pages else begin + done // pages * multiple
    bar.update((start - begin) * entry.row_bytes)
    for first, chunk in source.chunks(start, end, multiple):
        page = place.first_page + (first - begin) // multiple * pages
        stripes.write_pages(page, as_pages(chunk, place.stride, place.rows_per_page, page_bytes))
        bar.update(chunk.nbytes)


def _write_by_tasks(job: Job, writer: ArtifactWriter, stripes: StripeFiles, plan: LayoutPlan, graph: Graph) -> None:
    """Write the files of all tiers and the stripe files by tasks."""
    order, stored = str(graph.path / "order"), (job.grid, plan.page_bytes, plan.num_peers, len(plan.folders))
    tables = [
        TablePlan.of(f"rows-{number}", entry, locate_rows(graph, name, plan.tables[name]), order, *stored)
        for number, (name, entry) in enumerate(plan.entries.items())
        if entry.num_nodes
    ]
    tiers = [file for number, table in enumerate(tables) for file in table.tier_files(number, str(writer.path))]
    on_ssd = [index for index, table in enumerate(tables) if "ssd" in table.striping]
    most = max((table.most("ssd") for table in tables), default=0)
    pages: list[dict[str, Any]] = [
        {
            "name": path.name, "folder": str(path.parent), "dtype": "uint8", "shape": [nbytes], "tables": on_ssd,
            "tier": "ssd", "number": number, "bytes": nbytes, "most": most,
        }
        for number, (path, nbytes) in enumerate(zip(stripes.paths, plan.stripe_bytes, strict=True))
    ]  # fmt: skip
    cuts = [table.cut_step() for table in tables]
    step = write_step("rows.files", tables, cuts, [*tiers, *pages])
    named = [page_sums(number) for number in range(len(pages))]
    summed = writer.has(*named)
    job.expect(len(cuts) + 1 + bool(named))
    pending = not all(map(stripes.is_whole, range(len(pages)))) or not summed
    made = make_row_files(job, cuts, step, [i for i in missing_files(writer, step) if i < len(tiers) or pending])
    place_files(writer, [one for one in made if one["index"] < len(tiers)])
    if named and not summed:
        parts = range(sum(tables[index].striping["ssd"].num_ranges for index in on_ssd))
        sums = [
            JoinedFile(
                name, "uint32", (plan.stripe_bytes[number] // plan.page_bytes,),
                [PartitionRange(step.name, len(tiers) + number, len(tiers) + number + 1, part) for part in parts],
            )
            for number, name in enumerate(named)
        ]  # fmt: skip
        make_files(job, writer, join_step("sums.files", writer.path, sums, most // plan.page_bytes * SUM_BYTES))
    for record in made:
        if record["index"] >= len(tiers):
            file = OutputFile(**record["file"])
            stripes.take(record["index"] - len(tiers), file.at, bytes.fromhex(file.blocks))
