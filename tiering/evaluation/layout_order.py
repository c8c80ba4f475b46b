"""The order and the tiers of a layout, as the score and the capacities of an evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.formats.layout import MEMORY_TIERS, TIERS, Layout
from tiering.layout.tiers import Capacities
from tiering.text.units import Size, format_bytes

NAME = "layout"  # name of the score in results


def layout_order(layout: Layout) -> dict[str, Any]:
    """Return arguments of `tiering.evaluation.evaluate`: the layout's order as a score, its tiers and row sizes.

    The score falls by rank. Rows of several types are placed by tier, then by the fraction of the type's tier in front
    of them. Cost: 8 bytes for each node.
    """
    graph, types = layout.graph, {t: layout.type_layout(t) for t in layout.feature_types}
    if not any(entry.num_nodes for entry in types.values()):
        raise InputError(f"{layout.path}: the layout has no feature rows to evaluate; evaluate its graph, {graph.path}")
    values = {}
    for t, entry in types.items():
        by_rank = np.empty(entry.num_nodes)
        for number, (begin, end) in enumerate(entry.ranges[tier] for tier in TIERS):
            by_rank[begin:end] = len(TIERS) - number - np.arange(end - begin) / max(1, end - begin)
        values[t] = by_rank[graph.old_to_new(t)] * entry.row_bytes  # an evaluation divides by them
    rows, peers, sizes = {t: entry.row_bytes for t, entry in types.items()}, layout.num_peers, list[Size | None]()
    total = sum(entry.num_nodes * entry.row_bytes for entry in types.values())
    for tier in MEMORY_TIERS:
        parts = peers if tier == "peer" and peers else 1
        size = sum(e.file_rows(tier, peers)[0] * e.row_bytes for e in types.values() if e.rows(tier))
        size = min(size, total // parts)  # shares of GPUs are rounded up
        sizes.append(Size(format_bytes(size), size) if size else None)
    ssd = any(entry.rows("ssd") for entry in types.values())
    if not ssd:  # the last tier holds the rest
        sizes[max(k for k, size in enumerate(sizes) if size)] = Size("auto")
    gpu, peer, cpu = sizes
    tiers = Capacities(gpu, peers if peer else 0, peer, cpu, ssd)
    return {"scores": {NAME: values}, "tiers": tiers, "row_bytes": rows, "source_ids": True}
