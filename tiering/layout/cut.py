"""A view of a layout with other sizes of its memory tiers: they are prefixes of the ranks, so that no file changes."""

from __future__ import annotations

from tiering.errors import InputError
from tiering.formats.layout import Layout
from tiering.formats.tier_rows import TierRows
from tiering.layout.inputs import edge_tables_to_place, require_order
from tiering.layout.tiers import RankedTable, longest_prefix
from tiering.text.units import format_bytes, parse_size


def cut_layout(layout: Layout, gpu: str | int | None = None, cpu: str | int | None = None) -> Layout:
    """Return a view of a layout whose tiers have other sizes, divided among its tables as `tiering layout` does.

    Parameters
    ----------
    gpu, cpu
        Sizes of feature rows, as ``6GiB`` or ``9%`` of all rows, 0 for none; what exceeds all rows has no effect.
        ``None``: `gpu` is as large as in the layout; `cpu` reaches to the end of the layout's cpu tier, or of the tiers
        before it. The peer tier keeps its size.

    Raises
    ------
    InputError
        If a size has another form, or the tiers together are smaller than the layout's memory tiers, whose files are
        not read by pages.

    Notes
    -----
    Reads O((tables x log(rows))²) scores; with edge features the offsets of their lists. Rows leave the ssd tier by
    whole units of the stripe files: up to a unit per table, 64 KiB to 1 MiB or one row, stays there.
    """
    if gpu is None and cpu is None:
        return layout
    sizes = {tier: parse_size(size, tier) for tier, size in (("gpu", gpu), ("cpu", cpu)) if size is not None}
    for tier, size in sizes.items():
        if size.auto:
            raise InputError(f"{tier}: expected a size such as 6GiB or 9%, found auto; `tiering plan` recommends sizes")
    tables = _ranked_tables(layout)
    stored, total = [layout.type_layout(t.node_type) for t in tables], sum(t.rows * t.row_bytes for t in tables)
    known = {tier: [entry.ranges[tier][1] for entry in stored] for tier in ("gpu", "peer", "cpu")}
    first = longest_prefix(tables, sizes["gpu"].of(total)) if "gpu" in sizes else known["gpu"]
    share = sum(entry.file_rows("peer", layout.num_peers)[0] * entry.row_bytes for entry in stored if layout.num_peers)
    shared = known["peer"] if first == known["gpu"] else longest_prefix(tables, share, first, layout.num_peers or 1)
    least = [max(ends) for ends in zip(shared, known["cpu"], strict=True)]
    last = longest_prefix(tables, sizes["cpu"].of(total), shared) if "cpu" in sizes else least
    if any(end < needed for end, needed in zip(last, least, strict=True)):
        asked, needed = (sum(end * e.row_bytes for end, e in zip(ends, stored, strict=True)) for ends in (last, least))
        raise InputError(
            f"cpu: {format_bytes(asked)} in all tiers is too little: {format_bytes(needed)} of rows lie in files of "
            f"{layout.path} that cannot be read by pages; omit cpu to keep these rows in host memory, give more, or "
            "make the layout with a smaller --cpu, which loaders can enlarge"
        )
    ends = zip(stored, zip(first, shared, last, strict=True), strict=True)
    return layout.view({entry.node_type: entry.cut(own, layout.unit_bytes) for entry, own in ends}, gpu, cpu)


def _ranked_tables(layout: Layout) -> list[RankedTable]:
    """Return the tables in the order in which they were placed, with the scores of the order."""
    graph, rows = layout.graph, {name: TierRows(layout, name) for name in layout.tables}
    order, types = require_order(graph), [t for t in graph.node_types if t in layout.feature_types]
    nodes = [RankedTable(t, rows[t].rows, rows[t].row_bytes, order.score(t), order.first(t)) for t in types]
    edges = {name: own for name, own in rows.items() if name not in types}
    return nodes + edge_tables_to_place(graph, order, edges, None)
