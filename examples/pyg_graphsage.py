"""Train PyG's GraphSAGE: python examples/pyg_graphsage.py LAYOUT [--features memory] [--device cuda] [--epochs N]"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import tiering


def train(model, optimizer, loader):
    """Train one epoch and return the mean loss of the seeds."""
    model.train()
    total = seeds = 0
    for batch in loader:
        out = model(batch.x.float(), batch.edge_index, num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                    num_sampled_edges_per_hop=batch.num_sampled_edges)  # fmt: skip
        loss = F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size], ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, seeds = total + loss.item() * batch.batch_size, seeds + batch.batch_size
    return total / seeds


@torch.no_grad()
def accuracy(model, loader):
    """Return the fraction of the seeds whose class is predicted correctly."""
    model.eval()
    right = [(model(batch.x.float(), batch.edge_index).argmax(-1) == batch.y)[: batch.batch_size] for batch in loader]
    return torch.cat(right).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout")
    parser.add_argument("--features", default="tiers", help="tiers; or memory, to read all rows into memory first")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        common = {"num_neighbors": [10, 10], "device": options.device, "features": options.features}
        model = GraphSAGE(layout.feature_dim(layout.node_types[0]), 64, 2, layout.num_classes()).to(options.device)
        optimizer = torch.optim.Adam(model.parameters(), 0.005)
        loader = layout.pyg_loader("train", batch_size=256, **common)
        for epoch in range(options.epochs):
            print(f"epoch {epoch}: loss {train(model, optimizer, loader):.6f}")
        test = layout.pyg_loader("test", batch_size=1024, shuffle=False, **common)
        print(f"test accuracy {accuracy(model, test):.4f}")


if __name__ == "__main__":
    main()
