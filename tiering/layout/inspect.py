"""What a layout holds, as rows of a table."""

from __future__ import annotations

from typing import Any

from tiering.formats.layout import TIERS, Layout


def describe(layout: Layout) -> list[dict[str, Any]]:
    """One row per node type and tier that is not empty.

    Returns
    -------
    list of dict
        ``node_type``, ``tier``, ``first_rank``, ``rows``, ``bytes``, ``share`` (of the bytes of all features) and
        ``expected_accesses`` (share of the summed scores of all feature rows; 0 where all scores are 0).

    Notes
    -----
    Cost: one pass over the scores of the types with features.
    """
    entries = {node_type: layout.type_layout(node_type) for node_type in layout.feature_types}
    order = layout.graph.order
    scores = {} if order is None else {node_type: order.score(node_type) for node_type in entries}
    total_bytes = sum(entry.num_nodes * entry.row_bytes for entry in entries.values())
    total_score = float(sum(values.sum() for values in scores.values()))
    rows = []
    for node_type, entry in entries.items():
        for tier in TIERS:
            begin, end = entry.ranges[tier]
            if begin == end:
                continue
            expected = float(scores[node_type][begin:end].sum()) if scores else 0.0
            nbytes = (end - begin) * entry.row_bytes
            rows.append(
                {
                    "node_type": node_type,
                    "tier": tier,
                    "first_rank": begin,
                    "rows": end - begin,
                    "bytes": nbytes,
                    "share": nbytes / total_bytes,
                    "expected_accesses": expected / total_score if total_score else 0.0,
                }
            )
    return rows
