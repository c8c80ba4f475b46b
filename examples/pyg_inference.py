"""Train a PyG model on mini-batches, then embed all nodes layer by layer, out of core.

python examples/pyg_inference.py LAYOUT [--model GAT] [--out embeddings] [--memory 8GiB] [--epochs N]
"""

import argparse

import torch
import torch.nn.functional as F
import torch_geometric.nn

import tiering

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("layout")
parser.add_argument("--model", default="GraphSAGE", choices=("GraphSAGE", "GAT", "GCN", "GIN"))
parser.add_argument("--out", default="embeddings")
parser.add_argument("--memory", default="auto")
parser.add_argument("--epochs", type=int, default=3)


def train(model, loader, epochs):
    """Train the model and print the mean loss of each epoch."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for epoch in range(epochs):
        losses = []
        for batch in loader:
            out = model(batch.x.float(), batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size], ignore_index=-1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.6f}")


@torch.no_grad()
def whole_graph(model, layout):
    """Return the class scores of all nodes, computed by one forward pass in memory."""
    (relation,) = layout.relations
    indptr, indices = (torch.from_numpy(array.astype("int64")) for array in layout.csc(relation))
    nodes = torch.arange(layout.num_nodes)
    edges = torch.stack([indices, nodes.repeat_interleave(indptr.diff())])
    return model(layout.features(relation[0]).gather(nodes).float(), edges)


if __name__ == "__main__":
    options = parser.parse_args()
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        kind = getattr(torch_geometric.nn, options.model)
        model = kind(layout.num_features, 64, num_layers=2, out_channels=layout.num_classes)
        train(model, layout.pyg_loader("train", [10, 10], batch_size=256), options.epochs)
        model.eval()
        scores = layout.pyg_inference(model, options.out, memory=options.memory)
        test = torch.from_numpy(layout.split("test").copy())  # ranks, like the rows of the embeddings
        y, rows = torch.from_numpy(layout.labels()[test.numpy()]), scores[test]
        expected = whole_graph(model, layout)[test]
        print(f"largest difference {(rows - expected).abs().max():.1e}")
        for name, found in (("embeddings", rows), ("whole graph", expected)):
            print(f"test accuracy by {name}: {(found.argmax(1) == y).float().mean():.4f}")
