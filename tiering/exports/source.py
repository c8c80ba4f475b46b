"""The source of an export: a layout, a reordered graph or an imported one, and the order of the exported nodes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tiering.exports.tier_rows import TierRows
from tiering.formats.feature_rows import checked_tables, table_states
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout

RowTable: TypeAlias = FeatureTable | TierRows
Ids: TypeAlias = np.ndarray[Any, Any]


class ExportSource:
    """An artifact to export: in ranks if it has any, or with `original` in the ids of the source."""

    def __init__(self, artifact: Layout | Graph, *, original: bool) -> None:
        self.artifact = artifact
        self.graph = artifact.graph if isinstance(artifact, Layout) else artifact
        ranked = self.graph.order is not None
        self.order = "rank" if ranked and not original else "original"
        """Numbering of the exported node ids: ``rank`` or ``original``."""
        self.restored = ranked and original
        """Whether ranks are turned back into original ids."""
        tables = {} if isinstance(artifact, Layout) else checked_tables(artifact)
        self.states = table_states(tables)
        """Sizes and times of the feature files, for the identity of a run."""
        self._tables = tables

    @property
    def feature_types(self) -> list[str]:
        """Node types with features."""
        return self.artifact.feature_types if isinstance(self.artifact, Layout) else list(self._tables)

    def dtype(self, node_type: str) -> str:
        """Return the element type of the rows of a type."""
        if isinstance(self.artifact, Layout):
            return self.artifact.type_layout(node_type).dtype
        return self._tables[node_type].dtype

    def dim(self, node_type: str) -> int:
        """Return the number of elements of a row of a type."""
        if isinstance(self.artifact, Layout):
            return self.artifact.type_layout(node_type).dim
        return self._tables[node_type].dim

    def table(self, node_type: str) -> RowTable:
        """Return the rows of a type, in the order in which they lie."""
        return TierRows(self.artifact, node_type) if isinstance(self.artifact, Layout) else self._tables[node_type]

    def maps(self, node_type: str) -> tuple[Ids | None, Ids | None]:
        """Return the row of `table` for each row of the export, and the inverse; ``None`` where the orders agree."""
        in_ranks = isinstance(self.artifact, Layout) or self._tables[node_type].row_order == "rank"
        if in_ranks == (self.order == "rank"):
            return None, None
        new_to_old, old_to_new = self.graph.new_to_old(node_type), self.graph.old_to_new(node_type)
        return (old_to_new, new_to_old) if in_ranks else (new_to_old, old_to_new)
