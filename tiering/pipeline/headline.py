"""The first lines of a report: the dataset, its hit rate, predicted and measured epochs, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.remote_path import as_path
from tiering.codecs import AUTO
from tiering.errors import InputError
from tiering.evaluation.cache_order import ORACLE
from tiering.formats.layout import TIERS, Layout
from tiering.pipeline.sizes import process_memory
from tiering.sampling import SamplingOptions
from tiering.text.description import Fields
from tiering.text.units import format_bytes, format_count, format_small_seconds

Document = Mapping[str, Any]
_GAIN = 1.1  # ratio of two epochs from which the shorter one is worth a change
_CURES = {
    "disk": "Reading limits the measured epochs: give the loader more memory, or store rows in a smaller dtype.",
    "sampling": "Sampling limits the measured epochs: give the loader more workers, if training waits for batches.",
}


def headline(artifacts: Sequence[Artifact], documents: Sequence[tuple[str, Document]]) -> Fields:
    """Return the summary of a report, from artifacts, and documents with their kinds."""
    graphs = [one for one in artifacts if one.kind == "graph"]
    lines, changes = {"Dataset": _describe_graph(graphs[0])} if graphs else {}, list[str]()
    for kind, document in documents:
        if kind == "knees":
            lines["Predicted epoch"], change = _compare_plan(document, featured_layouts(artifacts))
            changes.append(change)
        elif kind == "epochs":
            last = document["epochs"][-1]
            time = f"{format_small_seconds(last['wall'])} without a model, bound by {last['bound_by']}"
            lines["Measured epoch"] = f"{time}; {100 * (1 - last['hit_rates']['read']):.1f} % of rows from memory"
            changes.append(_CURES.get(last["bound_by"], ""))
        elif kind == "findings":
            changes += [f"{one['name']}: {one['advice']}." for one in document["findings"] if one["name"][:3] == "ssd"]
        else:
            lines.setdefault("Hit rate", _describe_hits(document.get("evaluations", [document])[0]))
    change = " ".join(filter(None, dict.fromkeys(changes)))
    return Fields({**lines, **({"What to change": change} if change else {})})


def featured_layouts(artifacts: Sequence[Artifact]) -> list[Layout]:
    """Return the layouts that have features."""
    return [one for one in artifacts if isinstance(one, Layout) and one.feature_types]


def tier_bytes(layout: Artifact) -> dict[str, int]:
    """Return the bytes of a layout's rows by tier."""
    summary = layout.summary()
    tables = [*summary["node_types"].values(), *summary.get("edge_tables", {}).values()]
    return {tier: sum(table["tiers"][tier]["bytes"] for table in tables) for tier in TIERS}


def stored_dtype(layout: Layout) -> str:
    """Return how a layout stores its rows, as `tiering plan` names it; ``auto`` where types differ."""
    names = {entry.codec or entry.dtype for entry in map(layout.type_layout, layout.feature_types)}
    return names.pop() if len(names) == 1 else AUTO


def training_memory(layout: Layout, plan: Document) -> int | None:
    """Return the memory that a plan counts for training from a layout, in bytes; ``None``: of another graph."""
    asked, known = plan["parameters"], [field.name for field in fields(SamplingOptions)]
    sizes, how = tier_bytes(layout), SamplingOptions(**{name: asked[name] for name in known if name in asked})
    with suppress(InputError):  # the layout's graph has no such relations
        return process_memory(layout, how, sum(sizes.values()) - sizes["ssd"])
    return None


def cached_unit(evaluation: Document) -> str:
    """Return the unit of an evaluation's capacities: bytes where rows have several sizes."""
    return "rows" if len({entry["row_bytes"] for entry in evaluation["types"].values()}) <= 1 else "bytes"


def _describe_graph(graph: Any) -> str:
    source, tables = graph.manifest.body["changes"].get("source"), map(graph.feature_table, graph.node_types)
    size = format_bytes(sum(table.bytes for table in tables if table is not None))
    counts = f"{format_count(graph.num_nodes())} nodes, {format_count(graph.num_edges())} edges, {size} of features"
    return f"{as_path(source).name if source else graph.path.name}: {counts}"


def _describe_hits(evaluation: Document) -> str:
    middle = len(evaluation["shares"]) // 2
    rates = {name: own[middle] for name, own in evaluation["hit_rates"].items()}
    best = max((name for name in rates if name != ORACLE), key=rates.__getitem__, default=ORACLE)
    cache = f"a cache of {100 * evaluation['shares'][middle]:g} % of the {cached_unit(evaluation)}"
    most = f"; the best possible order serves {100 * rates[ORACLE]:.1f} %" if ORACLE in rates else ""
    return f"{cache}, filled by {best}, serves {100 * rates[best]:.1f} % of reads{most}"


def _compare_plan(plan: Document, layouts: Sequence[Layout]) -> tuple[str, str]:
    """Return the predicted epoch with the dtype and memory of the first layout, else at the knee; and a change."""
    epochs, name = plan["epochs"], layouts[0].path.name if layouts else "plan"
    dtype = stored_dtype(layouts[0]) if layouts else epochs[0]["dtype"]
    line = [one for one in epochs if (one["disk"], one["dtype"]) == (epochs[0]["disk"], dtype)]
    if not line:
        return f"none for {name}, which stores {dtype}", f"Run `tiering plan` with --dtype {dtype}."
    knee = next(one for one in plan["knees"] if (one["disk"], one["dtype"]) == (line[0]["disk"], dtype))
    memory = (training_memory(layouts[0], plan) if layouts else None) or knee["memory"]
    today = max((one for one in line if one["memory"] <= memory), key=lambda one: one["memory"], default=line[0])
    better = next((one for one in line if one["memory"] == knee["memory"]), today)
    now, then = (format_small_seconds(one["epoch_seconds"]) for one in (today, better))
    served = f"with {format_bytes(today['memory'])}, {100 * today['hit_rate']:.1f} % of rows from memory"
    text = f"{name} ({dtype}, {line[0]['disk']}): {now} {served}"
    if today["all_fit"]:
        return text, "More memory has no effect: all rows fit."
    if today["epoch_seconds"] <= _GAIN * better["epoch_seconds"]:  # the knee may be a curve's first point
        better = min(line, key=lambda one: (one["epoch_seconds"], one["memory"]))
        then = format_small_seconds(better["epoch_seconds"])
    if today["epoch_seconds"] <= _GAIN * better["epoch_seconds"]:
        return text, "More memory would gain little."
    return text, f"Give training {format_bytes(better['memory'])}: an epoch then takes {then} instead of {now}."
