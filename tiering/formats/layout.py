"""The layout artifact: which ranks lie in which tier, and where their bytes are. See ``data_specs/layout.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from tiering.artifacts.artifact import Artifact, VerifyReport
from tiering.artifacts.manifest import (
    Manifest,
    Problem,
    Relation,
    array_problems,
    body_problem,
    mismatch,
    relation_key,
    storage_dtype,
)
from tiering.codecs import CODECS, Codec, codec_of
from tiering.errors import MissingError
from tiering.formats.adjacency_prefix import AdjacencyPrefix, prefix_entry_problems, prefix_problems
from tiering.formats.graph import Graph
from tiering.formats.import_record import column_name
from tiering.formats.layout_tables import tier_tables
from tiering.formats.ssd_rows import SsdRows
from tiering.text.description import Part

TIERS = ("gpu", "peer", "cpu", "ssd")  # tiers from hottest to coldest; ranges follow each other in this order
MEMORY_TIERS = ("gpu", "peer", "cpu")  # tiers whose rows lie in files of the layout's directory
EDGE_TABLES = "edge_tables"  # field of the body, and name in ``requires``, of layouts that place features of edges
UNITS = "units"  # name in ``requires`` of layouts whose rows on SSD lie in units
CODEC = "codec"  # field of a table, and name in ``requires`` of layouts with coded tables
SUM_BYTES = 4  # bytes of a page's checksum: the low half of XXH3-64 of its content


@dataclass(frozen=True)
class TypeLayout:
    """Tiers of the rows of one node type, or of the edges of one relation."""

    node_type: str  # the type; of edges the relation's key, ``src:name:dst``
    num_nodes: int  # rows: nodes of the type, or edges of the relation
    dim: int
    dtype: str  # element type of the source; ``bfloat16`` is stored as ``uint16``
    ranges: Mapping[str, tuple[int, int]]
    """Half-open rank range per tier; they cover 0..num_nodes without a gap, in the order of `TIERS`."""
    ssd_rows: SsdRows  # geometry of the ssd tier
    codec: str = ""  # name of the codec of the stored rows; none: as the source has them

    @property
    def of_edges(self) -> bool:
        """Whether the rows are features of edges."""
        return ":" in self.node_type

    @property
    def label(self) -> str:
        """Name of the table for messages."""
        return f"edges of {self.node_type}" if self.of_edges else f"node type {self.node_type!r}"

    @property
    def place(self) -> str:
        """Place of the table in the manifest, for messages."""
        return f"body.{EDGE_TABLES if self.of_edges else 'node_types'}.{self.node_type}"

    @property
    def row_bytes(self) -> int:
        """Stored bytes of one row (and its stride in the memory tiers)."""
        return stored_bytes(self.dim, self.dtype, self.codec)

    @property
    def codec_bytes(self) -> int:
        """Bytes of the codec's parameters."""
        return 8 * self.dim if self.codec and CODECS[self.codec].scaled else 0

    @property
    def stored(self) -> tuple[str, int]:
        """Dtype of the tiers' files, and entries of a row."""
        return ("uint8", self.row_bytes) if self.codec else (self.dtype, self.dim)

    def rows(self, tier: str) -> int:
        """Return the number of rows in a tier."""
        return self.ranges[tier][1] - self.ranges[tier][0]

    def tier_summary(self, tier: str) -> dict[str, Any]:
        """Return ranks (half-open), rows and bytes of a tier, JSON types only."""
        rows = self.rows(tier)
        return {"ranks": list(self.ranges[tier]), "rows": rows, "bytes": rows * self.row_bytes}

    def cut(self, ends: Sequence[int], unit_bytes: int) -> TypeLayout:
        """Return the same rows with other ends of the gpu, peer and cpu tiers, the last at or after its end on disk.

        Rows leave the ssd tier in whole units of the stripe files: an end inside a unit moves to the unit's start.
        """
        begin, last, place = self.ranges["ssd"][0], ends[-1], self.ssd_rows
        if last == self.num_nodes:
            place = replace(place, first_unit=place.first_unit + place.num_units, num_units=0)
        elif last > begin:
            rows, place = place.skip(last - begin, unit_bytes)
            last = begin + rows
        bounds = pairwise([0, *(min(end, last) for end in ends), self.num_nodes])
        return replace(self, ranges=dict(zip(TIERS, bounds, strict=True)), ssd_rows=place)

    def file_rows(self, tier: str, num_peers: int) -> list[int]:
        """Return the number of rows in each file of a memory tier: one file, or the share of each peer."""
        if tier != "peer":
            return [self.rows(tier)]
        return [peer_rows(self.rows(tier), peer, num_peers) for peer in range(num_peers)]

    def to_json(self) -> dict[str, Any]:
        """Form in the manifest."""
        return {
            "num_edges" if self.of_edges else "num_nodes": self.num_nodes,
            "dim": self.dim,
            "dtype": self.dtype,
            "row_bytes": self.row_bytes,
            **{tier: list(self.ranges[tier]) for tier in TIERS},
            "ssd_rows": vars(self.ssd_rows).copy(),
        }


