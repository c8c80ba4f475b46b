"""tiering: hotness scores, reordering and tiered layouts for GNN training on graphs larger than memory.

``tiering.open(path)`` opens any artifact; ``tiering.check(path)`` returns everything wrong with one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tiering.version import __version__

__all__ = ["__version__", "check", "open"]

if TYPE_CHECKING:
    from tiering.artifacts.problems import Problem


def open(path: str | os.PathLike[str]) -> Any:
    """Open the artifact at `path`, whatever it is.

    Returns
    -------
    Graph, Features, Scores, Order or TieredLayout
        By what lies at `path`. Layouts come ready to read: `TieredLayout.features`, `TieredLayout.loader`; torch is
        imported only when tensors are asked for.

    Raises
    ------
    tiering.errors.MissingError
        If there is no artifact at `path`.
    tiering.errors.FormatError
        If it is damaged or of a version this package cannot read.
    """
    from tiering.formats.layout import Layout
    from tiering.formats.registry import open_artifact

    artifact = open_artifact(path)
    if isinstance(artifact, Layout):
        from tiering.loader.layout import TieredLayout

        return TieredLayout(artifact)
    return artifact


def check(
    path: str | os.PathLike[str], level: str = "structure", threads: int = 1, sample: float = 1.0
) -> list[Problem]:
    """Return every problem of the artifact at `path`, nested ones included; an empty list if it is sound.

    Parameters
    ----------
    level
        ``header`` O(1), ``structure`` O(nodes), ``full`` O(edges) and all checksums.
    sample
        At level ``full``: share of the blocks of 64 MiB of each file that is compared.
    """
    from tiering.formats.registry import check_artifact

    return check_artifact(path, level, threads, sample)
