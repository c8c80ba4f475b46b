"""`tiering score`: predict how often each node's features will be read."""

from __future__ import annotations

from typing import Annotated

from tiering.sampling import SamplingOptions
from tiering.scores.request import ScoreOptions

from .options import STAGE, Call, GraphArgument, Group, Out, Seed, Train, flag, takes

METHODS = "auto|random|degree|rpr|wrpr|presample|vip|hybrid"
_HELP = (
    "degree: out-degree. rpr: reverse PageRank. wrpr: reverse PageRank weighted to the training nodes. "
    "presample: count some sampled epochs. vip: expected reads from fanouts and degrees. "
    "hybrid: presample corrected by vip. random: a baseline. "
    "auto: hybrid if --fanouts is given, else wrpr if there are training nodes, else rpr."
)
_FROM = (
    "Your own scores instead of a method: a .npy file of one finite number of 0 or more per node, in original ids; "
    "TYPE=FILE, repeated, where several types have features."
)


@takes(Group(SamplingOptions), Group(ScoreOptions), *STAGE)
def score_command(
    call: Call,
    graph: GraphArgument,
    out: Out,
    method: Annotated[str, flag(_HELP, "--method", metavar=METHODS, default=True)] = "auto",
    from_: Annotated[list[str] | None, flag(_FROM, "--from", metavar="[TYPE=]FILE")] = None,
    train: Train = None,
    seed: Seed = 0,
) -> None:
    """Predict how often training will read each node's features, and where fanouts are given, its adjacency."""
    from tiering import pipeline

    # Only what stands on the command line: an option that does not matter to the method is noted, a default is not.
    given = {**call.collect(ScoreOptions), **call.collect(SamplingOptions)}
    if call.stands("seed"):
        given["seed"] = seed
    call.run_stage(
        pipeline.estimate_score, pipeline.score_graph, graph, out, method=method, scores=from_, train=train, **given
    )
