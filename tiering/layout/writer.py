"""Write a layout: the tiers' files, the SSD images, and the reordered graph they belong to."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.document import document_problems, open_directory, parse_document, read_document
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import External
from tiering.artifacts.storage import require_space
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import FormatError, MissingError
from tiering.formats.feature_rows import checked_tables, table_states
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout, TypeLayout, page_sums, peer_rows, tier_file
from tiering.formats.order import Order
from tiering.formats.refusals import graph_errors
from tiering.formats.scores import Scores
from tiering.layout.images import ImageSet, drop_images, resolve_directories
from tiering.layout.rows import write_range, write_ssd
from tiering.layout.split import order_of, parse_request, split_gpu
from tiering.layout.tiers import expected_memory, plan_layout
from tiering.memory import Budget, parse_memory
from tiering.placement import parse_capacities, parse_page
from tiering.progress import progress
from tiering.ranked_rows import RankedRows
from tiering.units import parse_threads
from tiering.version import __version__

SCRATCH = "scratch"
"""Directory in the unfinished layout for rows on their way into rank order."""


def write_layout(
    graph: Graph,
    out: str | os.PathLike[str],
    *,
    gpu: str | int | None = None,
    peer: str | None = None,
    cpu: str | int | None = None,
    ssd: Sequence[str | os.PathLike[str]] = (),
    page: str | int = "4KiB",
    split: str | None = None,
    scores: Scores | None = None,
    gpu_times: str | os.PathLike[str] | None = None,
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
    gpu, cpu
        Size such as ``8GiB``, ``25%`` of all feature bytes, or ``auto`` for everything left. Without `ssd`, `cpu` is
        ``auto`` unless given; with `ssd` it is 0.
    peer
        ``PxSIZE``: rows interleaved over P GPUs, SIZE on each.
    ssd
        Directories, one per SSD; created if missing. The rest of the rows goes there, striped page by page.
    page
        Unit of SSD I/O, a power of two.
    split
        How `gpu` is divided between feature rows and adjacency lists (the first columns of each relation, without
        edge data): ``none``, all of it for rows; the share that lists get, such as ``30%``; ``auto``, what saves most
        time (`tiering.placement.plan_split`). With it, `gpu` may be as large as all rows and lists.
    scores
        With `split`: those that the graph was ordered by, of a method that knows the sampler.
    gpu_times
        With `split`: file of measured access times (`tiering.placement.read_access_times`); assumed ones without.
    threads
        Worker threads; the result is the same bytes for any number.
    memory
        What to stay within, such as ``8GiB``, ``50%`` or ``auto``; the result is the same bytes for any.
    force
        Replace an existing `out`, with its SSD images.

    Raises
    ------
    InputError
        If the graph is not reordered, sizes do not fit (see `plan_tiers`), two `ssd` are one directory, a feature
        file changed since the import, or the split lacks what it needs (see `tiering.layout.split`).
    StorageError
        If a disk is full: all space is reserved before the first row is read.
    BudgetError
        If less than eight chunks of 32 MiB are left.

    Notes
    -----
    Cost: each row is read once and written once where the table fits the free memory as page cache, else as
    `tiering.ranked_rows` says. A run that was killed or found the disk full goes on from the last finished block of
    64 MiB of each file; on an error of the input nothing remains.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    order = order_of(graph)
    options = layout_options(gpu, peer, cpu, ssd, page, split, gpu_times)
    page_bytes, folders = options["page_bytes"], [Path(folder) for folder in options["ssd"]]
    capacities = parse_capacities(gpu, peer, cpu, ssd=bool(folders))
    tables, request = checked_tables(graph), parse_request(split, gpu_times)
    divided, capacities = split_gpu(
        graph, tables, capacities, request, scores,
        budget.expecting(expected_memory(tables, capacities, len(folders))), len(folders),
    )  # fmt: skip
    tiers = plan_layout(graph.path, order.score, tables, capacities, page_bytes, len(folders))
    body = {**tiers.to_body(), **({} if divided is None else divided.to_body())}
    recorded = {"graph": graph.digest, **({} if scores is None else {"scores": scores.digest})}
    provenance = {"stage": "layout", "options": options, "inputs": recorded}
    # The graph's digest covers the content of the feature files at the import.
    identity = {**provenance, "inputs": {**recorded, **table_states(tables)}, "package": __version__}
    with ArtifactWriter(out, "layout", force=force, identity=identity, reads=(graph, scores)) as writer:
        journal = writer.required_journal()
        shutil.rmtree(writer.path / SCRATCH, ignore_errors=True)
        plan = _plan(graph, body, writer.out)
        folders = folders[: tiers.num_images]
        if not journal.done:  # else the space is reserved
            require_space(tiers.places(writer.path, folders))
        with (
            graph_errors(graph),
            ImageSet(folders, writer.out, plan, tiers.pages, page_bytes, journal) as images,
        ):

            def ranked(name: str) -> RankedRows:
                left = tiers.reading_budget(budget).without(-images.held)  # their pieces are there already
                return _ranked(writer, tables[name], order, left, workers, name)

            _write_rows(writer, images, tiers.entries, body, tiers.images(), ranked)
            writer.adopt(graph, "graph")
            writer.external.update(images.publish())
        kept = [each.path for each in writer.external.values()]
        drop_images(_images_of(writer.out), writer.out.name, kept, journal)
        writer.commit(body, provenance)
    return Layout.open(writer.out)


def layout_options(
    gpu: str | int | None = None,
    peer: str | None = None,
    cpu: str | int | None = None,
    ssd: Sequence[str | os.PathLike[str]] = (),
    page: str | int = "4KiB",
    split: str | None = None,
    gpu_times: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """The options of a layout as they are recorded; ``split`` and ``gpu_times`` only where there is a split."""
    folders = [str(folder) for folder in resolve_directories(ssd)]
    request = parse_request(split, gpu_times)
    sizes = {"gpu": gpu, "peer": peer, "cpu": cpu, "ssd": folders, "page_bytes": parse_page(page)}
    return {**sizes, **({} if request is None else request.options())}


def _plan(graph: Graph, body: dict[str, Any], out: Path) -> str:
    """What a layout is to be, and where, in short. The graph's digest stands for order, features and their files."""
    identity = json.dumps({"graph": graph.digest, "body": body, "out": str(out)}, sort_keys=True)
    return digest_bytes(identity.encode()).rpartition(":")[2][:12]


