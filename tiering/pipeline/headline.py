"""The first lines of a report: the dataset, its hit rate, predicted and measured epochs, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    "disk": "Reading bounds the measured epochs: give the loader more memory, or store rows in a smaller dtype.",
    "sampling": "Sampling bounds the measured epochs: give the loader more workers, if training waits for batches.",
}


def headline(artifacts: Sequence[Artifact], documents: Sequence[tuple[str, Document]]) -> Fields:
    """Return the summary of a report, from artifacts, and documents with their kinds."""
    lines, changes = dict[str, str](), list[str]()
    layouts = [one for one in artifacts if isinstance(one, Layout) and one.feature_types]
    for graph in [one for one in artifacts if one.kind == "graph"][:1]:
        lines["Dataset"] = _describe_graph(graph)
    for kind, document in documents:
        if kind in ("hit_rates", "evaluations"):
            lines.setdefault("Hit rate", _describe_hits(document.get("evaluations", [document])[0]))
        elif kind == "knees":
            for text, change in _compare_plan(document, layouts):
                lines["Predicted epoch"] = "; ".join(filter(None, (lines.get("Predicted epoch"), text)))
                changes.append(change)
        elif kind == "epochs" and document["epochs"]:
            last = document["epochs"][-1]
            words = f"{format_small_seconds(last['wall'])} without a model, bound by {last['bound_by']}"
            lines["Measured epoch"] = f"{words}; {100 * (1 - last['hit_rates']['read']):.1f} % of rows from memory"
            changes += [_CURES[last["bound_by"]]] if last["bound_by"] in _CURES else []
        elif kind == "findings":
            named = [one for one in document["findings"] if one["name"].startswith(("ssd", "io_uring"))]
            changes += [f"{one['name']}: {one['advice']}." for one in named if one["advice"]]
    return Fields({**lines, **({"What to change": " ".join(dict.fromkeys(changes))} if changes else {})})


def tier_bytes(layout: Artifact) -> dict[str, int]:
    """Return the bytes of a layout's rows by tier."""
    summary = layout.summary()
    tables = [*summary["node_types"].values(), *summary.get("edge_tables", {}).values()]
    return {tier: sum(table["tiers"][tier]["bytes"] for table in tables) for tier in TIERS}


def stored_dtype(layout: Layout) -> str:
    """Return how a layout stores its rows, as `tiering plan` names it; ``auto`` where types differ."""
    entries = [layout.type_layout(node_type) for node_type in layout.feature_types]
    names = {entry.codec or entry.dtype for entry in entries}
    return names.pop() if len(names) == 1 else AUTO


def training_memory(layout: Layout, plan: Document) -> int | None:
    """Return the memory that a plan would count for training from a layout, in bytes; ``None``: of another graph."""
    asked, known = plan["parameters"], [field.name for field in fields(SamplingOptions)]
    sizes, how = tier_bytes(layout), SamplingOptions(**{name: asked[name] for name in known if name in asked})
    with suppress(InputError):  # the layout's graph has no such relations
        return process_memory(layout, how, sum(sizes.values()) - sizes["ssd"])
    return None


def _describe_graph(graph: Any) -> str:
    source, tables = graph.manifest.body["changes"].get("source"), map(graph.feature_table, graph.node_types)
    size = sum(table.bytes for table in tables if table is not None)
    name = as_path(source).name if source else graph.path.name
    counts = f"{format_count(graph.num_nodes())} nodes, {format_count(graph.num_edges())} edges"
    return f"{name}: {counts}, {f'{format_bytes(size)} of features' if size else 'no features'}"


def _describe_hits(evaluation: Document) -> str:
    middle, rates = len(evaluation["shares"]) // 2, evaluation["hit_rates"]
    best = max((name for name in rates if name != ORACLE), key=lambda name: rates[name][middle], default=ORACLE)
    cache = f"a cache of {100 * evaluation['shares'][middle]:g} % of the {cached_unit(evaluation)}"
    most = f"; the best possible order: {100 * rates[ORACLE][middle]:.1f} %" if ORACLE in rates else ""
    return f"{cache}, filled by {best}, serves {100 * rates[best][middle]:.1f} % of reads{most}"


def cached_unit(evaluation: Document) -> str:
    """Return the unit of an evaluation's capacities: bytes where rows have several sizes."""
    return "rows" if len({entry["row_bytes"] for entry in evaluation["types"].values()}) <= 1 else "bytes"


def _compare_plan(plan: Document, layouts: Sequence[Layout]) -> Iterator[tuple[str, str]]:
    """Yield the predicted epoch of each layout with the memory of its tiers, and what would change it."""
    for layout in layouts:
        dtype, memory = stored_dtype(layout), training_memory(layout, plan)
        line = [one for one in plan["epochs"] if one["dtype"] == dtype]
        line = [one for one in line if one["disk"] == line[0]["disk"]]
        if memory is None:
            continue
        if not line:
            yield "", f"Run `tiering plan` with --dtype {dtype}: the plan has no epoch of {layout.path.name}'s dtype."
            continue
        today = max((one for one in line if one["memory"] <= memory), key=lambda one: one["memory"], default=line[0])
        yield _describe_epoch(today, layout.path.name), _advise(today, line, plan["knees"])
    if not layouts:
        for knee in plan["knees"][:1]:
            yield _describe_epoch(knee, ""), ""


def _describe_epoch(epoch: Document, name: str) -> str:
    seconds = max(epoch.get("epoch_seconds", 0), epoch["seconds"])
    took = f"{format_small_seconds(seconds)} of I/O" if seconds else "no I/O"
    of = f"{name} ({epoch['dtype']}, {epoch['disk']})" if name else f"{epoch['dtype']} on {epoch['disk']}"
    return f"{of}: {took} with {format_bytes(epoch['memory'])}, {100 * epoch['hit_rate']:.1f} % of rows from memory"


def _advise(today: Document, line: Sequence[Document], knees: Sequence[Document]) -> str:
    at = {knee["memory"] for knee in knees if (knee["disk"], knee["dtype"]) == (today["disk"], today["dtype"])}
    better = next((one for one in line if one["memory"] in at), today)
    if better["memory"] > today["memory"] and today["epoch_seconds"] > _GAIN * better["epoch_seconds"]:
        times = f"{format_small_seconds(better['epoch_seconds'])} instead of "
        return f"Give training {format_bytes(better['memory'])}: an epoch then takes {times}" + (
            f"{format_small_seconds(today['epoch_seconds'])}."
        )
    return "Nothing in memory: all rows fit." if today["all_fit"] else "More memory would gain little."
