"""`tiering evaluate`: what share of the reads each score would serve from a cache, counted by the training sampler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tiering.errors import CapabilityError, InputError, MissingError
from tiering.options import options_of
from tiering.sampling import SamplingOptions
from tiering.units import parse_bytes, parse_fanouts, parse_threads

from .options import Call, Common, GraphArgument, Group, Seed, Train, flag, parse_metapaths, takes
from .output import note, print_json, print_line, print_parts

if TYPE_CHECKING:
    from tiering.formats.graph import Graph
    from tiering.readahead.disk_speed import DiskSpeed

_FANOUTS = options_of(SamplingOptions)["fanouts"]
_PLOT_FORMATS = (".png", ".svg", ".pdf")
_JUDGED, _TIERS = "What is judged", "Traffic of a tier plan, sizes as in `tiering layout`"
_READING = "Seconds of reading from SSD, simulated"
_MEASURED = "measured:"


def _option(panel: str, name: str, metavar: str | None, text: str, default: bool = False) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel, show_default=default)


@takes(
    Group(SamplingOptions, ("batch_size", "sampler", "frontier", "num_walks", "walk_length", "restart", "metapaths")),
    Group(Common, ("threads", "memory", "no_verify", "json")),
)
def evaluate_command(
    call: Call,
    graph: GraphArgument,
    scores: Annotated[
        list[Path] | None,
        typer.Option("--scores", "-s", metavar="S", help="Scores to judge; repeatable.", show_default=False),
    ] = None,
    fanouts: Annotated[
        list[str] | None, flag(f"{_FANOUTS.help} Repeatable. Default: 10,10,10.", "--fanouts", metavar="N,N,..")
    ] = None,
    train: Train = None,
    epochs: Annotated[int, _option(_JUDGED, "--epochs", "N", "Epochs to count.", True)] = 3,
    first_epoch: Annotated[
        int | None,
        _option(_JUDGED, "--first-epoch", "N", "Number of the first. Default: the first that no score has counted."),
    ] = None,
    shares: Annotated[
        str | None, _option(_JUDGED, "--shares", "P,P,..", "Capacities, such as 1%,5%. Default: 1,2,5,10,20,40%.")
    ] = None,
    resamples: Annotated[int, _option(_JUDGED, "--resamples", "N", "Draws behind the ±; 0 for none.", True)] = 200,
    gpu: Annotated[str | None, _option(_TIERS, "--gpu", "SIZE", "Rows every GPU holds: 8GiB, 5%.")] = None,
    peer: Annotated[str | None, _option(_TIERS, "--peer", "PxSIZE", "Rows spread over P GPUs: 4x8GiB.")] = None,
    cpu: Annotated[str | None, _option(_TIERS, "--cpu", "SIZE", "Rows in host memory: 64GiB, 20%.")] = None,
    ssd: Annotated[bool, _option(_TIERS, "--ssd", None, "The rest lies on SSD.")] = False,
    page: Annotated[str, _option(_TIERS, "--page", "SIZE", "Page of the SSD tier.", True)] = "4KiB",
    block: Annotated[
        str, _option(_TIERS, "--block", "SIZE", "Where SSD reads begin and end: 512, or 4KiB on some drives.", True)
    ] = "512",
    row_bytes: Annotated[
        str | None,
        _option(_TIERS, "--row-bytes", "SIZE|TYPE=SIZE,..", "Of types without features, such as learned embeddings."),
    ] = None,
    seed: Seed = 0,
    rows_in_memory: Annotated[
        list[str] | None,
        _option(
            _READING,
            "--rows-in-memory",
            "SIZE",
            "Memory for rows: 4GiB, or 10% of all; repeatable. All rows lie on SSD, in the order of each score. "
            "(--memory is what this command itself may take.)",
        ),
    ] = None,
    ssd_model: Annotated[
        str | None,
        _option(
            _READING,
            "--ssd-model",
            "FILE|measured:DIR",
            "The disk's speed: a JSON file with reads_per_second (of 4 KiB, at random) and bytes_per_second, or that "
            "of the directory's disk, measured now by a file written there for a while.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the curves.", show_default=False)
    ] = None,
) -> None:
    """Count the reads of sampled epochs: what share would a cache of 1 to 40 % serve, filled by each score?

    Several --fanouts give one table each, and --plot draws their depths beside each other.
    """
    from tiering.evaluation import evaluate, named_scores
    from tiering.evaluation.tables import evaluation_tables, notes_on
    from tiering.formats.graph import Graph
    from tiering.formats.scores import Scores
    from tiering.layout import parse_capacities

    if plot is not None:
        _check_plot(plot, [graph, *(scores or [])])
    speed = _ssd_model(ssd_model)
    opened, judged = Graph.open(graph), [Scores.open(path) for path in scores or []]
    for artifact in (opened, *judged):
        artifact.verify_reads(not call.no_verify)
    named = named_scores(opened, judged)
    how = {"seed": seed, **call.given(SamplingOptions)}
    walks = [name for name in ("num_walks", "walk_length", "restart", "metapaths") if name in how]
    if walks and call.sampler != "pinsage":
        note(f"note: {', '.join(walks).replace('_', ' ')} has no effect on sampler {call.sampler}, only on pinsage")
    if "metapaths" in how:
        how["metapaths"] = parse_metapaths(how["metapaths"])
    asked: dict[str, Any] = {
        "epochs": epochs,
        "first_epoch": first_epoch,
        "train": train,
        "tiers": parse_capacities(gpu, peer, cpu, ssd=ssd)
        if (gpu, peer, cpu, ssd) != (None, None, None, False)
        else None,
        "page": page,
        "block": block,
        "row_bytes": _row_bytes(opened, row_bytes),
        "resamples": resamples,
        "rows_in_memory": rows_in_memory or (),
        "ssd_model": speed,
        "threads": parse_threads(call.threads),
        "memory": call.memory,
        **({} if shares is None else {"shares": _shares(shares)}),
    }
    hops = [parse_fanouts(text) for text in fanouts or ["10,10,10"]]
    results = [evaluate(opened, named, SamplingOptions(fanout, **how), **asked) for fanout in hops]
    for artifact in (opened, *judged):
        artifact.finish_reads()
    for text in notes_on(results):
        note(f"note: {text}")
    if call.json:
        documents = [result.to_json() for result in results]
        document = documents[0] if len(documents) == 1 else {"evaluations": documents}
        print_json({**document, "plot": None if plot is None else str(plot)})
    else:
        for result in results:
            print_parts(evaluation_tables(result, len(results) > 1))
            if len(results) > 1:
                print_line("")
    if plot is not None:
        from tiering.evaluation import plot as draw

        draw(results, plot)
        note(f"plot: {plot}")


def _shares(text: str) -> list[float]:
    """Capacities from ``1%,5%,0.1``."""
    shares = []
    for part in text.split(","):
        number = part.strip().removesuffix("%")
        try:
            shares.append(float(number) / (100 if number != part.strip() else 1))
        except ValueError:
            raise InputError(f"--shares: expected shares such as 1%,5%,20%, found {part!r}") from None
    return shares


def _row_bytes(graph: Graph, text: str | None) -> int | dict[str, int] | None:
    if text is None:
        return None
    if "=" not in text:
        return parse_bytes(text, "--row-bytes")
    pairs = [part.partition("=") for part in text.split(",")]
    return {name.strip(): parse_bytes(size, f"--row-bytes {name.strip()}") for name, _, size in pairs}


def _ssd_model(model: str | None) -> DiskSpeed | str | None:
    """The model; measured if that is asked for: now, so that a disk that cannot be is refused before sampling."""
    if model is None or not model.startswith("measured"):
        return model
    folder = Path(model.removeprefix(_MEASURED))
    if not model.startswith(_MEASURED) or not folder.is_dir():
        raise InputError(f"--ssd-model: expected a file, or {_MEASURED} and a directory of the disk, found {model!r}")
    from tiering.doctor import measure_disk
    from tiering.readahead.disk_speed import DiskSpeed

    figures = measure_disk(folder, 1 << 30, 2.0)
    return DiskSpeed(figures["reads_per_second"], figures["bytes_per_second"])


def _check_plot(plot: Path, reads: list[Path]) -> None:
    """Refuse now what would fail after minutes of sampling, and a file in an artifact that is read."""
    from importlib.util import find_spec

    from tiering.artifacts.overlap import refuse_overlap

    refuse_overlap(plot.absolute(), reads)
    if plot.suffix.lower() not in _PLOT_FORMATS:
        raise InputError(f"--plot {plot}: expected a file name ending in {', '.join(_PLOT_FORMATS)}")
    if not plot.absolute().parent.is_dir():
        raise MissingError(f"--plot {plot}: the directory {plot.absolute().parent} does not exist; make it first")
    if find_spec("matplotlib") is None:
        raise CapabilityError("--plot needs matplotlib: pip install matplotlib")
