"""Artifacts for people: tables by kind. Machines get `Artifact.summary` as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tiering.units import format_bytes, format_count, format_small_seconds

from .output import print_fields, print_json, print_table, share

if TYPE_CHECKING:
    from tiering.artifacts.artifact import Artifact

TIERS = ("gpu", "peer", "cpu", "ssd")


def print_artifact(artifact: Artifact, as_json: bool) -> None:
    """Print what an artifact is: one JSON document, or tables."""
    summary = artifact.summary()
    if as_json:
        print_json(summary)
        return
    print_fields({summary["kind"]: summary["path"], **_provenance(summary)})
    _TABLES[summary["kind"]](summary)


def _provenance(summary: Mapping[str, Any]) -> dict[str, object]:
    provenance = summary["provenance"]
    made = [str(provenance[key]) for key in ("stage", "package") if provenance.get(key)]
    seed = provenance.get("seed")
    return {
        "made by": ", ".join([*made, *([] if seed is None else [f"seed {seed}"])]),
        "size": format_bytes(summary["bytes"]),
        "digest": summary["digest"],
    }


def _graph(summary: Mapping[str, Any]) -> None:
    nodes = [
        (
            node_type,
            format_count(entry["nodes"]),
            "-" if entry["classes"] is None else entry["classes"],
            ", ".join(f"{name} {format_count(size)}" for name, size in entry["splits"].items()) or "-",
            _features_of(entry["features"]),
        )
        for node_type, entry in summary["node_types"].items()
    ]
    ids = "ranks of an order" if summary["reordered"] else "original ids"
    print_table(f"Nodes ({ids})", ("type", "nodes", "classes", "splits", "features"), nodes)
    relations = [
        (key, format_count(entry["edges"]), ", ".join(entry["edge_data"]) or "-")
        for key, entry in summary["relations"].items()
    ]
    print_table("Edges", ("relation", "edges", "edge data"), relations)


def _features_of(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    return f"{entry['dim']} x {entry['dtype']} = {format_bytes(entry['row_bytes'])} a row"


def _scores(summary: Mapping[str, Any]) -> None:
    spread = ("nodes", "sum", "least", "greatest", "zeros")
    print_table(f"Scores by {summary['method']}", ("type", *spread), _spreads(summary["node_types"]))
    if summary["relations"]:
        print_table("Reads of adjacency per epoch", ("relation", *spread), _spreads(summary["relations"]))


def _spreads(entries: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Table rows of columns of scores."""
    return [
        (name, format_count(e["nodes"]), *(_number(e[key]) for key in ("sum", "min", "max")), format_count(e["zeros"]))
        for name, e in entries.items()
    ]


def _order(summary: Mapping[str, Any]) -> None:
    rows = [(node_type, format_count(entry["nodes"])) for node_type, entry in summary["node_types"].items()]
    print_table("Order, hottest first", ("type", "nodes"), rows)


def _features(summary: Mapping[str, Any]) -> None:
    rows = [
        (
            node_type,
            format_count(entry["rows"]),
            f"{entry['dim']} x {entry['dtype']}",
            format_bytes(entry["row_bytes"]),
            entry["path"],
        )
        for node_type, entry in summary.get("tables", summary.get("node_types", {})).items()
    ]
    print_table("Feature tables", ("type", "rows", "values", "row", "file"), rows)


def _layout(summary: Mapping[str, Any]) -> None:
    rows = [row for node_type, entry in summary["node_types"].items() for row in _tier_rows(node_type, entry)]
    if rows:
        print_table("What lies where", ("type", "tier", "ranks", "rows", "share", "bytes"), rows, left=2)
    if "split" in summary:
        _split(summary)
    fields: dict[str, object] = {f"ssd image {k}": image for k, image in enumerate(summary["images"])}
    for node_type, entry in summary["node_types"].items():
        if entry["ssd_padding_bytes"]:
            stride = f"stride {entry['ssd_stride']} for rows of {entry['row_bytes']} bytes"
            fields[f"ssd padding, {node_type}"] = f"{format_bytes(entry['ssd_padding_bytes'])} ({stride})"
    if fields:
        print_fields(fields)
    _graph(summary["graph"])


def _split(summary: Mapping[str, Any]) -> None:
    """How the memory of each GPU was divided, and what that is expected to bring."""
    split = summary["split"]
    rows = [
        (
            what,
            format_bytes(split[size]),
            format_count(round(split["predicted"][name]["reads"])),
            share(split["predicted"][name]["served"], split["predicted"][name]["reads"]),
            format_small_seconds(split["predicted"][name]["saved"]),
            format_small_seconds(split["predicted"][name]["seconds"]),
        )
        for what, name, size in (
            ("feature rows", "features", "feature_bytes"),
            ("adjacency lists", "adjacency", "adjacency_bytes"),
        )
    ]
    columns = ("what", "bytes", "reads per epoch", "served by it", "saves per epoch", "of")
    print_table(f"GPU memory: {format_bytes(split['budget_bytes'])}, split {split['mode']}", columns, rows)
    lists = [
        (
            key,
            format_count(entry["columns"]),
            share(entry["columns"], entry["of_columns"]),
            format_count(entry["edges"]),
            share(entry["edges"], entry["of_edges"]),
            format_bytes(entry["bytes"]),
        )
        for key, entry in summary["adjacency"].items()
    ]
    if lists:
        print_table("Adjacency lists on the GPU", ("relation", "lists", "share", "edges", "share", "bytes"), lists)


def _tier_rows(node_type: str, entry: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """Table rows of the tiers of one node type of a layout's summary."""
    return [
        (
            node_type,
            tier,
            f"{format_count(entry['tiers'][tier]['ranks'][0])} .. {format_count(entry['tiers'][tier]['ranks'][1])}",
            format_count(entry["tiers"][tier]["rows"]),
            share(entry["tiers"][tier]["rows"], entry["rows"]),
            format_bytes(entry["tiers"][tier]["bytes"]),
        )
        for tier in TIERS
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


_TABLES: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "graph": _graph,
    "features": _features,
    "scores": _scores,
    "order": _order,
    "layout": _layout,
}
