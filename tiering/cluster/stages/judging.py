"""What epochs of training read, counted for an evaluation in tasks, each of which has the whole adjacency.

``sample``  the batches of a part of an epoch: how often each node was read, as `tiering.cluster.stages.accesses` leaves
            it, then the nodes of each bucket that each group of batches read.
``sum``     the counts of a range of nodes over all tasks.
``pages``   the same batches again: what the ssd tiers of the scores' plans would read for them.

All of it is whole numbers: no sum depends on who counted what. Memory: that of the sampler, its counters, and of all
scores a byte for each node (``sample``), or its place in the tier (``pages``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xxhash

from tiering.cluster.manifests import canonical
from tiering.cluster.running import Job
from tiering.cluster.session import Cluster
from tiering.cluster.stages import accesses
from tiering.cluster.tasks import Stage, TaskContext, Traffic
from tiering.evaluation.bootstrap import MAX_GROUPS, group_of
from tiering.evaluation.counting import BUCKETS, BucketMap, Counted, JudgedEpochs, by_group
from tiering.evaluation.line import IntArray
from tiering.evaluation.traffic import SsdCounter, SsdUnits
from tiering.formats.graph import Graph
from tiering.sampling import AccessCounts
from tiering.sampling.memory import batch_bytes, sums_bytes

_HERE = "tiering.cluster.stages.judging"


class _Given(NamedTuple):
    """Columns of nodes that were handed over: the stage, and their node types."""

    stage: str
    types: list[str]


@dataclass(frozen=True)
class TaskEpochs(JudgedEpochs):
    """Epochs whose batches are counted by tasks; `each` is left to who leads."""

    whole: Graph
    cluster: Cluster

    def count(self, maps: Sequence[BucketMap]) -> Counted:
        job, params, train = self._begin("count", maps)
        job.expect(2)
        columns = accesses.columns_of(self.whole)
        params |= {
            "epochs": len(self.epochs), "sizes": [column.size for column in columns],
            "parts": accesses.ranges_of(columns, self.cluster.grid), "per_epoch": self.per_epoch,
            "maps": [_give(job, f"map-{number}", of_map) for number, of_map in enumerate(maps)],
        }  # fmt: skip
        given = (train, *(of_map.stage for of_map in params["maps"]))
        marks = sum(array.nbytes for of_map in maps for array in of_map.values())
        sample = Stage("sample", f"{_HERE}:sample", len(params["runs"]), params, given, self._memory + marks)
        manifests = job.run(sample)
        summed = accesses.summing(params, Traffic())
        begins = [0, *np.cumsum(params["parts"]).tolist()]
        counted = accesses.Counted(summed, columns, begins, job.run(summed))
        total, _ = accesses.read_sums(job, self.whole, counted)
        groups = min(self.batches, MAX_GROUPS)
        hits = np.zeros((len(maps), groups, BUCKETS), np.int64)
        for task in range(len(manifests)):
            found = job.read(sample.name, task, sum(params["parts"]))
            hits[:, found["group"]] += found["hits"].swapaxes(0, 1)
        return Counted(total, hits, self.batches)

    def count_pages(self, counter: SsdCounter) -> IntArray:
        places = [dict(zip(counter.types, of_plan, strict=True)) for of_plan in counter.places.values()]
        job, params, train = self._begin("pages", places)
        params |= {
            "types": list(counter.types), "row_bytes": list(map(int, counter.row_bytes)), "units": vars(counter.units),
            "places": [_give(job, f"places-{number}", of_plan) for number, of_plan in enumerate(places)],
        }  # fmt: skip
        given = (train, *(of_plan.stage for of_plan in params["places"]))
        held = sum(array.nbytes for of_plan in places for array in of_plan.values())
        pages = Stage("pages", f"{_HERE}:pages", len(params["runs"]), params, given, self._memory + held)
        shape = (len(places), len(counter.types), 2)
        return sum(
            (job.read(pages.name, task)["sums"].reshape(shape) for task in range(len(job.run(pages)))),
            np.zeros(shape, np.int64),
        )

    def _begin(self, what: str, columns: Sequence[Any]) -> tuple[Job, dict[str, Any], str]:
        """A job whose name stands for all that is asked; what each of its tasks is told, and the training nodes."""
        runs = accesses.runs_of(self.epochs, self.per_epoch, self.cluster.grid)
        train = {name: np.asarray(ids, np.int64) for name, ids in self.train.items()}
        params: dict[str, Any] = {
            "graph": str(self.whole.path), "sampling": self.options.to_json(), "runs": runs,
            "train": {name: int(ids.size) for name, ids in train.items()}, "first": self.epochs.start,
        }  # fmt: skip
        digest = xxhash.xxh3_64(canonical({**params, "digest": self.whole.digest}))
        for array in (*train.values(), *(array for one in columns for array in one.values())):
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        job = self.cluster.question(self.whole.path, f"evaluate-{what}-{digest.hexdigest()}")
        params["given"] = job.give("train", {"ids": np.concatenate([np.empty(0, np.int64), *train.values()])}).name
        return job, params, params["given"]

    @property
    def _memory(self) -> int:
        graph, trained = self.whole, sum(np.asarray(ids).size for ids in self.train.values())
        counters: int = 8 * sum(column.size for column in accesses.columns_of(graph))
        return counters + 24 * trained + sums_bytes(graph, self.options) + batch_bytes(graph, self.options)


def _give(job: Job, name: str, columns: Any) -> _Given:
    """Hand columns of nodes over, a part for each type."""
    arrays = [np.asarray(array) for array in columns.values()]
    ends = [0, *np.cumsum([array.size for array in arrays]).tolist()]
    return _Given(job.give(name, {"values": np.concatenate(arrays)}, ends).name, list(columns))


def _given(context: TaskContext, name: str) -> list[dict[str, Any]]:
    """Columns that were handed over, by node type."""
    return [
        {node_type: context.part(stage, 0, part)["values"] for part, node_type in enumerate(types)}
        for stage, types in context.params[name]
    ]


def sample(context: TaskContext) -> None:
    """Count what some batches of an epoch read, and by group of batches the nodes of each bucket."""
    params = context.params
    epoch, first, last = params["runs"][context.index]
    with accesses.sampled_epoch(context) as (graph, sampler, plan):
        counts = AccessCounts.zeros(graph)
        marked = sampler.count_marks(
            plan, _given(context, "maps"), BUCKETS, counts, first=first, last=last, threads=context.threads
        )
    accesses.add_counts(context, counts)
    begin = (epoch - params["first"]) * params["per_epoch"]
    groups, hits = by_group(marked, group_of(begin + np.arange(first, last), params["per_epoch"] * params["epochs"]))
    context.add(group=groups, hits=np.ascontiguousarray(hits.swapaxes(0, 1)))


def pages(context: TaskContext) -> None:
    """Sums over some batches of what the ssd tiers of plans read."""
    params = context.params
    _, first, last = params["runs"][context.index]
    places = {str(number): list(of.values()) for number, of in enumerate(_given(context, "places"))}
    counter = SsdCounter(params["types"], params["row_bytes"], places, SsdUnits(**params["units"]))
    with accesses.sampled_epoch(context) as (_, sampler, plan):
        seen = [
            counter.see(sampler.sample(plan[batch], epoch=plan.epoch, batch=batch).nodes)
            for batch in range(first, last)
        ]
    context.add(sums=np.sum(seen, axis=0).reshape(-1))
