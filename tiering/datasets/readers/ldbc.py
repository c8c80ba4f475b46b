"""Format ``ldbc``: the social network of LDBC SNB as its generators write it, CSV separated by ``|``, plain or gzip.

``static/ENTITY/part-*.csv`` and ``dynamic/ENTITY/part-*.csv`` of the Spark generator, modes raw and bi (of which the
initial snapshot is read), or ``person_0_0.csv``, ``person_knows_person_0_0.csv``... of the Hadoop generator; with a
header, or without in the layouts that LDBC specifies. Where keys are merged, edges are columns of the tables of nodes
(``CreatorPersonId``): an empty field is no edge. Ids are sparse and unique for a type only; they become 0, 1, 2... in
ascending order, and are kept as node array ``original_id``.

Cost: one pass over the text. Temporary disk: 16 bytes for each id, 16 for each edge, and 16 more for edges in columns
until all ids are known. Memory: a block of text, and a share of the budget for sorting ids.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.regular import entries
from tiering.datasets.dense_ids import Ids, SparseIds, places_of
from tiering.datasets.nodes import agreed_count
from tiering.datasets.reader import Reader, Reading, Sign
from tiering.datasets.readers.ldbc_schema import (
    FOREIGN_KEYS,
    TABLES,
    ForeignKey,
    edge_layouts,
    folder_of,
    node_layouts,
)
from tiering.datasets.readers.ldbc_tables import PARTS, Table, find_roots, find_tables, read_columns
from tiering.datasets.scratch import GrowingFile, chunks
from tiering.errors import InputError, MissingError
from tiering.formats.protocols import Dataset, EdgeData, NodeData

_OWN = "id"
_ENDS = ("source id", "destination id")
_ROOT = "static/ENTITY/part-*.csv and dynamic/ENTITY/part-*.csv, or static/place_0_0.csv and dynamic/person_0_0.csv"


def _open_ldbc(path: Path, reading: Reading) -> Dataset:
    roots = find_roots(path)
    if not roots:
        raise MissingError(f"{path}: expected {_ROOT}, found no table of persons there or below; check the path")
    if len(roots) > 1:
        raise InputError(f"{path}: expected one dataset, found {', '.join(map(str, roots[:4]))}; give the path of one")
    return _Import(roots[0], reading).dataset(path.name)


READER = Reader(
    _open_ldbc,
    takes=frozenset({"relations", "header"}),
    directory=Sign("static/ and dynamic/ with tables of persons... (ldbc)", lambda path: bool(find_roots(path))),
)


@dataclass
class _KeyColumn:
    """The ends of edges from a column of a node table, as the table has them."""

    key: ForeignKey
    own: GrowingFile
    other: GrowingFile
    starts: list[int] = field(default_factory=list)
    """First edge of each file."""


class _Import:
    """One import: tables of nodes first, so that all ids are known when edges are numbered."""

    def __init__(self, root: Path, reading: Reading) -> None:
        self._root, self._reading, self._scratch = root, reading, reading.scratch
        self._tables = find_tables(root)
        self._relations = _chosen(reading.options.relations, root)
        self._types = sorted({t for one in self._relations for t in (one[0], one[2])})
        self._ids: dict[str, Ids] = {}
        self._keys: list[_KeyColumn] = []

    def dataset(self, name: str) -> Dataset:
        reading = self._reading
        for node_type in self._types:
            self._read_nodes(node_type)
        made = {column.key.relation: self._number_keys(column) for column in self._keys}
        for relation in self._relations:
            if relation not in made:
                made[relation] = self._read_edges(relation)
        edges = [made[relation] for relation in self._relations]
        reading.notes["node_types"] = self._types
        reading.notes["ldbc"] = {
            "root": str(self._root),
            "merged_keys": [TABLES[column.key.relation] for column in self._keys],
        }
        nodes = {t: self._nodes(t, edges) for t in self._types}
        self._ignored()
        return reading.dataset(name, nodes, edges)

    def _table(self, table: Table | None, name: str) -> Table:
        """A table with files, which are recorded as used."""
        if table is None:
            raise MissingError(
                f"{self._root / folder_of(name)}: expected the table {name}, found nothing; get it, or say with "
                "--relations which relations to import"
            )
        if not table.files:
            raise MissingError(
                f"{table.where}: expected part-*.csv or part-*.csv.gz, found none; the generator writes CSV with "
                "--format csv; unpack other archives first"
            )
        for file in table.files:
            self._reading.used(file)
        self._reading.known.add(Path(table.where))
        return table

    def _read_nodes(self, node_type: str) -> None:
        """The ids of a type, and the edges in columns of its table."""
        table = self._table(self._tables.nodes.get(node_type), node_type)
        ids = SparseIds(self._scratch)
        columns = [
            _KeyColumn(key, self._scratch.growing_file(np.int64), self._scratch.growing_file(np.int64))
            for key in FOREIGN_KEYS[node_type]
            if key.relation in self._relations and key.relation not in self._tables.edges
        ]
        named = {column.key.columns[0]: column for column in columns}
        for file in table.files:
            for column in columns:
                column.starts.append(column.own.count)

            def choose(fields: Sequence[str], header: bool, file: Path = file) -> dict[str, int]:
                return self._node_columns(file, node_type, columns, fields, header)

            header = self._reading.options.header
            for block in read_columns(file, node_type, choose, header, frozenset(named)):
                own = block[_OWN]
                ids.append(own)
                for name, column in named.items():
                    present = block.present.get(name)
                    column.own.append(own if present is None else own[present])
                    column.other.append(block[name] if present is None else block[name][present])
        self._ids[node_type] = ids.finish(table.where)
        if not self._ids[node_type].size:
            raise InputError(f"{table.where}: expected nodes, found none; was a download interrupted?")
        self._keys += columns

    def _node_columns(
        self, file: Path, node_type: str, columns: list[_KeyColumn], fields: Sequence[str], header: bool
    ) -> dict[str, int]:
        """Where the id and the keys wanted are."""
        names = fields if header else self._without_header(file, node_layouts(node_type), len(fields))
        found = [name.strip().lower() for name in names]
        places = {_OWN: _place(found, (_OWN,))}
        places |= {column.key.columns[0]: _place(found, column.key.columns) for column in columns}
        for column in columns:
            if places[column.key.columns[0]] < 0:
                raise InputError(
                    f"{file}: expected a column {column.key.columns[0]}, or the table "
                    f"{folder_of(column.key.table)}, found columns {', '.join(names)[:300]}; get the table, or say "
                    "with --relations which relations to import"
                )
        if places[_OWN] < 0:
            raise InputError(f"{file}: expected a column id, found columns {', '.join(names)[:300]}; correct the file")
        return places

    def _without_header(self, file: Path, layouts: list[tuple[str, ...]], width: int) -> tuple[str, ...]:
        """What the columns of a file without header are, by their number."""
        if self._tables.exploded:
            raise InputError(
                f"{file}: expected a header, because attributes have tables of their own here; write the dataset with "
                "headers, or without --explode-attrs"
            )
        for names in layouts:
            if len(names) == width:
                return names
        known = " or ".join(str(len(names)) for names in layouts)
        raise InputError(
            f"{file}: expected {known} columns where there is no header, found {width}; write the dataset with headers"
        )

    def _number_keys(self, column: _KeyColumn) -> EdgeData:
        """Edges in a column of a node table, by the numbers of their ends."""
        key = column.key
        owner, other = key.relation[key.owner_end], key.relation[2 - key.owner_end]
        files = self._tables.nodes[owner].files
        given = column.own.finish(), column.other.finish()
        made = self._scratch.growing_file(np.int64), self._scratch.growing_file(np.int64)
        for part in chunks(given[0].size):
            made[0].append(places_of(self._ids[owner], given[0][part]))
            places = places_of(self._ids[other], given[1][part])
            if (wrong := _first_lacking(places)) is not None:
                file = files[bisect.bisect_right(column.starts, part.start + wrong) - 1]
                self._refuse(file, key.columns[0], other, int(given[1][part.start + wrong]))
            made[1].append(places)
        src, dst = (file.finish() for file in (made if key.owner_end == 0 else made[::-1]))
        return EdgeData(key.relation, src, dst, self._tables.nodes[owner].where)

    def _read_edges(self, relation: Relation) -> EdgeData:
        """Edges that have a table."""
        name = TABLES[relation]
        table = self._table(self._tables.edges.get(relation), name)
        columns = [self._scratch.growing_file(np.int64) for _ in _ENDS]
        for file in table.files:
            shown_as: list[str] = []

            def choose(
                fields: Sequence[str], header: bool, file: Path = file, shown_as: list[str] = shown_as
            ) -> dict[str, int]:
                places = self._edge_columns(file, relation, fields, header)
                shown_as += [fields[place] if header else end for end, place in places.items()]
                return places

            for block in read_columns(file, name, choose, self._reading.options.header, frozenset()):
                for k, node_type in enumerate((relation[0], relation[2])):
                    places = places_of(self._ids[node_type], block[_ENDS[k]])
                    if (wrong := _first_lacking(places)) is not None:
                        self._refuse(file, shown_as[k], node_type, int(block[_ENDS[k]][wrong]))
                    columns[k].append(places)
        src, dst = (column.finish() for column in columns)
        return EdgeData(relation, src, dst, table.where)

    def _edge_columns(self, file: Path, relation: Relation, fields: Sequence[str], header: bool) -> dict[str, int]:
        """Where the ends are: the two columns whose names end in id, the first of which names the source's type."""
        if not header:
            names = self._without_header(file, edge_layouts(relation), len(fields))
            return {end: names.index(end) for end in _ENDS}
        found = [name.strip().lower() for name in fields]
        ends = [place for place, name in enumerate(found) if name.endswith("id")]
        if len(ends) != 2 or not found[ends[0]].startswith(relation[0].lower()):
            raise InputError(
                f"{file}: expected two columns of ids, of {relation[0]} and {relation[2]} in this order, found columns "
                f"{', '.join(fields)[:300]}; correct the file"
            )
        return dict(zip(_ENDS, ends, strict=True))

    def _refuse(self, file: Path, column: str, node_type: str, value: int) -> None:
        raise InputError(
            f"{file}: column {column}: expected the id of a {node_type}, found {value}, which "
            f"{self._tables.nodes[node_type].where} does not have; get both tables again, from one run of the generator"
        )

    def _nodes(self, node_type: str, edges: list[EdgeData]) -> NodeData:
        """The nodes of a type; a number that differs from the published one is told."""
        reading, ids = self._reading, self._ids[node_type]
        asked = reading.options.num_nodes.get(node_type)
        counts = [] if asked is None else [("--num-nodes", asked)]
        table = self._tables.nodes[node_type]
        count = agreed_count(node_type, [*counts, (table.where, int(ids.size))], edges, reading)
        published = None if reading.published is None else reading.published.nodes.get(node_type)
        if published not in (None, count):
            reading.warn(
                f"{table.where}: has {count} nodes, {published} are published for it: another version or mode of the "
                "generator wrote it, or parts are missing"
            )
        return NodeData(count, extra={"original_id": ids})

    def _ignored(self) -> None:
        """Record what lies beside the tables that were read."""
        others = [entry for entry in entries(self._root) if entry.name not in PARTS]
        tables = [entry for part in PARTS for entry in entries(self._root / part)]
        self._reading.ignored(entry for entry in [*others, *tables] if not entry.name.startswith((".", "_")))


def _chosen(wanted: tuple[str, ...], root: Path) -> list[Relation]:
    """The relations asked for, all if none is."""
    known = {relation_key(relation): relation for relation in sorted(TABLES)}
    names = [name.replace("__", ":") for name in wanted]
    for name in names:
        if name not in known:
            raise MissingError(f"{root}: no relation {name}; there are: {', '.join(known)}")
    return [relation for key, relation in known.items() if not names or key in names]


def _place(found: list[str], names: tuple[str, ...]) -> int:
    """Position of the column that has one of the names; -1 if none does."""
    return next((found.index(name.lower()) for name in names if name.lower() in found), -1)


def _first_lacking(places: npt.NDArray[np.int64]) -> int | None:
    """The first value that is no node's id."""
    if not places.size or int(places.min()) >= 0:
        return None
    return int(np.argmax(places < 0))
