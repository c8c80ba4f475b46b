"""Write a layout: the tiers' files, the SSD images, and the reordered graph they belong to."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.storage import require_space
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.feature_rows import checked_tables, table_states
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.refusals import graph_errors
from tiering.formats.scores import Scores
from tiering.layout.images import ImageSet, drop_replaced_images
from tiering.layout.options import LayoutOptions
from tiering.layout.plan import order_of, plan_layout
from tiering.layout.rows import SCRATCH, write_rows
from tiering.memory import Budget, parse_memory
from tiering.units import parse_threads
from tiering.version import __version__


def write_layout(
    graph: Graph,
    out: str | os.PathLike[str],
    options: LayoutOptions,
    *,
    scores: Scores | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> Layout:
    """Place the feature rows of a reordered graph in tiers.

    Parameters
    ----------
    graph
        A reordered graph.
    out
        Directory to create: memory tiers, manifest, and the graph (hard links where possible).
    options
        Sizes of tiers and the rest.
    scores
        With an adjacency cache: those that the graph was ordered by, of a method that knows the sampler.
    threads
        Worker threads; the result is the same bytes for any number.
    memory
        What to stay within, such as ``8GiB``, ``50%`` or ``auto``; the result is the same bytes for any.
    force
        Replace an existing `out`, with its SSD images.

    Raises
    ------
    InputError
        If the graph is not reordered, sizes do not fit (see `plan_tiers`), a feature file changed since the import, or
        the adjacency cache lacks what it needs (see `tiering.layout.adjacency_cache.divide_gpu`).
    StorageError
        If a disk is full: all space is reserved before the first row is read.
    BudgetError
        If less than eight chunks of 32 MiB are left.

    Notes
    -----
    Cost: each row is read once and written once where the table fits the free memory as page cache, else as
    `tiering.reorder.rows` says. A run that was killed or found the disk full goes on from the last finished block of
    64 MiB of each file; on an error of the input nothing remains.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    order, tables = order_of(graph), checked_tables(graph)
    plan = plan_layout(graph, tables, options, scores, budget)
    recorded = {"graph": graph.digest, **({} if scores is None else {"scores": scores.digest})}
    provenance = {"stage": "layout", "options": options.recorded, "inputs": recorded}
    # The graph's digest covers the content of the feature files at the import.
    identity = {**provenance, "inputs": {**recorded, **table_states(tables)}, "package": __version__}
    with ArtifactWriter(out, "layout", force=force, identity=identity, reads=(graph, scores)) as writer:
        journal, body = writer.required_journal(), plan.to_body()
        folders = options.folders[: plan.num_images]
        shutil.rmtree(writer.path / SCRATCH, ignore_errors=True)
        if not journal.done:  # else the space is reserved
            require_space(plan.places(writer.path, folders))
        digest, left = _plan_digest(graph, body, writer.out), budget.without(plan.writing_memory())
        with (
            graph_errors(graph),
            ImageSet(folders, writer.out, digest, plan.pages, plan.page_bytes, journal) as images,
        ):
            write_rows(writer, images, plan, tables, order, left, workers)
            writer.adopt(graph, "graph")
            writer.external.update(images.publish())
        drop_replaced_images(writer.out, [image.path for image in writer.external.values()], journal)
        writer.commit(body, provenance)
    return Layout.open(writer.out)


def _plan_digest(graph: Graph, body: dict[str, Any], out: Path) -> str:
    """What a layout is to be, and where, in short. The graph's digest stands for order, features and their files."""
    identity = json.dumps({"graph": graph.digest, "body": body, "out": str(out)}, sort_keys=True)
    return digest_bytes(identity.encode()).rpartition(":")[2][:12]
