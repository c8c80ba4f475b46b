"""The commands from a graph to tiers: `tiering score`, `reorder`, `layout`, `export`, and `run`, the whole chain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tiering.layout.options import BATCHES, LayoutOptions
from tiering.run.options import ClusterOptions
from tiering.sampling.options import SamplingOptions
from tiering.scores.options import AUTO, AUTO_HELP, HELP, ScoreOptions
from tiering.text.description import Table
from tiering.text.units import format_seconds

from .options import MEMORY, STAGE, Call, Common, GraphArgument, Out, Seed, SeedTime, Train, group, takes
from .output import print_estimate, print_result

_METHOD = " ".join(f"{name}: {text}" for name, text in HELP.items()) + f" {AUTO}: {AUTO_HELP}"
_FROM = (
    "Use your own scores: a .npy file with one finite number of 0 or more per node, by original id. TYPE=FILE, "
    "repeated, if several types have features."
)
_FIRST = (
    "Pinned nodes: they come first whatever their score, so that the fastest tiers store them. A .npy file of "
    "original ids, in the order wanted; TYPE=FILE, repeated, for several types."
)


@takes(group(SamplingOptions), group(ScoreOptions), *STAGE)
def score_command(
    call: Call,
    graph: GraphArgument,
    out: Out,
    method: Annotated[str, Option(help=_METHOD, metavar="|".join((AUTO, *HELP)))] = AUTO,
    from_: Annotated[list[str] | None, Option("--from", help=_FROM, metavar="[TYPE=]FILE")] = None,
    train: Train = None,
    seed_time: SeedTime = None,
    seed: Seed = 0,
) -> None:
    """Predict how often training will read each node's features and, if fanouts are given, its adjacency list."""
    # Only what stands on the command line: an option that does not matter to the method is noted, a default is not.
    given = {**call.collect(ScoreOptions, SamplingOptions), "scores": from_, "train": train}
    given["seed_time"] = seed_time
    if "seed" in call.standing:
        given["seed"] = seed
    call.run_stage("estimate_score", "score_graph", graph, out, method=method, **given)


@takes(*STAGE)
def reorder_command(
    call: Call,
    graph: GraphArgument,
    scores: Annotated[Path, Option(help="Scores of this graph.", metavar="S")],
    out: Out,
    first: Annotated[list[str] | None, Option(help=_FIRST, metavar="[TYPE=]FILE")] = None,
    features: Annotated[
        bool, Option("--features", help="Also write a reordered feature table; a layout does not need it.")
    ] = False,
) -> None:
    """Renumber the nodes by score, hottest first: adjacency, labels, splits and edge data, with a map to old ids."""
    asked = {"first": first, "features": features}
    call.run_stage("estimate_reorder", "reorder_graph", graph, scores, out, **asked)


@takes(group(LayoutOptions), group(SamplingOptions, *BATCHES), *STAGE)
def layout_command(
    call: Call,
    reordered: Annotated[Path, Argument(metavar="R", help="Reordered graph.")],
    out: Out,
    scores: Annotated[
        Path | None,
        Option(help="Scores that R was ordered by. --adjacency-cache needs them, edge features use them.", metavar="S"),
    ] = None,
) -> None:
    """Divide the feature rows into tiers, hottest first, and write the files that each tier is loaded from.

    With --adjacency-cache, the GPU's memory is shared with the hottest adjacency lists. Automatic tier sizes reserve
    memory for batches of --batch-size with --fanouts (10,10,10 by default).
    """
    options = call.collect(LayoutOptions, SamplingOptions)
    call.run_stage("estimate_layout", "layout", reordered, out, scores=scores, **options)


@takes(group(Common))
def export_command(
    call: Call,
    layout: Annotated[Path, Argument(metavar="L", help="Layout, graph (reordered or not), or embeddings.")],
    out: Annotated[Path, Option("--out", "-o", help="Directory to write.", metavar="DIR")],
    original_order: Annotated[bool, Option("--original-order", help="Number nodes by original id, not rank.")] = False,
    stored: Annotated[
        bool, Option("--stored", help="Do not decode encoded rows: write them as stored, and the codec's parameters.")
    ] = False,
    format_: Annotated[
        str, Option("--format", help="Format of embeddings: npy, or parquet with your own ids.", metavar="npy|parquet")
    ] = "npy",
) -> None:
    """Write adjacency, features, labels and splits as .npy files for other programs; embeddings also as parquet."""
    asked = {"original_order": original_order, "stored": stored, "format": format_}
    call.run_stage("estimate_export", "export_layout", layout, out, **asked)


@takes(group(ClusterOptions), group(Common, "threads", "no_verify", "dry_run", "json"))
def run_command(
    call: Call,
    config: Annotated[Path, Argument(metavar="CONFIG.toml", help="TOML file of the chain.")],
    memory: Annotated[
        str | None,
        Option(
            help=f"{MEMORY.help} Default: the file's, or auto.", metavar=MEMORY.metavar, rich_help_panel=MEMORY.panel
        ),
    ] = None,
    force: Annotated[bool, Option("--force", help="Redo every step.")] = False,
) -> None:
    """Run the whole chain from one TOML file. Finished steps are kept: a rerun resumes at the first unfinished step."""
    from tiering import pipeline

    asked = {"threads": call.threads, "memory": memory, "force": force, "cluster": call.cluster()}
    if call.dry_run:
        print_estimate(pipeline.estimate_run(config, **asked), call.json)
        return
    report = pipeline.run_config(config, verify=not call.no_verify, **asked)
    rows = [
        (step["stage"], "done" if step["done"] else "up to date", format_seconds(step["seconds"]), step["path"])
        for step in report
    ]
    rows.append(("all", "", format_seconds(sum(step["seconds"] for step in report)), ""))
    table = Table("", ("step", "result", "time", "artifact"), rows, left=2)
    print_result(call.json, {"config": str(config), "stages": report}, table)
