"""The files of a layout, written by the tasks of a carrier (`tiering.reorder.rows.tasks`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph
from tiering.formats.layout import SUM_BYTES, page_sums
from tiering.layout.plan import LayoutPlan
from tiering.layout.stripe_files import StripeFiles
from tiering.reorder.rows.tasks import TablePlan, locate_rows, make_row_files, write_step
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files, missing_files, place_files
from tiering.run.job import Job
from tiering.run.step import OutputFile


def write_rows(job: Job, writer: ArtifactWriter, stripes: StripeFiles, plan: LayoutPlan, graph: Graph) -> None:
    """Write the files of all tiers and the stripe files by tasks."""
    tables = [
        TablePlan.of(
            f"rows-{number}",
            entry,
            locate_rows(graph, name, plan.tables[name]),
            str(graph.path / "order"),
            job.grid,
            plan.page_bytes,
            plan.num_peers,
            len(plan.folders),
        )
        for number, (name, entry) in enumerate(plan.entries.items())
        if entry.num_nodes
    ]
    tiers = [file for number, table in enumerate(tables) for file in table.tier_files(number, str(writer.path))]
    pages = [_stripe(number, nbytes, stripes, tables) for number, nbytes in enumerate(plan.stripe_bytes)]
    cuts = [table.cut_step() for table in tables]
    step = write_step("rows.files", tables, cuts, [*tiers, *pages])
    named = [page_sums(number) for number in range(len(pages))]
    summed = writer.has(*named)
    job.expect(len(cuts) + 1 + bool(named))
    pending = bool(stripes.missing()) or not summed
    made = make_row_files(job, cuts, step, [i for i in missing_files(writer, step) if i < len(tiers) or pending])
    place_files(writer, [one for one in made if one["index"] < len(tiers)])
    if named and not summed:
        parts = range(sum(table.striping["ssd"].num_ranges for table in tables if "ssd" in table.striping))
        sums = [
            JoinedFile(
                name, "uint32", (plan.stripe_bytes[number] // plan.page_bytes,),
                [PartitionRange(step.name, len(tiers) + number, len(tiers) + number + 1, part) for part in parts],
            )
            for number, name in enumerate(named)
        ]  # fmt: skip
        largest = max(table.most("ssd") for table in tables) // plan.page_bytes * SUM_BYTES
        make_files(job, writer, join_step("sums.files", writer.path, sums, largest))
    for record in made:
        if record["index"] >= len(tiers):
            file = OutputFile.from_json(record["file"])
            stripes.take(file.name, file.at, bytes.fromhex(file.blocks))


def _stripe(number: int, nbytes: int, stripes: StripeFiles, tables: Sequence[TablePlan]) -> dict[str, Any]:
    """Return the description of a stripe file: pages of each table that has rows on SSDs."""
    return {
        "name": stripes.name(number), "folder": str(stripes.folder(number)), "dtype": "uint8", "shape": [nbytes],
        "tables": [index for index, table in enumerate(tables) if "ssd" in table.striping], "tier": "ssd",
        "number": number, "bytes": nbytes, "most": max((table.most("ssd") for table in tables), default=0),
    }  # fmt: skip