def _images_of(out: Path) -> list[External]:
    """Images of the layout that is about to be replaced, damaged or not; none if there is no readable manifest."""
    try:
        held = open_directory(out)
        document, data = read_document(held)
    except (FormatError, MissingError):  # what the disk refuses now may be read by the next run
        return []
    if document_problems(document, "layout"):
        return []
    return list(parse_document(held, document, data).external.values())


def _write_rows(
    writer: ArtifactWriter,
    images: ImageSet,
    entries: dict[str, TypeLayout],
    body: dict[str, Any],
    image_sizes: Sequence[int],
    ranked: Callable[[str], RankedRows],
) -> None:
    """Reserve every file of the memory tiers, then move all rows."""
    total = sum(entry.num_nodes * entry.row_bytes for entry in entries.values())
    with ExitStack() as stack:
        files = {
            (name, tier): [stack.enter_context(file) for file in _tier_files(writer, entry, tier, body["num_peers"])]
            for name, entry in entries.items()
            for tier in ("gpu", "peer", "cpu")
        }
        images.sums = [
            stack.enter_context(writer.file(page_sums(image), "uint32", (nbytes // body["page_bytes"],)))
            for image, nbytes in enumerate(image_sizes)
        ]
        with progress(total, "layout", "B", scale=True) as bar:
            for name, entry in entries.items():
                with ranked(name) as source:
                    for tier in ("gpu", "peer", "cpu"):
                        if files[name, tier]:
                            write_range(source, *entry.ranges[tier], files[name, tier], bar)
                    write_ssd(source, entry, body["page_bytes"], images, bar)


def _ranked(
    writer: ArtifactWriter, table: FeatureTable, order: Order, budget: Budget, threads: int, name: str
) -> RankedRows:
    """Rows of a node type by rank."""
    maps = (None, None) if table.row_order == "rank" else (order.new_to_old(name), order.old_to_new(name))
    return RankedRows(table, *maps, budget=budget, scratch=writer.path / SCRATCH, threads=threads)


def _tier_files(writer: ArtifactWriter, entry: TypeLayout, tier: str, num_peers: int) -> Iterator[FileWriter]:
    """Begin the files of one memory tier: one, or one per peer that holds rows; none for an empty tier."""
    parts = num_peers if tier == "peer" else 1
    for part in range(parts):
        rows = peer_rows(entry.rows(tier), part, parts)
        if rows:
            yield writer.file(tier_file(entry.node_type, tier, part, parts), entry.dtype, (rows, entry.dim))
