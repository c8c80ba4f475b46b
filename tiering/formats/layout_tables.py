"""Tables of the tiers of a layout, from its summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiering.description import Fields, Part, Table
from tiering.units import format_bytes, format_count, format_share, format_small_seconds

Summary = Mapping[str, Any]


def layout_tables(summary: Summary) -> list[Part]:
    """Return the tiers of each node type, how the memory of a GPU was divided, where the images are."""
    rows, fields = [], {f"ssd image {k}": image for k, image in enumerate(summary["images"])}
    for node_type, entry in {**summary["node_types"], **summary.get("edge_tables", {})}.items():
        for tier, part in entry["tiers"].items():
            first, last = map(format_count, part["ranks"])
            sizes = (format_count(part["rows"]), format_share(part["rows"], entry["rows"]), format_bytes(part["bytes"]))
            rows.append((node_type, tier, f"{first} .. {last}", *sizes))
        if entry["ssd_padding_bytes"]:
            stride = f"stride {entry['ssd_stride']} for rows of {entry['row_bytes']} bytes"
            fields[f"ssd padding, {node_type}"] = f"{format_bytes(entry['ssd_padding_bytes'])} ({stride})"
    columns = ("type", "tier", "ranks", "rows", "share", "bytes")
    parts: list[Part] = [Table("What lies where", columns, rows, left=2)] if rows else []
    parts += _gpu_memory(summary) if "split" in summary else []
    return [*parts, Fields(fields)] if fields else parts


def _gpu_memory(summary: Summary) -> list[Part]:
    """Return the division of each GPU's memory, and its expected gain."""
    split, rows = summary["split"], []
    for what, name in (("feature rows", "features"), ("adjacency lists", "adjacency")):
        size = "feature_bytes" if name == "features" else "adjacency_bytes"
        expected = split["predicted"][name]
        reads = (format_count(round(expected["reads"])), format_share(expected["served"], expected["reads"]))
        times = (format_small_seconds(expected["saved"]), format_small_seconds(expected["seconds"]))
        rows.append((what, format_bytes(split[size]), *reads, *times))
    columns = ("what", "bytes", "reads per epoch", "served by it", "saves per epoch", "of")
    title = f"GPU memory: {format_bytes(split['budget_bytes'])}, split {split['mode']}"
    lists = [
        (
            key,
            format_count(e["columns"]),
            format_share(e["columns"], e["of_columns"]),
            format_count(e["edges"]),
            format_share(e["edges"], e["of_edges"]),
            format_bytes(e["bytes"]),
        )
        for key, e in summary["adjacency"].items()
    ]
    held = Table("Adjacency lists on the GPU", ("relation", "lists", "share", "edges", "share", "bytes"), lists)
    return [Table(title, columns, rows), *([held] if lists else [])]
