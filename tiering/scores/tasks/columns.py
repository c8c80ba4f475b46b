"""The columns of a score, written by the tasks of a carrier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.run.carrier import Carrier
from tiering.run.job import Job
from tiering.scores.hybrid import posterior, prior_weight, ranked_prior
from tiering.scores.plan import ScorePlan
from tiering.scores.tasks import degree, hops, pagerank, presample, vip
from tiering.scores.vip import SAMPLERS


def write_columns(
    carrier: Carrier, writer: ArtifactWriter, graph: Graph, plan: ScorePlan
) -> tuple[list[str], dict[str, Any]]:
    """Write the columns of a score; return their file names, and what the method records about itself."""
    job = carrier.job(writer)
    features = [f"nodes/{node_type}/feature" for node_type in graph.node_types]
    if plan.name == "degree":
        return features, degree.write_degrees(job, writer, graph)
    if plan.name in ("rpr", "wrpr"):
        return features, pagerank.write_ranks(job, writer, graph, plan)
    names = [column.file for column in presample.columns_of(graph)]
    if plan.name == "vip":
        return names, vip.write_inclusion(job, writer, graph, plan)
    if plan.name == "hybrid":
        return names, _write_hybrid(job, writer, graph, plan)
    job.expect(1)
    return names, presample.write_presample(job, writer, graph, plan, _count_epochs(job, graph, plan))


def _count_epochs(job: Job, graph: Graph, plan: ScorePlan) -> presample.EpochCounts:
    """Count the accesses of sampled epochs: by batches, or hop by hop where the adjacency does not fit a task."""
    count = hops.count_epochs if hops.hop_synchronous(graph, plan, job.grid) else presample.count_epochs
    return count(job, graph, plan)


def _write_hybrid(job: Job, writer: ArtifactWriter, graph: Graph, plan: ScorePlan) -> dict[str, Any]:
    """Write ``hybrid``: tasks count and compute the prior, the driver weighs both in memory."""
    request = plan.request
    job.expect(4 + 2 * len(request.sampled.fanouts) if request.sampled.sampler in SAMPLERS else 0)
    counted = _count_epochs(job, graph, plan)
    tally = presample.read_access_sums(job, graph, plan, counted, squares=prior_weight(request) is None)
    if request.sampled.sampler in SAMPLERS:
        prior = vip.read_inclusion(job, graph, plan)
    else:
        prior = ranked_prior(graph, replace(request, scratch=writer.path), tally)
    columns = posterior(prior, tally, request)
    for node_type, values in columns.feature.items():
        writer.put(f"nodes/{node_type}/feature", values)
    for relation, values in columns.adjacency.items():
        writer.put(f"{relation_folder(relation)}/adjacency", values)
    return columns.reached
