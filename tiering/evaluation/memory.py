"""Memory needs of an evaluation, by formula: what a budget is compared with before anything is counted."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.evaluation.bootstrap import MAX_GROUPS
from tiering.evaluation.cache_order import Rows
from tiering.evaluation.counting import BUCKETS
from tiering.formats.graph import Graph
from tiering.memory import Budget
from tiering.sampling import SamplingOptions
from tiering.sampling.memory import batch_bytes, sums_bytes
from tiering.units import format_count

SLACK = 32 << 20
"""Small objects, stacks, chunks of vectors, what the allocator rounds up."""
ACCESS_BYTES = 32
"""Simulated reading, per row of each batch: its number in the graph and on disk, and the planner's state."""
_SIMULATED = "evaluate: reading that is simulated, with its batches,"


@dataclass(frozen=True)
class EvaluationMemory:
    """Memory need of an evaluation in bytes."""

    fixed: int
    """All but sampling itself."""
    batch: int
    """Each thread that samples."""
    label: str
    """The need, for messages."""

    @property
    def minimum(self) -> int:
        """Need with one thread that samples."""
        return self.fixed + self.batch

    def threads(self, budget: Budget, wanted: int) -> int:
        """Return how many of the threads wanted have room; raise `BudgetError` below `minimum`."""
        budget.require(self.minimum, self.label)
        return max(1, min(wanted, (budget.left() - self.fixed) // max(1, self.batch)))


def evaluation_memory(
    graph: Graph, rows: Rows, options: SamplingOptions, *, scores: int, ssd: bool, train: int = 0
) -> EvaluationMemory:
    """Return the need for so many `scores` (the oracle not counted), perhaps with an `ssd` tier.

    R: rows that compete; N: nodes; D: sum over relations of the nodes of the destination type; S: scores and the
    oracle; E: edges; T: training nodes, `train`. Fixed: S R buckets, 4 S R positions with an ssd tier (8 from 2^31
    rows); the hits of up to 4096 groups of batches, 8 MiB per score and node type; 24 T for an epoch's order; 8 E for
    ``weighted``. In addition the larger of: 44 R while a score is sorted (56 from 2^31 rows), with the counters,
    8 (N + D), and the truth, 8 R more with several types, for the oracle; the counters and a batch per thread
    (`tiering.sampling.memory.batch_bytes`, twice with an ssd tier), at least one.
    """
    types, orders = len(rows.types), scores + 1
    wide = rows.size >= 2**31
    fixed = orders * rows.size * (1 + ((8 if wide else 4) if ssd else 0))
    fixed += types * scores * MAX_GROUPS * BUCKETS * 8 + 24 * train + sums_bytes(graph, options)
    counters = 8 * sum(graph.num_nodes(t) for t in graph.node_types)
    counters += 8 * sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    sort = (56 if wide else 44) * rows.size + (8 * rows.size if types > 1 else 0)
    batch = batch_bytes(graph, options) * (2 if ssd else 1)
    label = f"evaluate: {scores} scores and the counts of {format_count(rows.size)} rows, and a batch"
    return EvaluationMemory(fixed + counters + max(0, sort - batch) + SLACK, batch, label)


@dataclass(frozen=True)
class ReadingMemory:
    """Memory of simulated reading in addition to the rest of an evaluation."""

    budget: Budget
    least: int
    """Need of everything but the rows of its batches, in bytes."""
    rows: int
    """Rows of all its batches together that have room."""
    fixed: int
    """Bytes that do not depend on the batches."""

    @classmethod
    def plan(cls, budget: Budget, need: EvaluationMemory, rows: Rows, max_bytes: int) -> ReadingMemory:
        """Take half of what one thread's sampling leaves; `max_bytes`: the largest memory that is simulated.

        24 bytes per row: its positions on disk and in the order, the planner's maps. 60 per row in memory: the
        planner's state. `ACCESS_BYTES` for each row of each batch.
        """
        fixed = 24 * rows.size + 60 * (max_bytes // min(rows.row_bytes)) + SLACK
        least = need.minimum + fixed
        budget.require(least, _SIMULATED)
        return cls(budget, least, (budget.left() - least) // (2 * ACCESS_BYTES), fixed)

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.fixed + self.rows * ACCESS_BYTES

    def refuse(self, rows: int) -> None:
        """Raise `BudgetError`: so many rows, of the fewest batches that say something, have no room."""
        self.budget.require(self.least + 2 * ACCESS_BYTES * max(rows, self.rows + 1), _SIMULATED)
