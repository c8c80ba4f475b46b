"""Train PyG's HGT on a graph of several node types: python examples/pyg_hgt.py LAYOUT [--features memory]"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import HGTConv

import tiering

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("layout")
for name, default in (("features", "tiers"), ("device", "cpu"), ("epochs", 3)):
    parser.add_argument(f"--{name}", default=default, type=type(default))


class HGT(nn.Module):
    """Two layers of attention. A node type without features starts from one learned vector."""

    def __init__(self, layout, hidden, classes):
        super().__init__()
        dims = {t: layout.feature_dim(t) for t in layout.feature_types}
        self.inputs = nn.ModuleDict({t: nn.Linear(dim, hidden) for t, dim in dims.items()})
        rest = [t for t in layout.node_types if t not in dims]
        self.unknown = nn.ParameterDict({t: nn.Parameter(torch.randn(hidden)) for t in rest})
        metadata = layout.node_types, layout.relations
        self.convs = nn.ModuleList([HGTConv(hidden, hidden, metadata, heads=2) for _ in range(2)])
        self.out = nn.Linear(hidden, classes)

    def forward(self, batch, target):
        """Return the class scores of the nodes of type `target`."""
        x = {t: layer(batch[t].x.float()).relu() for t, layer in self.inputs.items()}
        x |= {t: vector.expand(batch[t].num_nodes, -1) for t, vector in self.unknown.items()}
        for conv in self.convs:
            x |= {t: rows for t, rows in conv(x, batch.edge_index_dict).items() if rows is not None}
        return self.out(x[target])


if __name__ == "__main__":
    options = parser.parse_args()
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        common = {"num_neighbors": [8, 4], "device": options.device, "features": options.features}
        train, test = (layout.pyg_loader(split, batch_size=256, **common) for split in ("train", "test"))
        target = train.node_type
        model = HGT(layout, 32, layout.num_classes(target)).to(options.device)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for epoch in range(options.epochs):
            for batch in train:
                size = batch[target].batch_size
                loss = F.cross_entropy(model(batch, target)[:size], batch[target].y[:size], ignore_index=-1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.6f}")
        with torch.no_grad():
            right = [(model(b, target).argmax(-1) == b[target].y)[: b[target].batch_size] for b in test]
        print(f"test accuracy {torch.cat(right).float().mean().item():.4f}")
