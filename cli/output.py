"""Output of commands: tables for people, one JSON document for machines. Results only; the rest goes to stderr.

Names come from files that anybody may have written: every line passes through `printable`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tiering.text.description import Fields, Part, Table, to_text
from tiering.text.progress import note as note
from tiering.text.progress import printable as printable

if TYPE_CHECKING:
    from tiering.run.plan import Estimate


def print_json(document: Any) -> None:
    """Print one JSON document; text stays readable, NaN is refused (it is no JSON)."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n")


def print_line(text: str) -> None:
    """Print one line of a result, unwrapped and without markup."""
    sys.stdout.write(printable(text) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> None:
    """Print a table below a title, if there is one; the first `left` columns are aligned left, the others right."""
    print_parts([Table(title, columns, list(rows), left)])


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values in two columns."""
    print_parts([Fields(fields)])


def print_parts(parts: Sequence[Part]) -> None:
    """Print a description; a terminal shows no plots."""
    click.echo(to_text(parts, partial(click.style, bold=True)), nl=False)


def print_artifact(artifact: Any, as_json: bool) -> None:
    """Print what an artifact or an export is: one JSON document, or tables."""
    if as_json:
        print_json(artifact.summary())
    else:
        print_parts(artifact.describe())


def print_estimate(estimate: Estimate, as_json: bool) -> None:
    """Print an estimate, one JSON document or a table per stage; raises `StorageError` then if a disk is too small."""
    if as_json:
        print_json(estimate.to_json())
    else:
        print_parts(estimate.describe())
    estimate.require_space()
