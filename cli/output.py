"""Output of commands: tables for people, one JSON document for machines. Results only; the rest goes to stderr."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tiering.text.description import Part, to_text
from tiering.text.progress import note as note

if TYPE_CHECKING:
    from tiering.run.plan import Estimate


def print_json(document: Any) -> None:
    """Print one JSON document; text stays readable, NaN is refused (it is no JSON)."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n")


def print_parts(*parts: Part) -> None:
    """Print a description; a terminal shows no plots."""
    click.echo(to_text(parts, partial(click.style, bold=True)), nl=False)


def print_result(as_json: bool, document: Any, *parts: Part) -> None:
    """Print what a command found: one JSON document, or a description."""
    if as_json:
        print_json(document)
    else:
        print_parts(*parts)


def print_artifact(artifact: Any, as_json: bool) -> None:
    """Print what an artifact or an export is: one JSON document, or tables."""
    if as_json:
        print_json(artifact.summary())
    else:
        print_parts(*artifact.describe())


def print_estimate(estimate: Estimate, as_json: bool) -> None:
    """Print an estimate, one JSON document or a table per stage; raises `StorageError` then if a disk is too small."""
    print_result(as_json, estimate.to_json(), *estimate.describe())
    estimate.require_space()
