"""Train GraphSAGE with DGL: python examples/dgl_graphsage.py LAYOUT [--features memory] [--device cuda] [--epochs N]"""

import argparse

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import tiering

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("layout")
parser.add_argument("--features", default="tiers", help="tiers; or memory, to read all rows into memory first")
parser.add_argument("--device", default="cpu")
parser.add_argument("--epochs", type=int, default=3)


class SAGE(nn.Module):
    """A GraphSAGE of two layers."""

    def __init__(self, dim, hidden, classes):
        super().__init__()
        self.convs = nn.ModuleList([dgl.nn.SAGEConv(dim, hidden, "mean"), dgl.nn.SAGEConv(hidden, classes, "mean")])

    def forward(self, blocks, x):
        """Return the class scores of the output nodes."""
        return self.convs[1](blocks[1], self.convs[0](blocks[0], x).relu())


if __name__ == "__main__":
    options = parser.parse_args()
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        common = {"fanouts": [10, 10], "device": options.device, "features": options.features}
        train = layout.dgl_loader("train", batch_size=256, **common)
        test = layout.dgl_loader("test", batch_size=1024, shuffle=False, **common)
        model = SAGE(layout.feature_dim(layout.node_types[0]), 64, layout.num_classes()).to(options.device)
        optimizer = torch.optim.Adam(model.parameters(), 0.005)
        for epoch in range(options.epochs):
            for _, _, blocks in train:
                scores = model(blocks, blocks[0].srcdata["feat"].float())
                loss = F.cross_entropy(scores, blocks[-1].dstdata["label"], ignore_index=-1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.6f}")
        with torch.no_grad():
            right = [model(b, b[0].srcdata["feat"].float()).argmax(-1) == b[-1].dstdata["label"] for _, _, b in test]
        print(f"test accuracy {torch.cat(right).float().mean().item():.4f}")
