"""The functions that `tiering` offers beside `open` and `check`: one for each command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiering.evaluation import Evaluation, evaluate, named_scores
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.pipeline.run import run_config
from tiering.pipeline.stages import Pathlike, layout, opened, reading
from tiering.pipeline.stages import import_dataset as import_graph
from tiering.pipeline.stages import reorder as reorder_graph
from tiering.pipeline.stages import score as score_graph
from tiering.pipeline.stages import transpose as transpose_graph
from tiering.sampling import Fanout

if TYPE_CHECKING:
    from tiering.loader import TieredLayout

__all__ = [
    "evaluate_scores",
    "generate_dataset",
    "import_graph",
    "reorder_graph",
    "run_chain",
    "score_graph",
    "transpose_graph",
    "write_layout",
]


def evaluate_scores(
    graph: Graph | Pathlike,
    scores: Sequence[Scores | Pathlike] = (),
    *,
    fanouts: Sequence[Fanout] = (10, 10, 10),
    verify: bool = True,
    **options: Any,
) -> Evaluation:
    """Count the reads of sampled epochs: what share would caches filled by each score have served?

    Parameters
    ----------
    scores
        Scores of the graph; the oracle, which knows the reads, is always there.
    fanouts
        From the seeds outwards.
    verify
        Compare what is read of the artifacts with their checksums.
    **options
        Of `tiering.evaluation.evaluate`: ``epochs``, ``tiers``, ``shares``..., and of the sampler (``batch_size``,
        ``seed``...).
    """
    judged = [opened(each, Scores, verify) for each in scores]
    with reading(graph := opened(graph, Graph, verify), *judged):
        result = evaluate(graph, named_scores(graph, judged), fanouts, **options)
        for artifact in (graph, *judged):
            artifact.finish_reads()
    return result


def generate_dataset(out: Pathlike, *, nodes: int, edges: int, **options: Any) -> Path:
    """Generate a dataset in IGB's form; returns its directory, for `import_graph`.

    Parameters
    ----------
    **options
        Of `tiering.datasets.synthetic.generate`: ``dim``, ``classes``, ``seed``, ``hetero``...
    """
    from tiering.datasets.synthetic import generate

    generate(out, nodes=nodes, edges=edges, **options)
    return Path(out)


def write_layout(reordered: Graph | Pathlike, out: Pathlike, **options: Any) -> TieredLayout:
    """Place the feature rows of a reordered graph in tiers; options: see `tiering.pipeline.layout`."""
    import tiering

    opened_layout: TieredLayout = tiering.open(layout(reordered, out, **options).path)
    return opened_layout


def run_chain(config: str | os.PathLike[str], **options: Any) -> TieredLayout:
    """Run the whole chain that a TOML file describes; options: see `tiering.pipeline.run_config`."""
    import tiering

    opened_layout: TieredLayout = tiering.open(run_config(config, **options)[-1]["path"])
    return opened_layout
