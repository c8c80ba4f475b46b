"""Train PyG's GraphSAGE in several processes that share the tiers in CPU memory, with checkpoints within an epoch.

torchrun --nproc-per-node 2 examples/ddp_graphsage.py LAYOUT [--features memory] [--device cuda] [--epochs N]
    [--checkpoint FILE] [--every N]
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # import it first: later it would keep the process group alive
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import tiering

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("layout")
parser.add_argument("--features", default="tiers", help="tiers; or memory, to read all rows into memory first")
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--checkpoint", type=Path, help="file to save to, and to resume from if it exists")
parser.add_argument("--every", type=int, default=100, help="batches of each process between two checkpoints")


def save(path: Path, parts: dict) -> None:
    """Replace the checkpoint atomically. All processes can load the state of the loader of rank 0."""
    torch.save({name: part.state_dict() for name, part in parts.items()}, new := path.with_suffix(".new"))
    new.replace(path)


def train(options: argparse.Namespace, device: str) -> None:
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        common = {"num_neighbors": [10, 10], "device": device, "features": options.features}
        seeds = layout.pyg_loader("train", batch_size=256, **common)  # the batches of this process in every epoch
        test = layout.pyg_loader("test", batch_size=256, drop_last=True, **common)
        model = GraphSAGE(layout.feature_dim(layout.node_types[0]), 64, 2, layout.num_classes()).to(device)
        model = DistributedDataParallel(model)
        optimizer = torch.optim.Adam(model.parameters(), 0.005)
        parts = {"model": model.module, "optimizer": optimizer, "seeds": seeds}
        if options.checkpoint and options.checkpoint.exists():
            for name, state in torch.load(options.checkpoint, map_location=device).items():
                parts[name].load_state_dict(state)
        for epoch in range(seeds.state_dict()["epoch"], options.epochs):
            for batch in seeds:  # a loaded loader continues its epoch
                out = model(batch.x.float(), batch.edge_index)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size], ignore_index=-1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if options.checkpoint and dist.get_rank() == 0 and seeds.state_dict()["batches"] % options.every == 0:
                    save(options.checkpoint, parts)
            dist.all_reduce(mean := loss.detach() / dist.get_world_size())
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: last loss {mean.item():.6f}", flush=True)
        right = torch.zeros(2, device=device)
        with torch.no_grad():
            for batch in test:
                hit = (model.module(batch.x.float(), batch.edge_index).argmax(-1) == batch.y)[: batch.batch_size]
                right += torch.tensor([hit.sum(), len(hit)], device=device)
        dist.all_reduce(right)
        if dist.get_rank() == 0:
            print(f"test accuracy {(right[0] / right[1]).item():.4f}")


if __name__ == "__main__":
    options = parser.parse_args()
    cuda = options.device == "cuda"
    dist.init_process_group("nccl" if cuda else "gloo")
    train(options, f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    dist.destroy_process_group()  # after `train` has freed the model
