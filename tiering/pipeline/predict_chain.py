"""What a whole chain would take: each stage planned from the sizes that the one before will leave."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.formats.shape import FutureGraph, GraphShape
from tiering.memory import Budget, parse_memory
from tiering.pipeline.config import ChainConfig, read_config
from tiering.pipeline.predict import import_plan, layout_plan, score_plan
from tiering.pipeline.run import current_import, current_layout, current_reorder, current_score, replaceable
from tiering.plan import Forecast, StagePlan, held_memory
from tiering.units import parse_threads


def predict_run(
    path: str | os.PathLike[str],
    *,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> Forecast:
    """What `tiering.pipeline.run_config` would take; a stage that would be skipped has no steps.

    Raises
    ------
    InputError, ExistsError
        As `run_config`, before its first stage.
    BudgetError
        Where a stage would, with the sizes that the stages before it leave.
    """
    config = read_config(Path(path))
    budget = parse_memory(config.memory if memory is None else memory)
    return _Chain(config, budget, parse_threads(threads), force).forecast()


class _Chain:
    """Goes through the stages; what exists and would be kept is opened, the rest stands as sizes."""

    def __init__(self, config: ChainConfig, budget: Budget, threads: int, force: bool) -> None:
        self._config, self._budget, self._threads, self._force = config, budget, threads, force

    def forecast(self) -> Forecast:
        """All four stages."""
        graph, first = self._import()
        scores, second = self._score(graph)
        reordered, third = self._reorder(graph, scores)
        return Forecast((first, second, third, self._layout(graph, scores, reordered)))

    def _out(self, name: str) -> Path:
        target = self._config.out / name
        replaceable(target)
        return target

    def _kept(self, stage: str, name: str) -> StagePlan:
        return StagePlan(stage, self._out(name), (), {}, held_memory(self._budget))

    def _import(self) -> tuple[Graph | FutureGraph, StagePlan]:
        config, out = self._config, self._out("graph")
        found = None if self._force else current_import(out, config)
        if found is not None:
            return found, self._kept("import", "graph")
        plan, shape = import_plan(
            config.source, out, config.format, config.edge_ids, self._threads, self._budget, config.dataset
        )
        return FutureGraph.at(out, shape), plan

    def _score(self, graph: Graph | FutureGraph) -> tuple[Scores | None, StagePlan]:
        out = self._out("scores")
        if isinstance(graph, Graph) and not self._force:
            found = current_score(out, graph, self._config.score)
            if found is not None:
                return found, self._kept("score", "scores")
        return None, score_plan(graph, out, self._budget, self._threads, self._config.score)

    def _reorder(self, graph: Graph | FutureGraph, scores: Scores | None) -> tuple[Graph | None, StagePlan]:
        from tiering.reorder import plan_reorder

        out, features = self._out("reordered"), self._config.features
        if isinstance(graph, Graph) and scores is not None and not self._force:
            found = current_reorder(out, graph, scores, features)
            if found is not None:
                return found, self._kept("reorder", "reordered")
        shape = graph if isinstance(graph, FutureGraph) else GraphShape.of_graph(graph)
        return None, plan_reorder(shape, out, self._budget, self._threads, features)

    def _layout(self, graph: Graph | FutureGraph, scores: Scores | None, reordered: Graph | None) -> StagePlan:
        out, sizes = self._out("layout"), self._config.layout
        known = scores if sizes.cache is not None else None
        if reordered is not None and not self._force and current_layout(out, reordered, known, sizes) is not None:
            return self._kept("layout", "layout")
        shape = graph if isinstance(graph, FutureGraph) else GraphShape.of_graph(graph)
        tables = shape.tables
        if self._config.features:
            folder = self._out("reordered") / "features" / "tables"
            tables = {t: replace(each, path=folder / t, offset=0, row_order="rank") for t, each in tables.items()}
        where = self._out("reordered") if reordered is None else reordered
        plan = layout_plan(where, tables, out, self._budget, sizes, known)
        return replace(plan, threads=self._threads)
