"""Feature rows from the order of their ids to the files of tiers, in tasks.

``cut``    the rows of a chunk of a table, by range of ranks, and in it by the file that has them.
``files``  a file of a tier, or an image, each, whole: range after range, from all chunks. Of an image, the checksums of
           its pages are left, which become files of their own.

Ranges do not cross tiers, and begin where a page begins. Of a tier of several files (peers, images) a range is as large
as a task has room for what one of them has of it. Memory: a chunk, or what a file has of a range, takes `COPIES` times
its bytes: as it comes, in order, and as it goes; and a block of 64 MiB at both ends of what is read, which is compared
with checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.file_writer import appending_memory
from tiering.artifacts.manifest import relation_key
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.files import JoinedFile, Parts, join_stage, make_files, missing_files, output_file, place_files
from tiering.cluster.grid import Grid, even_bounds
from tiering.cluster.inputs import StoredArtifact
from tiering.cluster.manifests import Manifest
from tiering.cluster.running import Job
from tiering.cluster.stages.dealing import Dealing, deal_rows
from tiering.cluster.tasks import OutputFile, Stage, TaskContext
from tiering.errors import InternalError
from tiering.formats.features import EDGE_FEATURES, FeatureTable
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.layout import SUM_BYTES, TIERS, SsdRows, TypeLayout, page_sums, tier_file
from tiering.formats.shape import SizedGraph
from tiering.layout.images import ImageSet
from tiering.layout.plan import LayoutPlan
from tiering.layout.writer import as_pages

_HERE = "tiering.cluster.stages.rows"
COPIES = 4
_ROW_BYTES = 96
"""Of a row in a task that cuts: its rank, where it goes, and what that is made of."""
Bytes = npt.NDArray[np.uint8]


def write_rows(
    job: Job, writer: ArtifactWriter, images: ImageSet, plan: LayoutPlan, graph: SizedGraph, grid: Grid
) -> None:
    """Have the files of all tiers and the images made, and put them in their place."""
    tables = [
        _Table(f"rows-{number}", entry, _source(graph, name, plan.tables[name]), plan, grid, str(graph.path / "order"))
        for number, (name, entry) in enumerate(plan.entries.items())
        if entry.num_nodes
    ]
    tiers = [file for number, table in enumerate(tables) for file in table.tier_files(number, str(writer.path))]
    pages = [_image(image, nbytes, images, tables) for image, nbytes in enumerate(plan.images)]
    cuts = [table.cut() for table in tables]
    stage = _files_stage("rows.files", tables, cuts, [*tiers, *pages])
    named = [page_sums(image) for image in range(len(pages))]
    summed = writer.has(*named)
    job.expect(len(cuts) + 1 + bool(named))
    pending = bool(images.missing()) or not summed
    made = _make(job, cuts, stage, [i for i in missing_files(writer, stage) if i < len(tiers) or pending])
    place_files(writer, [one for one in made if one["index"] < len(tiers)])
    if named and not summed:
        parts = range(sum(table.dealing["ssd"].num_ranges for table in tables if "ssd" in table.dealing))
        sums = [
            JoinedFile(
                name, "uint32", (plan.images[image] // plan.page_bytes,),
                [Parts(stage.name, len(tiers) + image, len(tiers) + image + 1, part) for part in parts],
            )
            for image, name in enumerate(named)
        ]  # fmt: skip
        largest = max(table.most("ssd") for table in tables) // plan.page_bytes * SUM_BYTES
        make_files(job, writer, join_stage("sums.files", writer.path, sums, largest))
    for manifest in made:
        if manifest["index"] >= len(tiers):
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
    made = [
        _Table(f"table-{number}", entry, _source(graph, name, tables[name]), plan, grid, order)
        for number, (name, entry) in enumerate(plan.entries.items())
    ]
    files = [file for number, table in enumerate(made) for file in table.tier_files(number, str(writer.path))]
    named = [{**file, "name": f"tables/{name}"} for file, name in zip(files, plan.entries, strict=True)]
    cuts = [table.cut() for table in made]
    stage = _files_stage("tables.files", made, cuts, named)
    job.expect(len(cuts) + 1)
    place_files(writer, _make(job, cuts, stage, missing_files(writer, stage)))


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
    """How the rows of one table go to files."""

    def __init__(self, name: str, entry: TypeLayout, source: _Source, plan: LayoutPlan, grid: Grid, order: str) -> None:
        self.name, self.entry, self._source, self._plan, self._order = name, entry, source, plan, order
        self._chunks = grid.parts(entry.num_nodes * entry.row_bytes * COPIES)
        self.dealing = {tier: self._deal(tier, grid) for tier in TIERS if entry.rows(tier)}

    def _deal(self, tier: str, grid: Grid) -> Dealing:
        """How the rows of a tier are cut into ranges, and dealt out over its files."""
        entry, plan = self.entry, self._plan
        nbytes = entry.rows(tier) * entry.row_bytes * COPIES
        if tier == "peer":
            return Dealing.plan(*entry.ranges[tier], grid.parts(nbytes // plan.num_peers), files=plan.num_peers)
        if tier != "ssd":
            return Dealing.plan(*entry.ranges[tier], grid.parts(nbytes))
        place, files = entry.ssd_rows, len(plan.folders)
        parts = grid.parts(nbytes // files)
        if place.rows_per_page:
            return Dealing.plan(*entry.ranges[tier], parts, files, place.rows_per_page, first_page=place.first_page)
        # A row that is larger than a page goes in pieces, none of which crosses the end of one.
        piece = gcd(place.stride, plan.page_bytes)
        pieces = place.stride // piece, plan.page_bytes // piece
        return Dealing.plan(*entry.ranges[tier], parts, files, pieces[1], pieces[0], first_page=place.first_page)

    def width(self, tier: str) -> int:
        """Bytes of what is dealt out of a tier: a row, or a piece of one."""
        per_row = self.dealing[tier].per_row
        return self.entry.row_bytes if per_row == 1 else self.entry.ssd_rows.stride // per_row

    def most(self, tier: str) -> int:
        """Bytes that a file of a tier has of a range, at the most."""
        dealing = self.dealing.get(tier)
        if dealing is None:
            return 0
        pages = self._plan.page_bytes // dealing.per_page if tier == "ssd" else 0
        return dealing.most * max(self.width(tier), pages)

    def params(self) -> dict[str, Any]:
        entry, plan = self.entry, self._plan
        return {
            "name": self.name, "source": vars(self._source), "order": self._order, "node_type": entry.node_type,
            "rows": entry.num_nodes, "row_bytes": entry.row_bytes, "chunks": self._chunks,
            "stride": entry.ssd_rows.stride, "page_bytes": plan.page_bytes,
            "dealing": {tier: {**dealt.to_json(), "width": self.width(tier)} for tier, dealt in self.dealing.items()},
        }  # fmt: skip

    def cut(self) -> Stage:
        """The stage that cuts it."""
        entry = self.entry
        memory = -(-entry.num_nodes // self._chunks) * (entry.row_bytes * COPIES + _ROW_BYTES) + 2 * BLOCK_BYTES
        return Stage(f"{self.name}.cut", f"{_HERE}:cut", self._chunks, self.params(), memory=memory)

    def tier_files(self, number: int, folder: str) -> list[dict[str, Any]]:
        """The files of the memory tiers; `number`: of the table."""
        files, entry = [], self.entry
        for tier in self.dealing:
            rows = entry.file_rows(tier, self._plan.num_peers) if tier != "ssd" else []
            for part, count in enumerate(rows):
                if count:
                    name = tier_file(entry.node_type, tier, part, len(rows))
                    shape = [count, entry.dim]
                    files.append({
                        "name": name, "folder": folder, "dtype": entry.dtype, "shape": shape, "tables": [number],
                        "tier": tier, "number": part, "bytes": count * entry.row_bytes, "most": self.most(tier),
                    })  # fmt: skip
        return files


def _image(image: int, nbytes: int, images: ImageSet, tables: Sequence[_Table]) -> dict[str, Any]:
    """The file of an image: pages of each table that has rows on SSDs."""
    return {
        "name": images.name(image), "folder": str(images.folder(image)), "dtype": "uint8", "shape": [nbytes],
        "tables": [number for number, table in enumerate(tables) if "ssd" in table.dealing], "tier": "ssd",
        "number": image, "bytes": nbytes, "most": max((table.most("ssd") for table in tables), default=0),
    }  # fmt: skip


def _files_stage(
    name: str, tables: Sequence[_Table], cuts: Sequence[Stage], files: Sequence[Mapping[str, Any]]
) -> Stage:
    """The stage that writes files, from what the tables' chunks have left."""
    memory = max(((COPIES - 1) * file["most"] + appending_memory(file["bytes"]) for file in files), default=0)
    params = {"tables": [table.params() for table in tables], "files": list(files)}
    return Stage(name, f"{_HERE}:write", len(files), params, tuple(cut.name for cut in cuts), memory)


