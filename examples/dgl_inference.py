"""Train GraphSAGE with DGL on mini-batches, then embed all nodes layer by layer, out of core.

python examples/dgl_inference.py LAYOUT [--out embeddings] [--memory 8GiB] [--epochs N]
"""

import argparse

import dgl
import torch
import torch.nn.functional as F
from torch import nn

import tiering

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("layout")
parser.add_argument("--out", default="embeddings")
parser.add_argument("--memory", default="auto")
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
        model = SAGE(layout.num_features, 64, layout.num_classes)
        optimizer = torch.optim.Adam(model.parameters(), 0.005)
        for epoch in range(options.epochs):
            for _, _, blocks in layout.dgl_loader("train", fanouts=[10, 10], batch_size=256, seed=epoch):
                labels = blocks[-1].dstdata["label"]
                loss = F.cross_entropy(model(blocks, blocks[0].srcdata["feat"].float()), labels, ignore_index=-1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.6f}")
        model.eval()
        scores = layout.dgl_inference(model.convs, options.out, memory=options.memory)

        (relation,), nodes = layout.relations, torch.arange(layout.num_nodes)  # compare with one forward pass in memory
        indptr, indices = (torch.from_numpy(array.astype("int64")) for array in layout.csc(relation))
        graph = dgl.graph((indices, nodes.repeat_interleave(indptr.diff())), num_nodes=len(nodes))
        with torch.no_grad():
            expected = model([graph, graph], layout.features(relation[0]).gather(nodes).float())
        test = torch.from_numpy(layout.split("test").copy())  # ranks, like the rows of the embeddings
        y, rows = torch.from_numpy(layout.labels()[test.numpy()]), scores[test]
        print(f"largest difference {(rows - expected[test]).abs().max():.1e}")
        for name, found in (("embeddings", rows), ("whole graph", expected[test])):
            print(f"test accuracy by {name}: {(found.argmax(1) == y).float().mean():.4f}")
