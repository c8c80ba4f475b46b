"""Graphs that figures are made on: those of the data directory, and a generated one; sampled batches, judged scores."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.rmat import rmat_edges
from tiering import pipeline
from tiering.errors import MissingError
from tiering.evaluation import Evaluation, evaluate
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.sampling import SamplingOptions, make_sampler

NodeIds = npt.NDArray[np.uint32]
WEB, CITATIONS, SOCIAL, POWER_LAW = "cnr-2000", "dblp-citation", "tolokers", "rmat"
GRAPHS = (WEB, POWER_LAW, CITATIONS, SOCIAL)
"""As in docs/internals/score-tables.md: a web graph, an R-MAT graph, citations, and a dense social graph."""
_SMALL, _LARGE = 12, 20
"""Scales of the generated graph: 2**scale nodes, 12 times as many edges."""
_SEED = 0
_RUNS = 10


def local_nodes(count: int, seed: int = _SEED) -> npt.NDArray[np.int64]:
    """Return a hundredth of `count` nodes as training nodes: ten runs of consecutive ids, at random places.

    Ids of a web graph follow its addresses, so each run is a site or a part of one. The papers' own training nodes are
    local on ogbn-papers100M and MAG240M, too, where only papers of arXiv have labels; on other graphs they are random.
    """
    size = max(1, count // 100 // _RUNS)
    begins = np.random.default_rng(seed).choice(count // size, min(_RUNS, count // size), replace=False) * size
    return np.asarray((np.sort(begins)[:, None] + np.arange(size)).ravel(), np.int64)


@dataclass(frozen=True)
class Sample:
    """A graph of one node type with weights of its edges, its training nodes, and the batch size used on it.

    `local`: `local_nodes` chooses the training nodes.
    """

    name: str
    graph: Graph
    train: npt.NDArray[np.int64]
    batch_size: int
    local: bool = False

    @property
    def title(self) -> str:
        """The name, and whether the training nodes are local."""
        return f"{self.name}, local" if self.local else self.name

    @property
    def label(self) -> str:
        """The graph in a few words."""
        nodes, edges, train = self.graph.num_nodes(), self.graph.num_edges(), f"{self.train.size:,} training nodes"
        if self.local:
            return f"{self.title}: {train} in {_RUNS} runs of consecutive ids"
        return f"{self.name} ({nodes:,} nodes, {edges:,} edges, {train})"

    @property
    def node_type(self) -> str:
        """The node type."""
        return self.graph.node_types[0]


@dataclass
class Inputs:
    """Where graphs come from, and where files of a run go; graphs and scores are made once.

    `small` makes the generated graph 256 times smaller, for tests; `seconds` is the length of a measurement.
    """

    data: Path
    work: Path
    small: bool = False
    seconds: float = 1.0
    _samples: dict[tuple[str, bool], Sample] = field(default_factory=dict)

    def samples(self, *names: str, both: bool = False, local: bool = False) -> list[Sample]:
        """Return the graphs of these names that are there, the generated one always.

        With `local` the web graph follows once more, with local training nodes.
        """
        there = [name for name in names or GRAPHS if name == POWER_LAW or (self.data / name).is_dir()]
        return [*(self.sample(name, both) for name in there), *([self.web(both, local)] if local else [])]

    def sample(self, name: str, both: bool = False) -> Sample:
        """Return a graph, with `both` directions of each edge if asked for; `MissingError` if it is not there.

        The social graph, whose edges have no direction, always has both.
        """
        both = both or name == SOCIAL
        if (name, both) not in self._samples:
            self._samples[name, both] = self._import(name, both)
        return self._samples[name, both]

    def web(self, both: bool = False, local: bool = False) -> Sample:
        """Return the web graph, or the generated graph where it is not there, perhaps with local training nodes."""
        sample = self.sample(WEB if (self.data / WEB).is_dir() else POWER_LAW, both)
        return replace(sample, train=local_nodes(sample.graph.num_nodes()), local=True) if local else sample

    def _import(self, name: str, both: bool) -> Sample:
        place = self.work / f"{name}-{both}-data"
        options: dict[str, Any] = {"reverse_edges": True} if both else {}
        if name == POWER_LAW:
            scale = _SMALL if self.small else _LARGE
            options["num_nodes"] = 1 << scale
            place.mkdir()
            np.save(place / "edge_index.npy", np.stack(rmat_edges(scale, 12 << scale, scramble=True)))
        elif (self.data / name).is_dir():
            shutil.copytree(self.data / name, place, ignore=shutil.ignore_patterns("feat_*", "*.txt"))
        else:
            raise MissingError(f"{self.data / name}: no such directory; give the one that has it with --data")
        edges = np.load(place / "edge_index.npy", mmap_mode="r").shape[1]
        weights = np.random.default_rng(_SEED).exponential(size=edges).astype(np.float32)
        np.save(place / "edge_weight.npy", weights)
        graph = pipeline.import_graph(place, self.work / f"{name}-{both}", **options)
        if name in (CITATIONS, SOCIAL):
            return Sample(name, graph, np.asarray(graph.split("train")), 32)
        count = graph.num_nodes()
        train = np.sort(np.random.default_rng(_SEED).choice(count, count // 100, replace=False))
        return Sample(name, graph, train, 256)

    def score(self, sample: Sample, method: str, how: SamplingOptions, epochs: int = 0) -> Scores:
        """Score a graph by a method, by the sampler's options where the method knows them."""
        options: dict[str, Any] = {} if method in ("degree", "rpr", "random") else {"train": sample.train}
        if method in ("vip", "presample", "hybrid"):
            options |= {name: value for name, value in how.record().items() if value is not None}
        if epochs:
            options["epochs"] = epochs
        out = self.work / "-".join(map(str, ("scores", sample.name, method, epochs, len(list(self.work.iterdir())))))
        return pipeline.score_graph(sample.graph, out, method, **options)

    def judge(
        self, sample: Sample, how: SamplingOptions, methods: Mapping[str, tuple[str, int]], shares: Sequence[float],
        **options: Any,
    ) -> Evaluation:  # fmt: skip
        """Return what scores serve of epochs that none of them has seen; `methods` by label, with epochs counted."""
        scores = {label: self.score(sample, method, how, epochs) for label, (method, epochs) in methods.items()}
        return evaluate(sample.graph, scores, how, train=sample.train, shares=shares, resamples=0, **options)


def sampled_batches(sample: Sample, how: SamplingOptions, count: int) -> list[NodeIds]:
    """Return the unique nodes of the first batches of a run, epoch after epoch, ascending."""
    sampler, found, epoch = make_sampler(sample.graph, how), list[NodeIds](), 0
    while len(found) < count:
        plan = sampler.batches(sample.train, how.batch_size, epoch, drop_last=sample.train.size >= how.batch_size)
        for number in range(min(len(plan), count - len(found))):
            nodes = sampler.sample_nodes(plan[number], epoch=epoch, batch=number)[sample.node_type]
            found.append(np.sort(nodes).astype(np.uint32))
        epoch += 1
    return found


def epoch_counts(sample: Sample, how: SamplingOptions, epoch: int) -> npt.NDArray[np.int64]:
    """Return how often an epoch reads each row."""
    sampler = make_sampler(sample.graph, how)
    plan = sampler.batches(sample.train, how.batch_size, epoch)
    return sampler.count_accesses(plan).features[sample.node_type]
