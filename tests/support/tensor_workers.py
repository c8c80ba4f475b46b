"""Datasets over tiered tensors, importable by the workers that torch's ``DataLoader`` spawns."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    """Item ids: of each tiered tensor these rows, what it says of itself, and where its copies lie."""

    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors

    def __getitem__(self, ids: list[int]) -> list[tuple[torch.Tensor, str, int]]:
        return [(tensor[ids], repr(tensor), file_of_copies(tensor)) for tensor in self.tensors]


def file_of_copies(tensor: Any) -> int:
    """Inode of the memory that holds the copies; 0 for none."""
    copies = tensor._store._copies
    if copies is None:
        return 0
    address = copies.array.ctypes.data
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        for line in maps:
            bounds, _, _, _, inode, *_ = line.split()
            begin, end = (int(bound, 16) for bound in bounds.split("-"))
            if begin <= address < end:
                return int(inode)
    raise AssertionError("copies that lie nowhere")
