"""Descriptions, for people, of what commands made or would take. Machines get `summary` and estimates as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import print_json, print_parts

if TYPE_CHECKING:
    from tiering.artifacts.artifact import Artifact
    from tiering.plan import Estimate


def print_artifact(artifact: Artifact, as_json: bool) -> None:
    """Print what an artifact is: one JSON document, or tables."""
    if as_json:
        print_json(artifact.summary())
    else:
        print_parts(artifact.describe())


def print_estimate(estimate: Estimate, as_json: bool) -> None:
    """Print a estimate, one JSON document or a table per stage; raises `StorageError` then if a disk is too small."""
    if as_json:
        print_json(estimate.to_json())
    else:
        print_parts(estimate.describe())
    estimate.require_space()
