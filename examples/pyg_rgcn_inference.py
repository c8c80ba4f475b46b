"""Train on several node types, then embed all nodes out of core: python examples/pyg_rgcn_inference.py LAYOUT"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import HeteroConv, SAGEConv

import tiering

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("layout")
parser.add_argument("--out", default="embeddings")
parser.add_argument("--memory", default="auto")
parser.add_argument("--epochs", type=int, default=3)


class Model(nn.Module):
    """Map the features of each type to one width, then two layers with separate weights for each relation."""

    def __init__(self, layout, width, classes):
        super().__init__()
        self.inputs = nn.ModuleDict({t: nn.Linear(layout.feature_dim(t), width) for t in layout.feature_types})
        self.convs = nn.ModuleList([
            HeteroConv({relation: SAGEConv((width, width), width) for relation in layout.relations}) for _ in range(2)
        ])  # fmt: skip
        self.out = nn.Linear(width, classes)

    def layer(self, number, x, edges):
        """Return rows by type, for all types that have incoming edges."""
        x = {t: self.inputs[t](rows.float()) for t, rows in x.items()} if number == 0 else x
        return {t: rows.relu() for t, rows in self.convs[number](x, edges).items()}

    def forward(self, x, edges, target):
        """Return the class scores of the nodes of type `target`."""
        return self.out(self.layer(1, self.layer(0, x, edges), edges)[target])


if __name__ == "__main__":
    options = parser.parse_args()
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        loader = layout.pyg_loader("train", [8, 4], batch_size=256)
        target = loader.node_type
        model = Model(layout, 32, layout.num_classes(target))
        optimizer = torch.optim.Adam(model.parameters(), 0.005)
        for epoch in range(options.epochs):
            for batch in loader:
                size = batch[target].batch_size
                out = model(batch.x_dict, batch.edge_index_dict, target)[:size]
                loss = F.cross_entropy(out, batch[target].y[:size], ignore_index=-1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.6f}")
        model.eval()

        def first(block, x):
            return model.layer(0, x, block.edges)[block.node_type][: block.num_dst]

        def last(block, x):  # other types get no embeddings
            rows = model.layer(1, x, block.edges) if block.node_type == target else None
            return None if rows is None else model.out(rows[target][: block.num_dst])

        scores = layout.inference([first, last], options.out, memory=options.memory)
        with torch.no_grad():  # compare with one forward pass in memory
            x = {t: layout.features(t).gather(range(layout.num_nodes(t))) for t in layout.feature_types}
            edges = {}
            for relation in layout.relations:
                indptr, indices = (torch.from_numpy(array.astype("int64")) for array in layout.csc(relation))
                edges[relation] = torch.stack([indices, torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff())])
            expected = model(x, edges, target)
        test = torch.from_numpy(layout.split("test", target).copy())  # ranks, like the rows of the embeddings
        y = torch.from_numpy(layout.labels(target)[test.numpy()])
        rows, expected = scores.gather(test, target), expected[test]
        print(f"largest difference {(rows - expected).abs().max():.1e}")
        for name, found in (("embeddings", rows), ("whole graph", expected)):
            print(f"test accuracy by {name}: {(found.argmax(1) == y).float().mean():.4f}")
