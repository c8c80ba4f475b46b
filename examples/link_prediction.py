"""Predict links with PyG: python examples/link_prediction.py LAYOUT [--features memory] [--epochs N]"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import tiering

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("layout")
parser.add_argument("--features", default="tiers", help="tiers; or memory, to read all rows into memory first")
parser.add_argument("--device", default="cpu")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--links", type=int, default=20_000, help="edges to train on and to test with")


def scores(model, batch):
    """Return a score for each pair of the batch: the higher, the more likely the pair is an edge."""
    rows = model(batch.x.float(), batch.edge_index)
    return (rows[batch.edge_label_index[0]] * rows[batch.edge_label_index[1]]).sum(-1)


def ranking_quality(real, drawn):
    """Return the area under the ROC curve: how often an edge has a higher score than a random pair."""
    order = torch.cat((drawn, real)).argsort().argsort()[len(drawn) :].double()
    return (order.sum() - len(real) * (len(real) - 1) / 2).item() / (len(real) * len(drawn))


if __name__ == "__main__":
    options = parser.parse_args()
    torch.manual_seed(0)
    with tiering.open(options.layout) as layout:
        generator = torch.Generator().manual_seed(1)
        indptr, sources = (torch.from_numpy(array.astype("int64")) for array in layout.csc())
        pick = torch.randperm(len(sources), generator=generator)[: options.links]  # these ids are ranks
        ends = torch.stack((sources[pick], torch.searchsorted(indptr, pick, right=True) - 1))
        links = torch.from_numpy(layout.new_to_old()[ends.numpy()].astype("int64"))
        common = {"neg_sampling": "binary", "batch_size": 512, "device": options.device, "features": options.features}
        cut = options.links * 4 // 5
        train = layout.pyg_link_loader([10, 5], edge_label_index=links[:, :cut], **common)
        test = layout.pyg_link_loader([10, 5], edge_label_index=links[:, cut:], **common)
        model = GraphSAGE(layout.feature_dim(layout.node_types[0]), 64, 2, 64).to(options.device)
        optimizer = torch.optim.Adam(model.parameters(), 0.003)
        for epoch in range(options.epochs):
            for batch in train:
                loss = F.binary_cross_entropy_with_logits(scores(model, batch), batch.edge_label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.6f}")
        with torch.no_grad():
            tested = [(scores(model, batch), batch.edge_label == 1) for batch in test]
        score, real = (torch.cat(parts) for parts in zip(*tested, strict=True))
        print(f"area under the ROC curve {ranking_quality(score[real], score[~real]):.4f}")
