"""Embeddings as the rows of a tensor: what ``tiering.open`` and `tiering.loader.TieredLayout.inference` return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.formats.embeddings import Embeddings
from tiering.loader.process import require_torch
from tiering.loader.tables.indexing import IndexedRows

if TYPE_CHECKING:
    import torch


class TieredEmbeddings(IndexedRows, Embeddings):  # type: ignore[misc] # whose shape is found when it is asked for
    """Embeddings as tensors: ``embeddings[ids]``, ``[:10]``, ``[mask]`` by rank where there is one node type.

    `gather_numpy`, `numpy` and `to_arrow` need no torch.
    """

    @property
    def _what(self) -> str:  # type: ignore[override]
        return str(self.path)

    def gather(self, ids: Any, node_type: str | None = None, *, original: bool = False) -> torch.Tensor:  # type: ignore[override]
        """Return the rows of nodes as a tensor of shape (ids, dim); see `gather_numpy`."""
        require_torch()
        import torch

        rows = self.gather_numpy(ids, node_type, original=original)
        return torch.from_numpy(rows.view(np.uint8)).view(getattr(torch, self.entry(node_type).stored))
