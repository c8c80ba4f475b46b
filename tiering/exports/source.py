"""What is exported: a layout, a reordered graph or an imported one, and the order that its nodes are to have."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tiering.exports.tier_rows import TierRows
from tiering.formats.feature_rows import checked_tables, table_states
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout

Table: TypeAlias = FeatureTable | TierRows
Ids: TypeAlias = np.ndarray[Any, Any]


class Source:
    """An artifact as it is to be exported: in ranks if it has any, unless `original` is asked for."""

    def __init__(self, artifact: Layout | Graph, *, original: bool) -> None:
        self.artifact = artifact
        self.graph = artifact.graph if isinstance(artifact, Layout) else artifact
        ranked = self.graph.order is not None
        self.order = "rank" if ranked and not original else "original"
        """``rank`` or ``original``: what node ids will be."""
        self.restored = ranked and original
        """Whether ids are turned back from ranks."""
        tables = {} if isinstance(artifact, Layout) else checked_tables(artifact)
        self.states = table_states(tables)
        """States of the feature files outside, for the identity of a run."""
        self._tables = tables

    @property
    def feature_types(self) -> list[str]:
        """Node types with features."""
        return self.artifact.feature_types if isinstance(self.artifact, Layout) else list(self._tables)

    def dtype(self, node_type: str) -> str:
        """Element type of the rows of a type."""
        if isinstance(self.artifact, Layout):
            return self.artifact.type_layout(node_type).dtype
        return self._tables[node_type].dtype

    def dim(self, node_type: str) -> int:
        """Elements of a row of a type."""
        if isinstance(self.artifact, Layout):
            return self.artifact.type_layout(node_type).dim
        return self._tables[node_type].dim

    def table(self, node_type: str) -> Table:
        """Rows of a type, in whatever order they lie."""
        return TierRows(self.artifact, node_type) if isinstance(self.artifact, Layout) else self._tables[node_type]

    def maps(self, node_type: str) -> tuple[Ids | None, Ids | None]:
        """Row of `table` for each row of the export and the other way round; ``None`` where rows lie in its order."""
        in_ranks = isinstance(self.artifact, Layout) or self._tables[node_type].row_order == "rank"
        if in_ranks == (self.order == "rank"):
            return None, None
        new_to_old, old_to_new = self.graph.new_to_old(node_type), self.graph.old_to_new(node_type)
        return (old_to_new, new_to_old) if in_ranks else (new_to_old, old_to_new)
