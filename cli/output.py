"""Output of commands: tables for people, one JSON document for machines. Results only; the rest goes to stderr.

Names come from files that anybody may have written: every line passes through `printable`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tiering.description import Fields, Line, Part, Table
from tiering.progress import note as note
from tiering.progress import printable as printable

if TYPE_CHECKING:
    from tiering.run.plan import Estimate

_WIDTH = 150  # columns where standard output is no terminal: wide enough that tables do not wrap in a log


def print_json(document: Any) -> None:
    """Print one JSON document; text stays readable, NaN is refused (it is no JSON)."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n")


def print_line(text: str) -> None:
    """Print one line of a result, unwrapped and without markup."""
    sys.stdout.write(printable(text) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> None:
    """Print a table below a title, if there is one; the first `left` columns are aligned left, the others right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for index, name in enumerate(columns):
        table.add_column(Text(printable(name)), justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row))
    screen = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _WIDTH)
    if title:
        screen.print(Text(printable(title), style="bold"))
    screen.print(table)
    print_line("")


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values in two columns."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        print_line(f"{name:<{width}}  {value}")
    print_line("")


def print_parts(parts: Sequence[Part]) -> None:
    """Print a description; a terminal shows no plots."""
    for part in parts:
        if isinstance(part, Table):
            print_table(part.title, part.columns, part.rows, left=part.left)
        elif isinstance(part, Fields):
            print_fields(part.values)
        elif isinstance(part, Line):
            print_line(part.text)


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
