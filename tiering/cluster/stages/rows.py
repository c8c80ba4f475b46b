"""Feature rows from the order of their ids to the files of tiers, in tasks.

``cut``     the rows of a chunk of a table by range of ranks; not of a table that lies in rank order already.
``merge``   the rows of a range of ranks, as they go to each file of their tier: those of a peer, pages of an image.
``files``   a file of a tier, or an image, each; ranges follow each other in it.

Ranges do not cross tiers, and begin where a page begins. Memory: a chunk or range takes `COPIES` times its bytes: as it
comes, in order, and as it goes; and a block of 64 MiB at both ends of what is read, which is compared with checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.manifest import id_bytes, relation_key
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.files import JoinedFile, Parts, join_stage, place_files
from tiering.cluster.grid import Grid, even_bounds
from tiering.cluster.inputs import StoredArtifact
from tiering.cluster.running import Job
from tiering.cluster.tasks import OutputFile, Stage, TaskContext, Traffic
from tiering.formats.features import EDGE_FEATURES, FeatureTable
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.layout import MEMORY_TIERS, SUM_BYTES, TIERS, SsdRows, TypeLayout, page_sums, tier_file
from tiering.formats.shape import SizedGraph
from tiering.layout.images import ImageSet
from tiering.layout.plan import LayoutPlan
from tiering.layout.writer import as_pages

_HERE = "tiering.cluster.stages.rows"
COPIES = 4
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RankRange:
    """Ranks [begin, end) of a tier of a table."""

    tier: str
    begin: int
    end: int
    first: int
    """Rank that the tier begins with."""
    page: int = 0
    """Logical page that they begin with, on SSDs."""


def write_rows(
    job: Job, writer: ArtifactWriter, images: ImageSet, plan: LayoutPlan, graph: SizedGraph, grid: Grid
) -> None:
    """Have the files of all tiers and the images made, and put them in their place."""
    made = [
        _Table(f"rows-{number}", entry, _source(graph, name, plan.tables[name]), plan, grid, str(graph.path / "order"))
        for number, (name, entry) in enumerate(plan.entries.items())
        if entry.num_nodes
    ]
    for table in made:
        table.run(job)
    tiers = [file for table in made for file in table.tier_files()]
    largest = max((table.range_bytes for table in made), default=0)
    if tiers:
        place_files(writer, job.run(join_stage("tiers.files", writer.path, tiers, largest)))
    if not plan.folders:
        return
    count, sums = len(plan.folders), []
    for image, nbytes in enumerate(plan.images):
        parts = [part for table in made for part in table.image_parts(image)]
        shape = (nbytes // plan.page_bytes,)
        sums.append(JoinedFile(page_sums(image), "uint32", shape, [replace(p, part=p.part + count) for p in parts]))
    place_files(writer, job.run(join_stage("sums.files", writer.path, sums, largest)))
    pages = [
        JoinedFile(
            images.name(image), "uint8", (nbytes,), [p for table in made for p in table.image_parts(image)],
            folder=str(images.folder(image)),
        )
        for image, nbytes in enumerate(plan.images)
        if image in images.missing()
    ]  # fmt: skip
    if pages:
        for manifest in job.run(join_stage("images.files", writer.path, pages, largest)):
            file = OutputFile.from_json(manifest["file"])
            images.take(file.name, file.at, bytes.fromhex(file.blocks))


def task_bytes(entries: Iterable[TypeLayout]) -> int:
    """Bytes of a task that had all rows."""
    return COPIES * sum(entry.num_nodes * entry.row_bytes for entry in entries)


def in_one_tier(node_type: str, table: FeatureTable) -> TypeLayout:
    """A table whose rows all go to one file."""
    ranges = {tier: (0, table.rows if tier == "cpu" else 0) for tier in TIERS}
    return TypeLayout(node_type, table.rows, table.dim, table.dtype, ranges, SsdRows.plan(0, 0, table.row_bytes, 4096))


def write_tables(
    job: Job, writer: ArtifactWriter, graph: SizedGraph, tables: Mapping[str, FeatureTable], order: str, grid: Grid
) -> None:
    """Have feature tables made in rank order, ``tables/TYPE``, and put in their place; `order`: the artifact."""
    plan = LayoutPlan(tables, {name: in_one_tier(name, table) for name, table in tables.items()}, 4096, 0, ())
    files, largest = [], 0
    for number, (name, entry) in enumerate(plan.entries.items()):
        table = _Table(f"table-{number}", entry, _source(graph, name, tables[name]), plan, grid, order)
        table.run(job)
        largest = max(largest, table.range_bytes)
        parts = [part for file in table.tier_files() for part in file.parts]
        files.append(JoinedFile(f"tables/{name}", entry.dtype, (entry.num_nodes, entry.dim), parts))
    place_files(writer, job.run(join_stage("tables.files", writer.path, files, largest)))


@dataclass(frozen=True)
class _Source:
    """Where the rows of a table lie: a file of an artifact, or one that it refers to."""

    artifact: str
    name: str
    offset: int
    in_order: bool
    """By rank."""


def _source(graph: SizedGraph, table: str, rows: FeatureTable) -> _Source:
    if not isinstance(graph, Graph):
        return _Source(str(graph.path), table, rows.offset, rows.row_order == "rank")
    of_edges = {relation_key(relation): relation for relation in graph.relations}
    if table in of_edges and ":" in table:
        return _Source(str(graph.path), f"{relation_folder(of_edges[table])}/{EDGE_FEATURES}", 0, True)
    features: Any = graph.features
    entry = features.manifest.body["tables"][table]
    name = entry.get("file") or entry["external"]
    return _Source(str(features.path), name, entry["offset"], entry["row_order"] == "rank")


class _Table:
    """The stages of the rows of one table."""

    def __init__(self, name: str, entry: TypeLayout, source: _Source, plan: LayoutPlan, grid: Grid, order: str) -> None:
        self.name, self.entry, self._source, self._plan, self._order = name, entry, source, plan, order
        nbytes = entry.num_nodes * entry.row_bytes
        self._chunks = grid.parts(nbytes * COPIES)
        self.ranges = list(self._cut_ranges(grid))
        self.range_bytes = max((r.end - r.begin for r in self.ranges), default=0) * entry.row_bytes

    def _cut_ranges(self, grid: Grid) -> Sequence[RankRange]:
        """Ranges of ranks, in their order."""
        ranges, entry, page_bytes = [], self.entry, self._plan.page_bytes
        for tier, (first, end) in entry.ranges.items():
            rows, multiple, pages = end - first, 1, 0
            if not rows:
                continue
            if tier == "ssd":
                place = entry.ssd_rows
                multiple = place.rows_per_page or page_bytes // gcd(page_bytes, place.stride)
                pages = 1 if place.rows_per_page else multiple * place.stride // page_bytes
            groups = -(-rows // multiple)
            parts = min(groups, grid.parts(rows * entry.row_bytes * COPIES))
            for low, high in pairwise(even_bounds(groups, parts)):
                page = entry.ssd_rows.first_page + low * pages
                ranges.append(RankRange(tier, first + low * multiple, min(end, first + high * multiple), first, page))
        return ranges

    def run(self, job: Job) -> None:
        entry, plan = self.entry, self._plan
        params: dict[str, Any] = {
            "source": vars(self._source), "order": self._order, "node_type": entry.node_type, "rows": entry.num_nodes,
            "row_bytes": entry.row_bytes, "chunks": self._chunks, "ranges": [vars(one) for one in self.ranges],
            "peers": plan.num_peers, "images": len(plan.folders), "page_bytes": plan.page_bytes,
            "stride": entry.ssd_rows.stride, "rows_per_page": entry.ssd_rows.rows_per_page,
        }  # fmt: skip
        chunk = -(-entry.num_nodes // self._chunks) * (entry.row_bytes * COPIES + 24) + 2 * BLOCK_BYTES
        content = entry.num_nodes * entry.row_bytes
        placed = content + entry.num_nodes * id_bytes(entry.num_nodes)
        traffic = Traffic(placed, left=placed, parts=self._chunks * len(self.ranges))
        cut = Stage(f"{self.name}.cut", f"{_HERE}:cut", self._chunks, params, memory=chunk, traffic=traffic)
        if not self._source.in_order:
            job.run(cut)
        need = self.range_bytes * COPIES + 2 * BLOCK_BYTES
        reads = () if self._source.in_order else (cut.name,)
        pages = entry.ssd_rows.num_pages
        left = (entry.num_nodes - entry.rows("ssd")) * entry.row_bytes + pages * (plan.page_bytes + SUM_BYTES)
        traffic = Traffic(content, 0, left) if self._source.in_order else Traffic(0, placed, left)
        params = {**params, "from": cut.name}
        job.run(Stage(f"{self.name}.merge", f"{_HERE}:merge", len(self.ranges), params, reads, need, traffic))
        if reads:
            job.drop(cut)

    def _tasks(self, tier: str) -> tuple[int, int]:
        """The tasks of ``merge`` for a tier: the first, and the one behind the last."""
        own = [number for number, one in enumerate(self.ranges) if one.tier == tier]
        return (own[0], own[-1] + 1) if own else (0, 0)

    def tier_files(self) -> Sequence[JoinedFile]:
        """The files of the memory tiers."""
        files, entry, peers = [], self.entry, self._plan.num_peers
        for tier in MEMORY_TIERS:
            rows = entry.file_rows(tier, peers)
            for part, count in enumerate(rows):
                if count:
                    name = tier_file(entry.node_type, tier, part, len(rows))
                    parts = [Parts(f"{self.name}.merge", *self._tasks(tier), part)]
                    files.append(JoinedFile(name, entry.dtype, (count, entry.dim), parts))
        return files

    def image_parts(self, image: int) -> Sequence[Parts]:
        """What an image has of the table."""
        first, end = self._tasks("ssd")
        return [Parts(f"{self.name}.merge", first, end, image)] if end > first else []


def cut(context: TaskContext) -> None:
    """The rows of a chunk by range of ranks, each with its place in the range."""
    params = context.params
    begin, end = even_bounds(params["rows"], params["chunks"])[context.index : context.index + 2]
    rows = _read(params, begin, end)
    ranks = StoredArtifact(params["order"]).read(f"nodes/{params['node_type']}/old_to_new", begin, end)
    bounds = np.array([one["begin"] for one in params["ranges"]] + [params["rows"]], np.int64)
    order, counts = native.partition(ranks, bounds, context.threads)
    places = ranks[order] - np.repeat(bounds[:-1], counts).astype(ranks.dtype)
    sorted_rows = np.empty_like(rows)
    if rows.size:
        native.gather_rows(rows, order.astype(np.int64), sorted_rows, context.threads)
    context.add_all({"place": places, "row": sorted_rows}, np.cumsum(counts))


def merge(context: TaskContext) -> None:
    """The rows of a range of ranks as each file of the tier has them; on SSDs pages, then their checksums."""
    params, own = context.params, RankRange(**context.params["ranges"][context.index])
    if params["source"]["in_order"]:
        rows = _read(params, own.begin, own.end)
    else:
        rows = np.empty((own.end - own.begin, params["row_bytes"]), np.uint8)
        for chunk in range(params["chunks"]):
            part = context.part(params["from"], chunk, context.index)
            if part["row"].size:
                native.scatter_rows(part["row"], part["place"], 0, rows, context.threads)
    if own.tier != "ssd":
        files = params["peers"] if own.tier == "peer" else 1
        for peer in range(files):
            context.add(rows=rows[(peer - (own.begin - own.first)) % files :: files])
        return
    pages = as_pages(rows, params["stride"], params["rows_per_page"], params["page_bytes"])
    count = params["images"]
    images = [np.ascontiguousarray(pages[(image - own.page) % count :: count]) for image in range(count)]
    for image in images:
        context.add(pages=image)
    for image in images:
        sums = native.page_hashes(image.reshape(-1), params["page_bytes"]) if image.size else np.empty(0, np.uint32)
        context.add(sums=sums.astype("<u4", copy=False))


def _read(params: Mapping[str, Any], begin: int, end: int) -> Bytes:
    """Rows [begin, end) of a table as it lies there, shape (rows, row_bytes)."""
    source, width = _Source(**params["source"]), params["row_bytes"]
    data = StoredArtifact(source.artifact).read_bytes(
        source.name, source.offset + begin * width, source.offset + end * width
    )
    return data.reshape(end - begin, width)
