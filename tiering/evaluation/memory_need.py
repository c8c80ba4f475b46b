"""Memory of an evaluation, by formula: what a budget is compared with before anything is counted."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.evaluation.bootstrap import MAX_GROUPS
from tiering.evaluation.counting import BUCKETS
from tiering.evaluation.line import Rows
from tiering.formats.graph import Graph
from tiering.memory import Budget
from tiering.sampling import SamplingOptions
from tiering.sampling.memory import batch_bytes, sums_bytes
from tiering.units import format_count

SLACK = 32 << 20
"""Small objects, stacks, chunks of vectors, what the allocator rounds up."""


ACCESS_BYTES = 32
"""Of simulated reading, per row of each batch: its number in the graph, on disk, among rows of its size, and in the
planner; its next use; what is known of the rows of a batch that are missing."""


@dataclass(frozen=True)
class EvaluationNeed:
    """Memory of an evaluation in bytes."""

    fixed: int
    """Of everything but sampling itself."""
    batch: int
    """Of each thread that samples."""
    what: str
    """What needs it, for people."""

    @property
    def minimum(self) -> int:
        """With less it cannot be done: one thread samples."""
        return self.fixed + self.batch

    def threads(self, budget: Budget, wanted: int) -> int:
        """As many of the threads wanted as the budget has batches for; raises `BudgetError` below `minimum`."""
        budget.require(self.minimum, self.what)
        return max(1, min(wanted, (budget.left() - self.fixed) // max(1, self.batch)))


def evaluation_need(
    graph: Graph, rows: Rows, options: SamplingOptions, *, scores: int, ssd: bool, train: int = 0
) -> EvaluationNeed:
    """Memory of judging so many `scores` (the oracle not counted), perhaps with an `ssd` tier.

    R: rows that compete; N: nodes; D: sum over relations of the nodes of the destination type; S: scores and the
    oracle; E: edges; T: training nodes, `train`. Fixed: S R buckets, 4 S R places with an ssd tier (8 from 2^31 rows);
    the hits of up to 4096 groups of batches, 8 MiB per score and node type; 24 T for an epoch's order; 8 E for
    ``weighted``. Beside it, the larger of: 44 R while a score is sorted (56 from 2^31 rows), with the counters,
    8 (N + D), and the truth, 8 R more with several types, for the oracle; the counters and a batch per thread
    (`tiering.sampling.memory.batch_bytes`, twice with an ssd tier), one at the least.
    """
    types, lines = len(rows.types), scores + 1
    wide = rows.size >= 2**31
    lists = sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    fixed = lines * rows.size * (1 + ((8 if wide else 4) if ssd else 0))
    fixed += types * scores * MAX_GROUPS * BUCKETS * 8 + 24 * train + sums_bytes(graph, options)
    counters = 8 * (sum(graph.num_nodes(t) for t in graph.node_types) + lists)
    sort = (56 if wide else 44) * rows.size + (8 * rows.size if types > 1 else 0)
    batch = batch_bytes(graph, options) * (2 if ssd else 1)
    what = f"evaluate: {scores} scores and the counts of {format_count(rows.size)} rows, and a batch"
    return EvaluationNeed(fixed + counters + max(0, sort - batch) + SLACK, batch, what)


@dataclass(frozen=True)
class ReadingRoom:
    """Memory for simulated reading beside the rest of an evaluation."""

    budget: Budget
    least: int
    """Of everything but the rows of its batches."""
    rows: int
    """Rows of all its batches together that there is room for."""
    fixed: int

    @classmethod
    def of(cls, budget: Budget, need: EvaluationNeed, rows: Rows, most_bytes: int) -> ReadingRoom:
        """Half of what one thread's sampling leaves; `most_bytes`: the largest memory that is simulated.

        Per row 24 bytes: its place on disk and in the line, when it is used next or was used last, the planner's maps.
        Per row in memory 60: the rows held, the values by which they are replaced, their order. `ACCESS_BYTES` for
        each row of each batch.
        """
        fixed = 24 * rows.size + 60 * (most_bytes // min(rows.row_bytes)) + SLACK
        least = need.minimum + fixed
        budget.require(least, _SIMULATED)
        return cls(budget, least, (budget.left() - least) // (2 * ACCESS_BYTES), fixed)

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.fixed + self.rows * ACCESS_BYTES

    def refuse(self, rows: int) -> None:
        """Raise `BudgetError`, because so many rows, of the fewest batches that say something, have no room."""
        self.budget.require(self.least + 2 * ACCESS_BYTES * max(rows, self.rows + 1), _SIMULATED)


_SIMULATED = "evaluate: reading that is simulated, with its batches,"