def _make(job: Job, cuts: Sequence[Stage], stage: Stage, wanted: Sequence[int]) -> list[Manifest]:
    """Have the files made that are `wanted`."""
    if not wanted:
        return []
    for cut in cuts:
        job.run(cut)
    made = job.run(stage, wanted)
    job.drop(*cuts)
    return made


def cut(context: TaskContext) -> None:
    """The rows of a chunk, each with its place: tier by tier, range by range, file by file."""
    params = context.params
    begin, end = even_bounds(params["rows"], params["chunks"])[context.index : context.index + 2]
    source, width = _Source(**params["source"]), params["row_bytes"]
    first, last = source.offset + begin * width, source.offset + end * width
    rows = StoredArtifact(source.artifact).read_bytes(source.name, first, last).reshape(end - begin, width)
    if source.in_order:
        ranks = np.arange(begin, end)
    else:
        ranks = StoredArtifact(params["order"]).read(f"nodes/{params['node_type']}/old_to_new", begin, end)
    for document in params["dealing"].values():
        deal_rows(context, Dealing.from_json(document), ranks, rows, params["stride"])


def write(context: TaskContext) -> None:
    """A file: what each table has for it, range by range; of pages, also their checksums."""
    own = context.params["files"][context.index]
    with output_file(context, own["folder"], own["name"], own["dtype"], own["shape"]) as file:
        for number in own["tables"]:
            table = context.params["tables"][number]
            dealing, before = _find_dealing(table, own["tier"])
            counts = dealing.counts
            for part in range(own["number"], len(counts), dealing.files):
                rows = _gathered(context, table, before + part, counts[part], own["tier"])
                if own["tier"] == "ssd":
                    stride = table["stride"] if dealing.per_row == 1 else rows.shape[1]
                    rows = as_pages(rows, stride, dealing.per_page, table["page_bytes"])
                    context.add(sums=_hash_pages(rows))
                file.append(rows)


def _gathered(context: TaskContext, table: Mapping[str, Any], part: int, count: int, tier: str) -> Bytes:
    """What all chunks of a table have in a part, in its order."""
    rows = np.empty((count, table["dealing"][tier]["width"]), np.uint8)
    for found in context.parts(f"{table['name']}.cut", ((chunk, part) for chunk in range(table["chunks"]))):
        if found["row"].size:
            native.scatter_rows(found["row"], found["place"], 0, rows, context.threads)
    return rows


def _hash_pages(pages: Bytes) -> npt.NDArray[np.uint32]:
    if pages.size == 0:
        return np.empty(0, "<u4")
    return native.page_hashes(pages.reshape(-1), pages.shape[1]).astype("<u4", copy=False)


def _find_dealing(table: Mapping[str, Any], tier: str) -> tuple[Dealing, int]:
    """How rows of a tier are dealt out, and how many parts a chunk has of the tiers before."""
    before = 0
    for name, document in table["dealing"].items():
        dealing = Dealing.from_json(document)
        if name == tier:
            return dealing, before
        before += dealing.num_parts
    raise InternalError(f"{table['name']}: no rows in tier {tier}")
