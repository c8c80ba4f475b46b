"""Pages of the docs site, one for each family of published datasets, made of its specification and of plans."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tiering.datasets.specs import DatasetSpec, list_files
from tiering.errors import BudgetError
from tiering.pipeline import estimate_run, estimate_spec
from tiering.run.plan import Estimate
from tiering.text.units import format_bytes, format_count, format_seconds

MEMORIES = "64GiB", "128GiB", "256GiB"
"""Memory of usual machines; a page estimates its job on the smallest with enough."""


def dataset_page(family: Sequence[DatasetSpec], jobs: Path) -> str:
    """Return the page of a family; `jobs` has chains, by name of the dataset."""
    last = family[-1]
    text: list[str] = [
        f"# {last.title}",
        f"From <{last.home}>; license: {last.license}. Cite: {last.citation}.",
        f"Labels: {last.labels} Splits: {last.splits}",
        "## Sizes",
        *_table(
            ("dataset", "nodes", "edges", "size of the files", "size of the graph", "least memory"), map(_sizes, family)
        ),
        f"## Files of {last.name}",
        *_table(("file", "content", "size"), [(f"`{path}`", holds, size) for path, holds, size in list_files(last)]),
        "## One command",
        f"```bash\ntiering import DIR --spec {last.name} --out graph\n```",
    ]
    shown = next((source for source in reversed(family) if (jobs / f"{source.name}.toml").is_file()), last)
    text += _job(jobs / f"{shown.name}.toml", shown)
    text.append("## Known defects")
    text += [f"- {defect['text']} ({defect['id']}) **{defect['cure']}**" for defect in last.defects]
    return "\n\n".join(text) + "\n"


def _table(columns: tuple[str, ...], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return ["\n".join(lines)]


def _sizes(source: DatasetSpec) -> tuple[str, ...]:
    files = format_bytes(source.bytes) if source.bytes else ""
    sizes = estimate_spec(source)
    if sizes is None:
        return f"`{source.name}`", "", "", files, "", ""
    graph, memory = sizes
    counts = format_count(graph.num_nodes()), format_count(graph.num_edges())
    return f"`{source.name}`", *counts, files, format_bytes(graph.graph_bytes()), format_bytes(memory)


def _job(job: Path, source: DatasetSpec) -> list[str]:
    """Return the chain that prepares the dataset, and its estimates."""
    if not job.is_file():
        return []
    with tempfile.TemporaryDirectory() as folder:
        memory, estimate = _smallest_machine(shutil.copy(job, folder))
    return [
        "## The whole job",
        f"`tiering run examples/datasets/{job.name}`, with {memory} of memory:",
        f"```toml\n{job.read_text()}```",
        *_table(
            ("stage", "time", "peak memory", "bytes read", "bytes written", "bytes on disk afterwards"),
            _stages(estimate),
        ),
        "These are estimates, not measurements. They assume disks of 1 GB/s and 10 ns per edge and thread.",
    ]


def _smallest_machine(job: Path) -> tuple[str, Estimate]:
    for memory in MEMORIES[:-1]:
        with contextlib.suppress(BudgetError):
            return memory, estimate_run(job, memory=memory)
    return MEMORIES[-1], estimate_run(job, memory=MEMORIES[-1])


def _stages(estimate: Estimate) -> list[tuple[str, ...]]:
    return [
        (
            plan.stage,
            "about " + format_seconds(plan.seconds),
            format_bytes(plan.memory),
            format_bytes(plan.disk_read),
            format_bytes(plan.disk_written),
            format_bytes(plan.disk_left),
        )
        for plan in estimate.plans
    ]
