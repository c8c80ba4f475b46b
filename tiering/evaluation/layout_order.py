"""The order and the tiers of a layout, as the score and the capacities of an evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiering.formats.layout import TIERS, Layout
from tiering.layout.tiers import Capacities
from tiering.text.units import Size, format_bytes

NAME = "layout"  # name of the score in results


def layout_order(layout: Layout) -> dict[str, Any]:
    """Return arguments of `tiering.evaluation.evaluate`: the layout's order as a score, its tiers and row sizes.

    The score falls by rank. Rows of several types are placed by tier, then by the fraction of the type's tier in front
    of them. Cost: 8 bytes for each node.
    """
    graph, types = layout.graph, {t: layout.type_layout(t) for t in layout.feature_types}
    values = {}
    for t, entry in types.items():
        by_rank = np.empty(entry.num_nodes)
        for number, (begin, end) in enumerate(entry.ranges[tier] for tier in TIERS):
            by_rank[begin:end] = len(TIERS) - number - np.arange(end - begin) / max(1, end - begin)
        values[t] = by_rank[graph.old_to_new(t)] * entry.row_bytes  # an evaluation divides by them
    peers = layout.num_peers
    sizes = {
        tier: sum(e.file_rows(tier, peers)[0] * e.row_bytes for e in types.values() if e.rows(tier))
        for tier in TIERS[:3]
    }
    gpu, peer, cpu = (Size(format_bytes(size), size) if size else None for size in sizes.values())
    ssd = any(entry.rows("ssd") for entry in types.values())
    tiers = Capacities(gpu, peers if peer else 0, peer, cpu if ssd else Size("auto"), ssd)
    rows = {t: entry.row_bytes for t, entry in types.items()}
    return {"scores": {NAME: values}, "tiers": tiers, "row_bytes": rows, "source_ids": True}
