"""A process of a training run on several machines, by torchrun; its batches, losses and reads as JSON lines.

python -m torch.distributed.run ... training_process.py LAYOUT FOLDER EPOCHS MEMORY

MEMORY: bytes that the loaders of a machine may take in addition to their processes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a process group
import xxhash
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parents[2]))

import tiering
from examples.train_graphsage import GraphSage, digest_batch
from tiering.memory import Budget, own_memory

OPTIONS = {"fanouts": [3, 3], "batch_size": 16, "seed": 3, "depth": 4, "prefetch": 2}
TIMEOUT = 30.0
"""Seconds after which a collective of torch gives up."""


def train(layout: tiering.TieredLayout, out: Path, epochs: int, memory: int) -> None:
    held = own_memory()
    options = {**OPTIONS, "ssd_model": layout.path.with_name("disk.json")}
    loader = layout.loader("train", **options, memory=Budget(held + memory, "what the test allows", held))
    torch.manual_seed(0)
    model = DistributedDataParallel(GraphSage(loader, 2, 16, layout.num_classes(), 0.0))
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    with out.open("w", buffering=1) as lines:
        for epoch in range(epochs):
            for batch in loader.epoch(epoch):
                digest_batch(hasher := xxhash.xxh3_64(), batch)
                loss = cross_entropy(model(batch), batch.y, ignore_index=-1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                lines.write(json.dumps([epoch, batch.index, hasher.hexdigest(), loss.item()]) + "\n")
        stats = loader.stats()
        seen = {"host": socket.gethostname(), "read_bytes": stats.read_bytes, "rows": stats.rows}
        lines.write(json.dumps({**seen, "reads ahead": loader.lookahead is not None}) + "\n")


if __name__ == "__main__":
    path, folder, epochs, memory = sys.argv[1:]
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    with tiering.open(path) as layout:
        train(layout, Path(folder) / f"rank-{os.environ['RANK']}", int(epochs), int(memory))
    dist.destroy_process_group()
