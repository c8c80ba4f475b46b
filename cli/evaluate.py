"""`tiering evaluate` and `plan`: what caches would serve, and what an epoch would read from SSD, by score and size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tiering.evaluation.options import TIERS, EvaluationOptions, PlanOptions
from tiering.sampling.options import SamplingOptions
from tiering.text.options import options_of
from tiering.text.units import parse_bytes, parse_threads

from .options import Call, Common, GraphArgument, Seed, SeedTime, Train, group, takes
from .output import note, print_json, print_parts, print_result

_FANOUTS = options_of(SamplingOptions)["fanouts"]
_tier = partial(Option, metavar="SIZE", rich_help_panel=TIERS)


@takes(
    group(EvaluationOptions),
    group(SamplingOptions, *(name for name in options_of(SamplingOptions) if name != "fanouts")),
    group(Common, "threads", "memory", "no_verify", "json"),
)
def evaluate_command(
    call: Call,
    graph: Annotated[Path, Argument(metavar="G", help="Graph; or a layout, to evaluate its order and tiers.")],
    scores: Annotated[
        list[Path] | None, Option("--scores", "-s", help="Scores to evaluate; repeatable.", metavar="S")
    ] = None,
    fanouts: Annotated[
        list[str] | None, Option(help=f"{_FANOUTS.help} Repeatable. Default: 10,10,10.", metavar="N,N,..")
    ] = None,
    train: Train = None,
    seed_time: SeedTime = None,
    gpu: Annotated[str | None, _tier(help="Rows in each GPU, for example 8GiB or 5%.")] = None,
    peer: Annotated[str | None, _tier(help="Rows interleaved over P GPUs: 4x8GiB.", metavar="PxSIZE")] = None,
    cpu: Annotated[str | None, _tier(help="Rows in host memory, for example 64GiB or 20%.")] = None,
    ssd: Annotated[bool, _tier("--ssd", help="Put the remaining rows on SSD.")] = False,
    seed: Seed = 0,
    plot: Annotated[Path | None, Option(help="Plot the curves to this file.", metavar="FILE.png")] = None,
) -> None:
    """Count the reads of sampled epochs that a cache of 1 to 40 % would serve, filled by each score.

    Several --fanouts give one table each; --plot shows them side by side.
    """
    from tiering.evaluation.figures import plot as draw
    from tiering.evaluation.result import evaluation_tables, notes_on
    from tiering.formats.registry import open_artifact
    from tiering.formats.scores import Scores
    from tiering.layout.tiers import parse_capacities
    from tiering.pipeline import evaluate_scores

    refuse_plot(plot, [graph, *(scores or [])])
    asked: dict[str, Any] = {**call.collect(EvaluationOptions), **call.collect(SamplingOptions)}
    if "row_bytes" in asked:
        asked["row_bytes"] = parse_row_bytes(asked["row_bytes"])
    base: Any = open_artifact(graph)
    judged = [Scores.open(path) for path in scores or []]
    walks = [name for name in ("num_walks", "walk_length", "restart", "metapaths") if name in asked]
    if walks and call.sampler != "pinsage":
        note(f"note: {', '.join(walks).replace('_', ' ')} has no effect on sampler {call.sampler}, only on pinsage")
    if (gpu, peer, cpu, ssd) != (None, None, None, False):
        asked["tiers"] = parse_capacities(gpu, peer, cpu, ssd=ssd)
    asked |= {"train": train, "seed_time": seed_time, "seed": seed, "memory": call.memory}
    asked |= {"threads": parse_threads(call.threads), "verify": not call.no_verify}
    results = [evaluate_scores(base, judged, fanouts=hops, **asked) for hops in fanouts or ["10,10,10"]]
    for text in notes_on(results):
        note(f"note: {text}")
    if call.json:
        documents = [result.to_json() for result in results]
        document = documents[0] if len(documents) == 1 else {"evaluations": documents}
        print_json({**document, "plot": plot and str(plot)})
    else:
        for result in results:
            print_parts(*evaluation_tables(result, len(results) > 1), *([""] if len(results) > 1 else []))
    if plot is not None:
        draw(results, plot)
        note(f"plot: {plot}")


def refuse_plot(plot: Path | None, inputs: Sequence[Path]) -> None:
    """Refuse a plot that cannot be drawn or would overwrite an input, before minutes of sampling."""
    from tiering.artifacts.overlap import refuse_overlap
    from tiering.evaluation.figures import open_figure

    if plot is not None:
        refuse_overlap(plot.absolute(), inputs)
        open_figure(plot)


def parse_row_bytes(text: str) -> int | dict[str, int]:
    """Return the bytes of a row, or of rows by type."""
    if "=" not in text:
        return parse_bytes(text, "--row-bytes")
    pairs = [part.partition("=") for part in text.split(",")]
    return {name.strip(): parse_bytes(size, f"--row-bytes {name.strip()}") for name, _, size in pairs}


@takes(group(PlanOptions), group(SamplingOptions), group(Common, "threads", "memory", "no_verify", "json"))
def plan_command(
    call: Call,
    graph: GraphArgument,
    scores: Annotated[
        Path | None, Option(help="Scores to order the rows by. Default: the graph's order, or out-degree.", metavar="S")
    ] = None,
    train: Train = None,
    seed_time: SeedTime = None,
    row_bytes: Annotated[
        str | None, Option(help="Bytes per row, for node types without features.", metavar="SIZE|TYPE=SIZE,..")
    ] = None,
    seed: Seed = 0,
    plot: Annotated[Path | None, Option(help="Plot seconds of I/O by memory to this file.", metavar="FILE.png")] = None,
) -> None:
    """Predict seconds of I/O, bytes and hit rate of an epoch, for sizes of memory, disks and stored dtypes."""
    from tiering.pipeline import plan_epochs

    refuse_plot(plot, [graph, *([] if scores is None else [scores])])
    asked: dict[str, Any] = {**call.collect(PlanOptions), **call.collect(SamplingOptions), "train": train, "seed": seed}
    asked |= {"seed_time": seed_time, "threads": call.threads, "memory": call.memory, "verify": not call.no_verify}
    if row_bytes is not None:
        asked["row_bytes"] = parse_row_bytes(row_bytes)
    found = plan_epochs(graph, scores, **asked)
    drawn = str(plot) if plot is not None and found.reads_disk else None
    print_result(call.json, {**found.to_json(), "plot": drawn}, *found.describe())
    if plot is not None and found.plot(plot) is None:
        note(f"note: no plot written to {plot}: all rows fit in memory at every size compared, so epochs read nothing")
    elif plot is not None:
        note(f"plot: {plot}")
