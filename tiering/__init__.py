"""tiering: hotness scores, reordering and tiered layouts for GNN training on graphs larger than memory.

``tiering.open(path)`` opens any artifact; ``tiering.check(path)`` returns its problems. Each command has a function
with the same options. It accepts artifacts, opened or by path, and returns the new artifact, opened:

    graph = tiering.import_graph("data", out="graph")
    scores = tiering.score_graph(graph, out="scores", fanouts=[10, 10])
    tiering.evaluate_scores(graph, [scores], fanouts=[10, 10]).hit_rates
    reordered = tiering.reorder_graph(graph, scores, out="reordered")
    layout = tiering.write_layout(reordered, out="layout", gpu="8GiB", cpu="64GiB", ssd=["/nvme0", "/nvme1"])

``tiering.tiered(tensor, gpu="2GiB", order=scores)`` makes tiers from a tensor in memory, without files.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if find_spec("tiering._native") is None:
    # These are the sources, which Python takes first in their directory, and they have no compiled core. What is
    # installed, if anything is, serves instead as a whole, so that Python and core are of one version.
    _sources = Path(__file__).resolve().parent.parent
    _installed = PathFinder.find_spec("tiering", [folder for folder in sys.path if Path(folder).resolve() != _sources])
    if _installed is not None and _installed.submodule_search_locations:
        __path__[:] = _installed.submodule_search_locations

from tiering.version import __version__

__all__ = [
    "ClusterOptions", "__version__", "check", "copy", "evaluate_scores", "export_layout", "generate_dataset",
    "import_graph", "open", "plan_epochs", "relink", "reorder_graph", "report", "run_chain", "score_graph", "tiered",
    "write_features", "write_layout",
]  # fmt: skip

if TYPE_CHECKING:
    from tiering.artifacts.manifest import Problem
    from tiering.datasets.feature_blocks import write_features
    from tiering.datasets.generated import generate_dataset
    from tiering.loader.tiered_tensor.tensor import tiered
    from tiering.pipeline import (
        copy,
        evaluate_scores,
        export_layout,
        import_graph,
        plan_epochs,
        relink,
        reorder_graph,
        report,
        run_chain,
        score_graph,
        write_layout,
    )  # fmt: skip
    from tiering.run.job import ClusterOptions
_OTHERS = {
    "ClusterOptions": "tiering.run.job",
    "generate_dataset": "tiering.datasets.generated",
    "tiered": "tiering.loader.tiered_tensor.tensor",
    "write_features": "tiering.datasets.feature_blocks",
}
"""Modules of the public names that the pipeline does not have."""


def __getattr__(name: str) -> Any:
    """Load the public functions when the first is requested: ``import tiering`` alone takes no time."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "_" in name:  # a command
        from tiering.memory import require_floor

        require_floor(name.partition("_")[0])
    return getattr(importlib.import_module(_OTHERS.get(name, "tiering.pipeline")), name)


def open(path: str | os.PathLike[str]) -> Any:
    """Open the artifact at `path`: a `Graph`, `Features`, `Scores`, `Order`, `TieredLayout` or `TieredEmbeddings`.

    Layouts and embeddings are ready to read; torch is imported only when tensors are requested. Raises `MissingError`
    if there is nothing at `path`, `FormatError` if it is damaged or of a version this package cannot read.
    """
    from tiering.memory import require_floor

    require_floor("open")
    from tiering.formats.embeddings import Embeddings
    from tiering.formats.layout import Layout
    from tiering.formats.registry import open_artifact
    from tiering.text.arguments import require_local

    require_local(path=path)
    artifact = open_artifact(path, outside=False)
    if isinstance(artifact, Layout):
        from tiering.loader.layout import TieredLayout

        return TieredLayout(artifact)
    if isinstance(artifact, Embeddings):
        from tiering.loader.inference.embeddings import TieredEmbeddings

        return TieredEmbeddings.open(path, outside=False)
    return artifact


def check(
    path: str | os.PathLike[str], level: str = "structure", threads: int = 1, sample: float = 1.0,
    cluster: ClusterOptions | None = None,
) -> list[Problem]:  # fmt: skip
    """Return every problem of the artifact at `path`, nested ones included; an empty list if it is sound.

    Parameters
    ----------
    level
        ``header`` O(1), ``structure`` O(nodes), ``full`` O(edges) and all checksums.
    sample
        At level ``full``: fraction of the blocks of 64 MiB of each file that is compared.
    cluster
        At level ``full`` without `sample`: options of the tasks that compare all blocks.
    """
    from tiering.memory import require_floor

    require_floor("check")
    from tiering.artifacts.artifact import VerifyReport
    from tiering.formats.registry import check_artifact

    damaged: Any = {}
    if cluster is not None and cluster.cuts and level == "full" and sample >= 1:
        from tiering.run.checks import compare_by_tasks

        damaged = compare_by_tasks(Path(path), cluster)
    return check_artifact(path, level, VerifyReport(threads, sample, damaged))
