"""Tables that describe a layout: its tiers, the rows that codecs store, and the memory of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiering.codecs import CodecLoss
from tiering.text.description import Fields, Part, Table
from tiering.text.units import format_bytes, format_count, format_share, format_small_seconds


def tier_tables(summary: Mapping[str, Any]) -> list[Part]:
    """Return tables of the rows of each tier and of the codecs that store them, and the shares of a GPU's memory."""
    rows, coded, fields = [], [], {f"stripe file {k}": image for k, image in enumerate(summary["images"])}
    for node_type, entry in {**summary["node_types"], **summary.get("edge_tables", {})}.items():
        for tier, part in ((tier, part) for tier, part in entry["tiers"].items() if part["rows"]):
            first, last = map(format_count, part["ranks"])
            sizes = (format_count(part["rows"]), format_share(part["rows"], entry["rows"]), format_bytes(part["bytes"]))
            rows.append((node_type, tier, f"{first} .. {last}", *sizes))
        if codec := entry.get("codec"):
            loss, name = CodecLoss(**codec["loss"]), codec["worst_column_name"]
            worst = "-" if loss.worst_column < 0 else f"{name} ({loss.worst_rms:.2g})"
            exact = f"{loss.exact_columns} of {loss.columns}"
            how = (node_type, entry["dtype"], codec["name"], format_bytes(entry["row_bytes"]))
            coded.append((*how, f"{loss.rms:.2g}", f"{loss.largest:.2g}", worst, exact))
        if entry["ssd_padding_bytes"]:
            stride = f"stride {entry['ssd_stride']} for rows of {entry['row_bytes']} bytes"
            fields[f"ssd padding, {node_type}"] = f"{format_bytes(entry['ssd_padding_bytes'])} ({stride})"
    columns = ("type", "tier", "ranks", "rows", "fraction of the type", "bytes")
    parts: list[Part] = [Table("Rows by tier", columns, rows, left=2)] if rows else []
    if coded:
        named = ("type", "source", "stored as", "row size", "rms error", "largest", "worst column", "exact columns")
        title = "Rows stored by codecs (errors in standard deviations of the column)"
        parts.append(Table(title, named, coded, left=3))
    parts += _gpu_memory(summary) if "split" in summary else []
    return [*parts, Fields(fields, "Stripe files")] if fields else parts


def _gpu_memory(summary: Mapping[str, Any]) -> list[Part]:
    split, rows = summary["split"], []
    for what, name in (("feature rows", "features"), ("adjacency lists", "adjacency")):
        size = "feature_bytes" if name == "features" else "adjacency_bytes"
        expected = split["predicted"][name]
        reads = (format_count(round(expected["reads"])), format_share(expected["served"], expected["reads"]))
        times = (format_small_seconds(expected["saved"]), format_small_seconds(expected["seconds"]))
        rows.append((what, format_bytes(split[size]), *reads, *times))
    columns = ("data", "GPU memory", "reads per epoch", "served by the GPU", "time saved per epoch", "time without it")
    title = f"GPU memory: {format_bytes(split['budget_bytes'])}, split: {split['mode']}"
    lists = []
    for key, e in summary["adjacency"].items():
        shares = ((format_count(e[what]), format_share(e[what], e[f"of_{what}"])) for what in ("columns", "edges"))
        lists.append((key, *(text for pair in shares for text in pair), format_bytes(e["bytes"])))
    held = Table("Adjacency lists on the GPU", ("relation", "lists", "lists (%)", "edges", "edges (%)", "bytes"), lists)
    return [Table(title, columns, rows), *([held] if lists else [])]
