"""Figures kept in a file, and tables written into a page of docs/ between two marks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def kept_results(path: Path, machine: Mapping[str, Any]) -> dict[str, Any]:
    """What a file of results has from this processor, GPU and driver; a new document without."""
    document = json.loads(path.read_text()) if path.exists() else {}
    known = document.get("machine", {})
    same = all(known.get(name) == machine.get(name) for name in ("processor", "gpu"))
    return {"machine": dict(machine), "results": document["results"] if same else {}}


def keep(path: Path, document: Mapping[str, Any]) -> None:
    """Write a file of results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def put(page: Path, begin: str, end: str, text: str) -> bool:
    """Replace what stands in a page between two marks; ``False`` where it has no such place."""
    whole = page.read_text() if page.exists() else ""
    if begin not in whole:
        return False
    before, rest = whole.split(begin, 1)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")
    return True


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """A Markdown table; the columns after the first `left` are aligned right."""
    rules = "|" + "---|" * left + "---:|" * (len(heads) - left)
    return "\n".join(["| " + " | ".join(heads) + " |", rules, *("| " + " | ".join(row) + " |" for row in rows)])


def rate(value: float, unit: str) -> str:
    """A rate for people: ``1.2 G edges/s``, ``25 GB/s``."""
    scale, prefix = next((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, "")) if value >= s)
    return f"{value / (scale or 1):.3g} {prefix}{unit if unit == 'B' else f' {unit}' if prefix else unit}/s"


def spread(entry: Mapping[str, Any], name: str = "ratio") -> str:
    """A ratio with its minimum and maximum."""
    return f"{entry[name]:.2f} ({entry[f'{name}_min']:.2f} .. {entry[f'{name}_max']:.2f})"
