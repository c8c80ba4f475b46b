"""Train a relational GCN with DGL on several node types: python examples/dgl_rgcn.py LAYOUT [--features memory]"""

import argparse

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import tiering

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("layout")
for name, default in (("features", "tiers"), ("device", "cpu"), ("epochs", 3)):
    parser.add_argument(f"--{name}", default=default, type=type(default))


class RGCN(nn.Module):
    """Two layers with separate weights for each relation."""

    def __init__(self, layout, hidden, classes):
        super().__init__()
        self.inputs = nn.ModuleDict({t: nn.Linear(layout.feature_dim(t), hidden) for t in layout.feature_types})
        self.layers = nn.ModuleList([
            dgl.nn.HeteroGraphConv({r: dgl.nn.SAGEConv(hidden, hidden, "mean") for _, r, _ in layout.relations}, "mean")
            for _ in range(2)
        ])  # fmt: skip
        self.hidden, self.out = hidden, nn.Linear(hidden, classes)

    def forward(self, blocks, target):
        """Return the class scores of the output nodes of type `target`."""
        first = blocks[0].srcnodes
        x = {t: layer(first[t].data["feat"].float()).relu() for t, layer in self.inputs.items()}
        for block, layer in zip(blocks, self.layers, strict=True):
            x = layer(block, x)
        return self.out(x[target])


if __name__ == "__main__":
    options = parser.parse_args()
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        common = {"fanouts": [4, 8], "device": options.device, "features": options.features}
        train, test = (layout.dgl_loader(split, batch_size=256, **common) for split in ("train", "test"))
        target = train.node_type
        model = RGCN(layout, 32, layout.num_classes(target)).to(options.device)
        optimizer = torch.optim.Adam(model.parameters(), 0.005)
        for epoch in range(options.epochs):
            for _, _, blocks in train:
                labels = blocks[-1].dstnodes[target].data["label"]
                loss = F.cross_entropy(model(blocks, target), labels, ignore_index=-1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.6f}")
        with torch.no_grad():
            right = [model(b, target).argmax(-1) == b[-1].dstnodes[target].data["label"] for _, _, b in test]
        print(f"test accuracy {torch.cat(right).float().mean().item():.4f}")
