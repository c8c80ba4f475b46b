"""The plan of a layout, which the writer carries out and a dry run prints: tiers, files, memory, disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tiering.artifacts.manifest import id_bytes
from tiering.codecs import AUTO
from tiering.errors import InputError
from tiering.formats.encoded_rows import EncodedTable, codec_name, is_cached
from tiering.formats.features import FeatureTable
from tiering.formats.layout import EDGE_TABLES, MEMORY_TIERS, SUM_BYTES, TIERS, TypeLayout, image_bytes, tier_file
from tiering.formats.ssd_rows import SsdRows
from tiering.layout.adjacency_cache import CacheSplit, divide_gpu
from tiering.layout.inputs import LayoutInput
from tiering.layout.options import LayoutOptions
from tiering.layout.sizes import ChosenSizes, choose_sizes
from tiering.layout.tiers import Capacities, RankedTable, plan_tiers
from tiering.memory import Budget
from tiering.reorder.arrays import source_of
from tiering.reorder.table_reader import disk_read, plan_reading
from tiering.reorder.tasks.rows import tables_task_bytes
from tiering.run.job import Carrier
from tiering.run.move import MoveCost, MovePlan, ReadPlan, least_memory, plan_moves
from tiering.run.places import Lane, Places
from tiering.run.plan import StageEstimate, StepEstimate, base_memory
from tiering.text.units import Size, format_count

_ON_THEIR_WAY = "rows in transit, in pieces,"


@dataclass(frozen=True)
class LayoutPlan:
    """The tiers of all node types with features, then of relations (by key) with edge features.

    `steps` are the steps that planning took. `notes` are for the user; `input_notes` are those on the input and say
    where pinned rows lie.
    """

    tables: Mapping[str, FeatureTable | EncodedTable]  # sources of the rows
    entries: dict[str, TypeLayout]  # ranges of the rows in the tiers
    page_bytes: int
    unit_bytes: int
    num_peers: int
    folders: tuple[Path, ...]  # directories of the stripe files; none if no row lies on SSD
    split: CacheSplit | None = None
    steps: tuple[StepEstimate, ...] = ()
    notes: tuple[str, ...] = ()
    input_notes: tuple[str, ...] = ()
    sizes: ChosenSizes | None = None  # of the tiers, where the machine decides

    @property
    def units(self) -> int:
        """Stripe units of the ssd tier."""
        return sum(entry.ssd_rows.num_units for entry in self.entries.values())

    @property
    def stripe_bytes(self) -> list[int]:
        """Bytes of each stripe file."""
        count = len(self.folders)
        return [image_bytes(self.units, number, count, self.unit_bytes) for number in range(count)]

    @property
    def sum_bytes(self) -> list[int]:
        """Bytes of the checksums of each stripe file's pages."""
        return [nbytes // self.page_bytes * SUM_BYTES for nbytes in self.stripe_bytes]

    def to_body(self) -> dict[str, Any]:
        """Return the fields of a layout's body."""
        of_edges = {name: entry.to_json() for name, entry in self.entries.items() if entry.of_edges}
        return {
            "page_bytes": self.page_bytes,
            "unit_bytes": self.unit_bytes,
            "num_images": len(self.folders),
            "num_peers": self.num_peers,
            "node_types": {name: entry.to_json() for name, entry in self.entries.items() if not entry.of_edges},
            **({EDGE_TABLES: of_edges} if of_edges else {}),
            **({} if self.split is None else self.split.to_body()),
        }

    def places(self, out: Path) -> dict[Path, int]:
        """Return the bytes to write, by directory: the memory tiers and codecs in `out`, and the stripe files."""
        own = [_memory_tier_bytes(entry) + entry.codec_bytes for entry in self.entries.values()]
        places = {out: sum(own) + sum(self.sum_bytes)}
        for folder, nbytes in zip(self.folders, self.stripe_bytes, strict=True):
            places[folder] = places.get(folder, 0) + nbytes
        return places

    @cached_property
    def tier_files(self) -> list[tuple[str, str, tuple[int, int]]]:
        """Name, dtype and shape of the files of the memory tiers, in the order of `row_places`."""
        return [
            (tier_file(name, tier, part, len(rows)), entry.stored[0], (count, entry.stored[1]))
            for name, entry in self.entries.items()
            for tier in MEMORY_TIERS
            for rows in [entry.file_rows(tier, self.num_peers)]
            for part, count in enumerate(rows)
            if count
        ]

    @cached_property
    def row_places(self) -> dict[str, Places]:
        """The places of each table's rows in the files of the memory tiers, then in the stripe files."""
        places, number, stripes = {}, 0, range(len(self.tier_files), len(self.tier_files) + len(self.folders))
        for name, entry in self.entries.items():
            lanes, sizes = [], {}
            for tier in MEMORY_TIERS:
                files = []
                for count in entry.file_rows(tier, self.num_peers):
                    files.append(number if count else -1)
                    if count:
                        sizes[str(number)] = count * entry.row_bytes
                        number += 1
                if entry.rows(tier):
                    lanes.append(Lane(*entry.ranges[tier], files, entry.row_bytes))
            if entry.rows("ssd"):
                rows, unit = entry.ssd_rows, self.unit_bytes
                lanes.append(
                    Lane(*entry.ranges["ssd"], stripes, rows.stride, rows.rows_per_unit, unit, rows.first_unit)
                )
                sizes |= {str(file): nbytes for file, nbytes in zip(stripes, self.stripe_bytes, strict=True)}
            if lanes:
                places[name] = Places(entry.row_bytes, lanes, sizes)
        return places

    def _moves(self) -> list[tuple[Places, ReadPlan]]:
        tables = ((places, self.tables[name]) for name, places in self.row_places.items())
        return [(places, plan_reading(table, table.row_order == "rank")) for places, table in tables]

    def plan_rows(self, budget: Budget) -> MovePlan:
        """Return how the rows of all tables are moved in this process."""
        return plan_moves(self._moves(), budget, _ON_THEIR_WAY)

    def least_memory(self) -> int:
        """Return the least memory with which the rows of every type can be moved."""
        fits = [table.fit_memory for table in self.tables.values() if isinstance(table, EncodedTable)]
        return max([least_memory(self._moves()), *fits])

    def choose_carrier(self, carrier: Carrier | None, budget: Budget) -> Carrier | None:
        """Return the carrier if it cuts the rows into tasks; otherwise the budget must suffice for moving them here."""
        if carrier is not None and carrier.uses_tasks(tables_task_bytes(self.tables)):
            return carrier
        budget.require(self.least_memory(), _ON_THEIR_WAY)
        return None

    def stage(self, out: Path, budget: Budget, copied: int, carrier: Carrier | None = None) -> StageEstimate:
        """Return the steps of writing the layout, with the memory of the rows on their way.

        `copied` are the bytes of a graph that cannot be hard-linked into the layout. A `carrier` writes large tables by
        tasks.
        """
        needed = tables_task_bytes(self.tables)
        if (carrier := self.choose_carrier(carrier, budget)) is not None:
            parts, content = carrier.grid.parts(needed), sum(source_of(table).bytes for table in self.tables.values())
            shuffled = sum(e.num_nodes * (e.row_bytes + id_bytes(e.num_nodes)) for e in self.entries.values())
            rows = [StepEstimate(
                "rows", f"{parts} tasks", memory=-(-needed // parts), disk_read=content, disk_scratch=shuffled,
                disk_written=sum(self.places(out).values()), amount=content, unit="B", in_store=True,
            )]  # fmt: skip
        else:
            costs = zip(self.row_places, self.plan_rows(budget).costs, strict=True)
            rows = [self._row_step(self.entries[name], self.tables[name], cost) for name, cost in costs]
        fits = [
            StepEstimate(
                f"fit of {name}", t.name, memory=t.fit_memory, disk_read=t.fit_read(), amount=t.rows, unit="row"
            )
            for name, t in self.tables.items()
            if isinstance(t, EncodedTable) and t.fit_memory
        ]
        how, places = "copied" if copied else "hard links", self.places(out)
        graph = StepEstimate("graph", how, disk_read=copied, disk_written=copied)
        places[out] += copied
        sizes = () if self.sizes is None else tuple(": ".join(row) for row in self.sizes.rows)
        steps, notes = (*self.steps, *fits, *rows, graph), self.notes + self.input_notes + sizes
        return StageEstimate("layout", out, steps, places, held=base_memory(budget), notes=notes)

    def _row_step(self, entry: TypeLayout, table: FeatureTable | EncodedTable, cost: MoveCost) -> StepEstimate:
        """Return the step of the rows of a type."""
        cached = isinstance(table, EncodedTable) and table.fit_memory and is_cached(table.source)
        return StepEstimate(
            f"rows of {entry.node_type}", cost.how, memory=cost.memory, amount=table.rows, unit="row",
            disk_read=0 if cached else disk_read(table, cost), disk_scratch=cost.scratch,
            disk_written=_memory_tier_bytes(entry) + self._ssd_bytes(entry),
        )  # fmt: skip

    def _ssd_bytes(self, entry: TypeLayout) -> int:
        """Return the bytes of a type's units, with the checksums of their pages."""
        return entry.ssd_rows.num_units * (self.unit_bytes + self.unit_bytes // self.page_bytes * SUM_BYTES)


def _memory_tier_bytes(entry: TypeLayout) -> int:
    return sum(entry.rows(tier) for tier in MEMORY_TIERS) * entry.row_bytes


def plan_layout(source: LayoutInput, options: LayoutOptions, budget: Budget) -> LayoutPlan:
    """Plan a layout: how tiers are shared, what is written where, with how much memory."""
    sizes, automatic = None, options.automatic if source.tables else []
    if options.room is not None and automatic:
        lists = sum(own.bytes for own in source.lists)
        asked = options.capacities, automatic, options.room, source.bytes, lists, len(options.folders)
        sizes = choose_sizes(*asked)
        options = options.with_capacities(sizes.capacities)
    return replace(_plan_sized(source, options, budget), sizes=sizes)


def _plan_sized(source: LayoutInput, options: LayoutOptions, budget: Budget) -> LayoutPlan:
    capacities = options.capacities
    if source.order is None:
        return _plan_unranked(source, options)
    if options.cache is None:
        return _place_rows(source, capacities, options)
    split, step = divide_gpu(source, options.cache, options, budget.expecting(_expected_memory(source.tables, options)))
    plan = _place_rows(source, replace(capacities, gpu=split.gpu), options)
    return replace(plan, split=split, steps=(step,), notes=(str(split),))


def _plan_unranked(source: LayoutInput, options: LayoutOptions) -> LayoutPlan:
    """Plan a layout of a graph that does not exist yet: rows get all of the GPU's memory."""
    capacities, total, notes = options.capacities, source.bytes, []
    if options.cache is not None and capacities.gpu is not None:
        nbytes = min(total, capacities.gpu.of(total))
        largest = max((table.row_bytes for table in source.rows), default=1)
        kept = nbytes >= largest and not (capacities.ssd and nbytes == total)
        capacities = replace(capacities, gpu=Size(capacities.gpu.text, bytes=nbytes) if kept else None)
        notes.append("adjacency cache: its part of the GPU's memory depends on scores; counted as none")
    if len(source.rows) > 1:
        notes.append("rows of several types or relations: their parts of the tiers depend on scores")
    if any(t.dtype == "float32" and options.dtype_of(name) == AUTO for name, t in source.tables.items()):
        notes.append("dtype auto: counted as float32; if float16 changes no value, rows need half of that")
    return replace(_place_rows(source, capacities, options), notes=tuple(notes))


def _expected_memory(tables: Mapping[str, FeatureTable | EncodedTable], options: LayoutOptions) -> int:
    """Return the memory that suffices for any division of the rows: as if all of them lay in every tier."""
    ranges = {name: dict.fromkeys(TIERS, (0, table.rows)) for name, table in tables.items()}
    return _plan(tables, ranges, options).least_memory()


def _plan(tables: Mapping[str, FeatureTable | EncodedTable], ranges: Any, options: LayoutOptions) -> LayoutPlan:
    """Return the plan for ranges of ranks; the rows of the tables on SSD follow each other."""
    on_ssd = [(ranges[name]["ssd"][1] - ranges[name]["ssd"][0], table.row_bytes) for name, table in tables.items()]
    unit, places = SsdRows.plan_all(on_ssd, options.page_bytes, max(1, len(options.folders)))
    entries = {
        name: TypeLayout(name, table.rows, table.dim, table.dtype, ranges[name], place, codec_name(table))
        for (name, table), place in zip(tables.items(), places, strict=True)
    }
    folders = options.folders if any(place.num_units for place in places) else ()
    return LayoutPlan(tables, entries, options.page_bytes, unit, options.capacities.num_peers, folders)


def _place_rows(source: LayoutInput, capacities: Capacities, options: LayoutOptions) -> LayoutPlan:
    """Place every table by `plan_tiers`; `capacities` are for rows: the gpu tier without adjacency lists."""
    own = capacities.cpu is not None and capacities.cpu.text != "auto"
    if not source.tables and (capacities.gpu or capacities.peer or capacities.ssd or own):
        raise InputError(
            f"{source.place}: sizes of tiers need features, which the graph does not have; import it with "
            "--random-features DIM, --random-labels CLASSES and --random-train 1%, or omit the sizes to lay out "
            "adjacency alone"
        )
    ranges = plan_tiers(source.rows, capacities) if source.tables else {}
    first = tuple(_where_first(row, ranges[row.node_type]) for row in source.rows if row.first)
    return replace(_plan(source.tables, ranges, options), input_notes=(*source.notes, *first))


def _where_first(table: RankedTable, ranges: Mapping[str, tuple[int, int]]) -> str:
    rows = {tier: min(end, table.first) - begin for tier, (begin, end) in ranges.items()}
    parts = ", ".join(f"{format_count(count)} in {tier}" for tier, count in rows.items() if count > 0)
    return f"{table.node_type}: {format_count(table.first)} pinned nodes: {parts}"