def stored_bytes(dim: int, dtype: str, codec: str) -> int:
    """Return the bytes of a stored row of a table of that dtype; `codec` as `TypeLayout.codec`."""
    return CODECS[codec].stored_bytes(dim) if codec else dim * storage_dtype(dtype).itemsize


def codec_file(node_type: str) -> str:
    """Return the file of the parameters of a table's codec; of edges by the key of their relation."""
    return f"codecs/{node_type.replace(':', '__')}"


def tier_file(node_type: str, tier: str, peer: int = 0, num_peers: int = 1) -> str:
    """Return the path of a memory tier's file inside the artifact; of edges by the key of their relation."""
    name = f"peer-{peer}-of-{num_peers}" if tier == "peer" else tier
    return f"tiers/{node_type.replace(':', '__')}/{name}"


def peer_rows(rows: int, peer: int, num_peers: int) -> int:
    """Return the number of peer rows that GPU `peer` of `num_peers` holds (local row i lies on GPU i mod P)."""
    return max(0, -(-(rows - peer) // num_peers))


def image_name(image: int) -> str:
    """Return the name of SSD image `image` among the manifest's external files."""
    return f"ssd-{image}"


def page_sums(image: int) -> str:
    """Return the file of the checksums of the pages of SSD image `image`."""
    return f"pages/ssd-{image}"


def image_bytes(units: int, image: int, num_images: int, unit_bytes: int) -> int:
    """Return the bytes of an image of `units` striped units: unit u -> image u mod N, offset (u div N) * unit."""
    return peer_rows(units, image, num_images) * unit_bytes


class Layout(Artifact):
    """Tiers on disk, and the reordered graph they belong to; `tables` are node types, then keys of relations."""

    kind = "layout"
    part_types = (Graph.kind,)
    relink = "run `tiering copy --relink LAYOUT --ssd DIR`"
    complete = True  # the tiers hold the rows of all feature tables

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        body = manifest.body
        self.page_bytes: int = body["page_bytes"]  # unit of SSD I/O and of checksums; a power of two
        self.unit_bytes: int = body.get("unit_bytes", self.page_bytes)  # whole pages, which are striped over images
        self.num_images: int = body["num_images"]  # SSD images the units are striped over; 0 without an ssd tier
        self.num_peers: int = body["num_peers"]  # GPUs the peer tier is interleaved over; 0 without one
        self._codecs: dict[str, Codec] = {}
        self.feature_types = self.node_types  # node types whose features are tiered
        self.split: Mapping[str, Any] | None = body.get("split")  # of each GPU's memory; ``None``: all for rows
        self.tables = [*sorted(self.feature_types), *sorted(body.get(EDGE_TABLES, {}))]  # in the order of their units
        self.sizes: tuple[str | int | None, ...] = ()  # of the gpu and cpu tiers of a view; none: as on disk
        self._stored: Layout | None = None  # the layout that this is a view of
        self._entries: Mapping[str, TypeLayout] = {}  # tiers of a view

    @property
    def graph(self) -> Graph:
        """The reordered graph: adjacency, labels, splits and order, in ranks."""
        return cast("Graph", self.part("graph"))

    @property
    def edge_feature_relations(self) -> list[Relation]:
        """Relations whose edges have features in the tiers."""
        keys = self.manifest.body.get(EDGE_TABLES, {})
        return [relation for relation in self.graph.relations if relation_key(relation) in keys]

    def edge_table(self, relation: Relation | str | None = None) -> str:
        """Return the name of the table of a relation's edge features, by default of the only one with some."""
        known = self.edge_feature_relations
        resolved = known[0] if relation is None and len(known) == 1 else self.graph.relation(relation)
        if resolved not in known:
            keys = ", ".join(map(relation_key, known)) or "none"
            raise MissingError(
                f"{self.path}: edges of {relation_key(resolved)} have no tiered features; relations with them: {keys}"
            )
        return relation_key(resolved)

    def type_layout(self, node_type: str) -> TypeLayout:
        """Return the tiers of a node type, or by its key of a relation; `MissingError` if it has no features."""
        if node_type in self._entries:
            return self._entries[node_type]
        entry = self._table_entry(node_type)
        ranges = {tier: (int(entry[tier][0]), int(entry[tier][1])) for tier in TIERS}
        rows = entry["num_edges" if ":" in node_type else "num_nodes"]
        place, codec = SsdRows.from_json(entry["ssd_rows"]), entry.get(CODEC, {}).get("name", "")
        return TypeLayout(node_type, rows, entry["dim"], entry["dtype"], ranges, place, codec)

    @property
    def stored(self) -> Layout:
        """The layout as it lies on disk, which a view has other tiers than."""
        return self._stored or self

    def view(self, entries: Mapping[str, TypeLayout], *sizes: str | int | None) -> Layout:
        """Return a view of this layout's files with the tiers `entries`; see `tiering.layout.cut`."""
        view = copy(self)
        view._stored, view._entries, view.sizes = self, entries, sizes
        return view

    def _table_entry(self, table: str) -> dict[str, Any]:
        entry = {**self.manifest.body["node_types"], **self.manifest.body.get(EDGE_TABLES, {})}.get(table)
        if entry is None:
            known = ", ".join(self.feature_types) or "none"
            raise MissingError(f"{self.path}: node type {table!r} has no tiered features; types with them: {known}")
        return cast("dict[str, Any]", entry)

    def codec(self, table: str) -> Codec | None:
        """Return the codec of a table's rows; ``None`` where they are stored as the source has them.

        `FormatError` if its parameters are damaged. Cost: 8 bytes for each column, once.
        """
        entry, name = self._table_entry(table), codec_file(table)
        if CODEC in entry and table not in self._codecs:
            found = self.manifest.read(name).tobytes() if name in self.manifest.files else b""
            self._codecs[table] = codec_of(entry[CODEC], entry["dim"], found, f"{self.path}: {name}")
        return self._codecs.get(table)

    def adjacency_prefix(self, relation: Relation | str | None = None) -> AdjacencyPrefix:
        """Return the adjacency lists of a relation (see `Graph.relation`) in the gpu tier."""
        key = relation_key(self.graph.relation(relation))
        entry = self.manifest.body.get("adjacency", {}).get(key)
        return AdjacencyPrefix(0, 0, 0) if entry is None else AdjacencyPrefix(**entry)

    def tier_path(self, node_type: str, tier: str, peer: int = 0) -> Path:
        """Return the path that opens the file of a memory tier, as it was when the layout was opened."""
        return Path(self.manifest.place(tier_file(node_type, tier, peer, self.num_peers)))

    def verify_tiers(self, node_type: str) -> None:
        """Read the files of a type's memory tiers, and raise `FormatError` if one differs from what was written."""
        for name in self.manifest.files:
            if name.startswith(tier_file(node_type, "")):
                self.manifest.verifier(name).finalize()

    @property
    def images(self) -> list[Path]:
        """SSD images in stripe order."""
        return [self.manifest.external[image_name(k)].path for k in range(self.num_images)]

    @property
    def image_places(self) -> list[Path]:
        """Paths that open the stripe files, in order, as they were when the layout was opened."""
        return [Path(self.manifest.place(image_name(k))) for k in range(self.num_images)]

    def _body_problems(self) -> list[Problem]:
        if "graph" not in self._nested:
            return [body_problem("parts", "the reordered graph is not listed")]
        if self.page_bytes & (self.page_bytes - 1):
            return [body_problem("body.page_bytes", f"{self.page_bytes} is not a power of two")]
        if self.unit_bytes < self.page_bytes or self.unit_bytes % self.page_bytes:
            return [body_problem("body.unit_bytes", f"{self.unit_bytes} are not whole pages of {self.page_bytes}")]
        problems, units = list[Problem](), 0
        for node_type in self.tables:  # the order in which their units follow each other
            entry = self.type_layout(node_type)
            problems += self._type_problems(entry, units) + _source_problems(entry, self._listed_graph)
            units += entry.ssd_rows.num_units
        coded = any(self.type_layout(name).codec for name in self.tables)
        if coded != (CODEC in self.manifest.requires):
            problems.append(mismatch("requires", f"{CODEC!r} where a table has a codec", list(self.manifest.requires)))
        if units and not self.num_images:
            problems.append(body_problem("body.num_images", "there are ssd rows but no stripe files"))
        if problems:
            return problems
        sound = self.split is not None and not any(self._listed_graph._body_problems())
        prefixes = prefix_problems(self.manifest.body, self._listed_graph) if sound else ()
        return [*self._image_problems(units), *prefixes]

    def _image_problems(self, units: int) -> Iterator[Problem]:
        for image in range(self.num_images):
            name, sums = image_name(image), page_sums(image)
            needed, listed = image_bytes(units, image, self.num_images, self.unit_bytes), self.manifest.files.get(sums)
            if name not in self.manifest.external:
                yield body_problem(f"external.{name}", "the stripe file is not listed")
            elif (external := self.manifest.external[name]).bytes != needed:
                yield mismatch(f"external.{name}", f"{needed} bytes", external.bytes, "size")
            if listed is not None or self.manifest.version >= (1, 2):
                yield from array_problems(self.manifest, sums, (needed // self.page_bytes,), ["uint32"])

    def _structure_problems(self) -> Iterable[Problem]:
        files = [name for name in map(codec_file, self.tables) if name in self.manifest.files]
        problems = [problem for name in files for problem in VerifyReport().compare(self.manifest, name)]
        if self.split is not None and not self._listed_graph.problems("header"):
            problems += prefix_entry_problems(self.manifest.body, self._listed_graph)
        return problems

    @property
    def _listed_graph(self) -> Graph:
        """The graph by its manifest; what is wrong with itself is found where it is checked as a part."""
        return cast("Graph", self._nested["graph"])

    def _type_problems(self, entry: TypeLayout, first_unit: int) -> list[Problem]:
        where, problems = entry.place, list[Problem]()
        listed_bytes = self.manifest.body[EDGE_TABLES if entry.of_edges else "node_types"][entry.node_type]["row_bytes"]
        if listed_bytes != entry.row_bytes:
            expected = f"{entry.row_bytes} ({entry.dim} x {entry.codec or entry.dtype})"
            problems.append(mismatch(f"{where}.row_bytes", expected, listed_bytes))
        last = 0
        for tier in TIERS:
            begin, end = entry.ranges[tier]
            if begin != last or end < begin:
                problems.append(mismatch(f"{where}.{tier}", f"to begin at rank {last}", f"{begin}..{end}"))
            last = end
        if last != entry.num_nodes:
            problems.append(body_problem(where, f"the tiers end at rank {last} of {entry.num_nodes}"))
        if problems:
            return problems
        for tier in MEMORY_TIERS:
            for peer, rows in enumerate(entry.file_rows(tier, self.num_peers)):
                name = tier_file(entry.node_type, tier, peer, self.num_peers)
                listed = self.manifest.files.get(name)
                if rows and listed is None:
                    problems.append(body_problem(f"files.{name}", "the file is not listed"))
                elif listed is not None and listed.bytes != rows * entry.row_bytes:
                    message = f"expected {rows} rows of {entry.row_bytes} bytes, found {listed.bytes} bytes"
                    problems.append(Problem(name, message, "size"))
        if entry.codec_bytes:
            problems += array_problems(self.manifest, codec_file(entry.node_type), (entry.codec_bytes,), ["uint8"])
        if entry.rows("peer") and not self.num_peers:
            problems.append(body_problem(f"{where}.peer", "there are peer rows but num_peers is 0"))
        place = entry.ssd_rows
        if place.stride < entry.row_bytes:
            problems.append(mismatch(f"{where}.ssd_rows.stride", f"at least {entry.row_bytes} bytes", place.stride))
        elif (units := SsdRows.plan(first_unit, entry.rows("ssd"), place.stride, self.unit_bytes)) != place:
            problems.append(mismatch(f"{where}.ssd_rows", units, place))
        elif place.num_units and not place.rows_per_unit and self.num_images > 1:
            problems.append(
                body_problem(
                    f"{where}.ssd_rows",
                    f"rows of {entry.row_bytes} bytes are cut into pages on {self.num_images} stripe files, as in an "
                    "earlier version; make the layout again with `tiering layout`",
                )
            )
        return problems

    def _summarize_content(self) -> dict[str, Any]:
        of_edges = {name: self._table_summary(name) for name in self.tables if ":" in name}
        lists = {
            relation_key(relation): {
                **vars(self.adjacency_prefix(relation)),
                "of_columns": self.graph.num_nodes(relation[2]),
                "of_edges": self.graph.num_edges(relation),
            }
            for relation in self.graph.relations
        }
        return {
            "page_bytes": self.page_bytes,
            "num_peers": self.num_peers,
            "images": [str(path) for path in self.images],
            "node_types": {name: self._table_summary(name) for name in self.feature_types},
            **({EDGE_TABLES: of_edges} if of_edges else {}),
            **({} if self.split is None else {"adjacency": lists, "split": dict(self.split)}),
            "graph": self.graph.summary(),
        }

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        return [*tier_tables(summary), *self.graph._describe_content(summary["graph"])]

    def _table_summary(self, name: str) -> dict[str, Any]:
        entry, codec = self.type_layout(name), self._table_entry(name).get(CODEC)
        if codec is not None:
            worst = column_name(self.graph.manifest.body["changes"], name, codec["loss"]["worst_column"], entry.dim)
            codec = {**codec, "worst_column_name": worst}
        return {
            "rows": entry.num_nodes,
            "row_bytes": entry.row_bytes,
            "dtype": entry.dtype,
            **({CODEC: codec} if codec else {}),
            "tiers": {tier: entry.tier_summary(tier) for tier in TIERS},
            "ssd_stride": entry.ssd_rows.stride,
            "ssd_padding_bytes": entry.ssd_rows.num_units * self.unit_bytes - entry.rows("ssd") * entry.row_bytes,
        }


def _source_problems(entry: TypeLayout, graph: Graph) -> list[Problem]:
    """Return disagreements of a table with the manifest of the graph whose rows it places."""
    if entry.of_edges:
        relation = next((known for known in graph.relations if relation_key(known) == entry.node_type), None)
        if relation is None:
            keys = ", ".join(map(relation_key, graph.relations))
            return [body_problem(entry.place, f"the graph has no such relation, only {keys}")]
        if (shape := graph.edge_feature_shape(relation)) is None:
            return [body_problem(entry.place, "these edges have no features in the graph")]
        expected, actual = (graph.num_edges(relation), *shape), (entry.num_nodes, entry.dim, entry.dtype)
        text = "{} edges, {} x {}"
        return [] if actual == expected else [mismatch(entry.place, text.format(*expected), text.format(*actual))]
    if entry.node_type not in graph.node_types:
        return [body_problem(entry.place, f"the graph has no such type, only {', '.join(graph.node_types)}")]
    fields, features = {"num_nodes": graph.num_nodes(entry.node_type)}, graph.parts().get("features")
    table = None if features is None else features.manifest.body["tables"].get(entry.node_type)
    fields |= {} if table is None else {"dim": table["dim"], "dtype": table["dtype"]}
    return [
        mismatch(f"{entry.place}.{name}", f"{value}, as in the graph", getattr(entry, name))
        for name, value in fields.items()
        if getattr(entry, name) != value
    ]
