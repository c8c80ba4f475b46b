"""Map-style datasets over open layouts, importable by the workers that torch's ``DataLoader`` spawns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    """Item i: row i of an open table."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.table.gather(np.array([index]))[0]


class LayoutRows(Dataset):
    """Item i: row i of the table that the open layout gives."""

    def __init__(self, layout: Any, engine: str) -> None:
        self.layout, self.engine = layout, engine

    def __len__(self) -> int:
        return self.layout.num_nodes()

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.layout.features(engine=self.engine).gather(np.array([index]))[0]


class Epochs(Dataset):
    """Item e: seeds' nodes and features of the batches of epoch e of a loader."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return 2

    def __getitem__(self, epoch: int) -> torch.Tensor:
        return torch.cat([batch.x.reshape(-1) for batch in self.loader.epoch(epoch)])
