"""What commands made, or would take, for people: tables. Machines get `Artifact.summary` and forecasts as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tiering.units import format_bytes, format_count, format_seconds, format_small_seconds

from .output import print_fields, print_json, print_line, print_table, share

if TYPE_CHECKING:
    from tiering.artifacts.artifact import Artifact
    from tiering.plan import Forecast, StagePlan

Summary = Mapping[str, Any]
_STEP_COLUMNS = ("step", "how", "peak memory", "read", "written", "scratch", "left")


def print_artifact(artifact: Artifact, as_json: bool) -> None:
    """Print what an artifact is: one JSON document, or tables."""
    summary = artifact.summary()
    if as_json:
        print_json(summary)
        return
    provenance = summary["provenance"]
    made = [str(provenance[key]) for key in ("stage", "package") if provenance.get(key)]
    made += [] if provenance.get("seed") is None else [f"seed {provenance['seed']}"]
    size = format_bytes(summary["bytes"])
    print_fields(
        {summary["kind"]: summary["path"], "made by": ", ".join(made), "size": size, "digest": summary["digest"]}
    )
    _TABLES[summary["kind"]](summary)


def _graph(summary: Summary) -> None:
    nodes = []
    for node_type, entry in summary["node_types"].items():
        classes, features = entry["classes"], entry["features"]
        splits = ", ".join(f"{name} {format_count(size)}" for name, size in entry["splits"].items())
        row = "-"
        if features is not None:
            row = f"{features['dim']} x {features['dtype']} = {format_bytes(features['row_bytes'])} a row"
        nodes.append((node_type, format_count(entry["nodes"]), "-" if classes is None else classes, splits or "-", row))
    ids = "ranks of an order" if summary["reordered"] else "original ids"
    print_table(f"Nodes ({ids})", ("type", "nodes", "classes", "splits", "features"), nodes)
    relations = [
        (key, format_count(entry["edges"]), ", ".join(entry["edge_data"]) or "-")
        for key, entry in summary["relations"].items()
    ]
    print_table("Edges", ("relation", "edges", "edge data"), relations)


def _scores(summary: Summary) -> None:
    _print_spreads(f"Scores by {summary['method']}", "type", summary["node_types"])
    if summary["relations"]:
        _print_spreads("Reads of adjacency per epoch", "relation", summary["relations"])


def _print_spreads(title: str, what: str, entries: Summary) -> None:
    rows = [
        (name, format_count(e["nodes"]), *(_number(e[key]) for key in ("sum", "min", "max")), format_count(e["zeros"]))
        for name, e in entries.items()
    ]
    print_table(title, (what, "nodes", "sum", "least", "greatest", "zeros"), rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _order(summary: Summary) -> None:
    rows = [(t, format_count(e["nodes"]), format_count(e["first"])) for t, e in summary["node_types"].items()]
    print_table("Order, hottest first", ("type", "nodes", "put first"), rows)


def _features(summary: Summary) -> None:
    rows = [
        (name, format_count(e["rows"]), f"{e['dim']} x {e['dtype']}", format_bytes(e["row_bytes"]), e["path"])
        for name, e in summary.get("tables", summary.get("node_types", {})).items()
    ]
    print_table("Feature tables", ("type", "rows", "values", "row", "file"), rows)


def _layout(summary: Summary) -> None:
    rows, fields = [], {f"ssd image {k}": image for k, image in enumerate(summary["images"])}
    for node_type, entry in {**summary["node_types"], **summary.get("edge_tables", {})}.items():
        for tier in ("gpu", "peer", "cpu", "ssd"):
            part = entry["tiers"][tier]
            first, last = map(format_count, part["ranks"])
            sizes = (format_count(part["rows"]), share(part["rows"], entry["rows"]), format_bytes(part["bytes"]))
            rows.append((node_type, tier, f"{first} .. {last}", *sizes))
        if entry["ssd_padding_bytes"]:
            stride = f"stride {entry['ssd_stride']} for rows of {entry['row_bytes']} bytes"
            fields[f"ssd padding, {node_type}"] = f"{format_bytes(entry['ssd_padding_bytes'])} ({stride})"
    if rows:
        print_table("What lies where", ("type", "tier", "ranks", "rows", "share", "bytes"), rows, left=2)
    if "split" in summary:
        _gpu_memory(summary)
    if fields:
        print_fields(fields)
    _graph(summary["graph"])


def _gpu_memory(summary: Summary) -> None:
    """How the memory of each GPU was divided, and what that is expected to bring."""
    split, rows = summary["split"], []
    for what, name in (("feature rows", "features"), ("adjacency lists", "adjacency")):
        size = "feature_bytes" if name == "features" else "adjacency_bytes"
        expected = split["predicted"][name]
        reads = (format_count(round(expected["reads"])), share(expected["served"], expected["reads"]))
        times = (format_small_seconds(expected["saved"]), format_small_seconds(expected["seconds"]))
        rows.append((what, format_bytes(split[size]), *reads, *times))
    columns = ("what", "bytes", "reads per epoch", "served by it", "saves per epoch", "of")
    print_table(f"GPU memory: {format_bytes(split['budget_bytes'])}, split {split['mode']}", columns, rows)
    lists = [
        (
            key,
            format_count(e["columns"]),
            share(e["columns"], e["of_columns"]),
            format_count(e["edges"]),
            share(e["edges"], e["of_edges"]),
            format_bytes(e["bytes"]),
        )
        for key, e in summary["adjacency"].items()
    ]
    if lists:
        print_table("Adjacency lists on the GPU", ("relation", "lists", "share", "edges", "share", "bytes"), lists)


_TABLES: dict[str, Callable[[Summary], None]] = {
    "graph": _graph,
    "features": _features,
    "scores": _scores,
    "order": _order,
    "layout": _layout,
}


def print_forecast(forecast: Forecast, as_json: bool) -> None:
    """Print a forecast, one JSON document or a table per stage; raises `StorageError` then if a disk is too small."""
    from tiering.plan import DISK_RATE, EDGE_SECONDS

    if as_json:
        print_json(forecast.to_json())
    else:
        for plan in forecast.plans:
            print_table(f"{plan.stage} -> {plan.out}", _STEP_COLUMNS, _rows(plan), left=2)
            if plan.steps:
                print_line(f"time: {_about(plan.seconds)}")
            for note in plan.notes:
                print_line(f"note: {note}")
        if len(forecast.plans) > 1:
            left = format_bytes(sum(plan.disk_left for plan in forecast.plans))
            print_fields({"time": _about(forecast.seconds), "peak memory": format_bytes(forecast.memory), "left": left})
        print_line("nothing was run; read counts what is not in the page cache, memory all that the process holds;")
        print_line(
            f"time is an order of magnitude: disks of {DISK_RATE / 1e9:g} GB/s and {1e9 * EDGE_SECONDS:g} ns for an "
            "edge and thread are assumed"
        )
    forecast.require_space()


def _rows(plan: StagePlan) -> list[tuple[str, ...]]:
    if not plan.steps:
        return [("all", "is there already", *(["-"] * 5))]

    def row(name: str, how: str, *sizes: int) -> tuple[str, ...]:
        return (name, how, *(format_bytes(size) if size else "-" for size in sizes))

    steps = [
        (*row(s.name, s.how, plan.held + s.memory, s.disk_read, s.disk_written, s.disk_scratch), "") for s in plan.steps
    ]
    total = row("total", "", plan.memory, plan.disk_read, plan.disk_written, plan.disk_scratch, plan.disk_left)
    return [*steps, total]


def _about(seconds: float) -> str:
    return f"about {format_seconds(seconds)}" if seconds >= 0.95 else "less than a second"
