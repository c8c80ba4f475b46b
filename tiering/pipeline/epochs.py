"""Predicted epochs of a graph, with what a prediction needs of the machine and of scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiering.errors import InputError
from tiering.evaluation.predict import predict
from tiering.evaluation.predictions import EpochPredictions
from tiering.evaluation.run import named_scores
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.pipeline.stage import Pathlike, StageRun, reading
from tiering.readahead.disk_speed import MEASURED, DiskSpeed
from tiering.readahead.disks import Disk
from tiering.sampling.options import Fanouts, SamplingOptions
from tiering.scores.plan import plan_score
from tiering.text.options import options_of
from tiering.text.progress import note

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.evaluation.options import PlanKeywords

_SIZE, _SECONDS = 1 << 30, 2.0  # of the file by which a disk is measured, and of each of its figures


def plan_epochs(
    graph: Graph | Pathlike,
    scores: Scores | Pathlike | None = None,
    *,
    fanouts: Fanouts = (10, 10, 10),
    verify: bool = True,
    **options: Unpack[PlanKeywords],
) -> EpochPredictions:
    """Predict what an epoch of training reads from SSD, for sizes of memory, disks and stored dtypes.

    Parameters
    ----------
    graph
        A graph, opened or by path. Without `scores`, rows of a graph that is not reordered are ordered by out-degree.
    scores
        Scores of the graph, by which its rows would be ordered.
    fanouts
        Neighbors per hop, the seeds' own first, in any form of `tiering.text.units.parse_fanouts`.
    **options
        Options of `tiering.evaluation.predict.predict`: ``rows_in_memory``, ``disk``, ``lists_disk``, ``dtype``,
        ``step_seconds``, ``target``, ``price``, ``train``..., and of `tiering.sampling.SamplingOptions`.
    """
    run, given = StageRun("", verify=verify), dict[str, Any](options)
    base = run.open(graph, Graph)
    known = None if scores is None else run.open(scores, Scores)
    sampled = {name: given.pop(name) for name in {*options_of(SamplingOptions), "seed"} if name in given}
    how, names = SamplingOptions(**{"fanouts": fanouts, **sampled}), given.get("disk", ())
    if names:
        names = [names] if isinstance(names, str | Disk) else names
        given["disk"] = [measured_disk(base.path, name) for name in names]
    if (lists_disk := given.get("lists_disk")) is not None:
        given["lists_disk"] = measured_disk(base.path, lists_disk)
    read = [base] if known is None else [base, known]
    with reading(*read):
        order: Any = known if known is None else next(iter(named_scores(base, [known]).values()))
        if known is None and base.order is None:
            note(f"note: {base.path} is not reordered: assuming out-degree order; give --scores to use another order")
            degree = plan_score(base, "degree", threads=given.get("threads"))
            order = degree.method.compute(base, degree.request).feature
        found = predict(base, how, scores=order, **given)
        for artifact in read:
            artifact.finish_reads()
    return found


def measured_disk(place: Path, name: str | Disk) -> str | Disk:
    """Return the disk of ``measured`` or ``measured:DIR``, measured now; other names stay."""
    text = str(getattr(name, "name", name))
    if isinstance(name, Disk) or not text.startswith(MEASURED):
        return name
    folder = Path(text.removeprefix(f"{MEASURED}:")) if text != MEASURED else place.absolute().parent
    if (text != MEASURED and ":" not in text) or not folder.is_dir():
        raise InputError(f"disk: expected measured, or measured:DIR with an existing directory, found {text!r}")
    from tiering.pipeline.doctor import measure_disk

    figures = measure_disk(folder, _SIZE, _SECONDS)
    known = {key: figures[key] for key in ("reads_per_second", "bytes_per_second", "latency")}
    return Disk(text, DiskSpeed(**known), 1, f"measured in {folder}")
