"""The formats there are: how each wants arrays stored, what else lies beside them, and the lines that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tiering.errors import InputError
from tiering.exports import dgl, graphbolt, pyg, raw, wholegraph
from tiering.exports.contents import Contents


@dataclass(frozen=True)
class Kind:
    """A format."""

    name: str
    lines: Callable[[Path, Contents], list[str]]
    """Python that reads an export at a path."""
    suffix: str = ".npy"
    """Of files of arrays: ``.npy``, or ``.bin`` for files without header."""
    edge_index: bool = False
    """Edges are pairs, int64 of shape (2, edges), sorted by destination; else ``indptr`` and ``indices``."""
    wide: bool = False
    """``indices`` are int64 always."""
    bfloat16: str = "uint16"
    """What the bits of bfloat16 are stored as."""
    seeds: bool = False
    """Labels of every split lie in files of their own."""
    documents: Callable[[str, Contents], Mapping[str, str]] = lambda name, contents: {}
    """Small files, by name: of an export of a name."""
    dtypes: frozenset[str] = field(default_factory=frozenset)
    """Element types of features that there may be; all, if none are named."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "graphbolt", graphbolt.lines, edge_index=True, bfloat16="int16", seeds=True, documents=graphbolt.documents
        ),
        Kind("wholegraph", wholegraph.lines, suffix=".bin", dtypes=wholegraph.DTYPES),
        Kind("pyg", pyg.lines, edge_index=True, documents=pyg.documents),
        Kind("dgl", dgl.lines, wide=True, documents=dgl.documents),
        Kind("raw", raw.lines),
    )
}


def kind_of(name: str) -> Kind:
    """The format of a name; `InputError` if there is none."""
    if name not in KINDS:
        raise InputError(f"to: expected one of {', '.join(KINDS)}, found {name!r}")
    return KINDS[name]
