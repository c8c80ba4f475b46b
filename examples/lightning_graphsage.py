"""A layout as Lightning's `DataModule`: python examples/lightning_graphsage.py LAYOUT [--features memory]"""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import tiering


class Layout(L.LightningDataModule):
    """Batches of the splits of a layout."""

    def __init__(self, path, **options):
        super().__init__()
        self.layout, self.options = tiering.open(path), options

    def train_dataloader(self):
        return self.layout.pyg_loader("train", batch_size=256, **self.options)

    def test_dataloader(self):
        return self.layout.pyg_loader("test", batch_size=1024, shuffle=False, **self.options)


class Classifier(L.LightningModule):
    """GraphSAGE; the seeds come first in a batch."""

    def __init__(self, dim, classes):
        super().__init__()
        self.model = GraphSAGE(dim, 64, 2, classes)

    def training_step(self, batch):
        out = self.model(batch.x.float(), batch.edge_index)[: batch.batch_size]
        return F.cross_entropy(out, batch.y[: batch.batch_size], ignore_index=-1)

    def test_step(self, batch):
        right = self.model(batch.x.float(), batch.edge_index).argmax(-1) == batch.y
        self.log("test accuracy", right[: batch.batch_size].float().mean(), batch_size=batch.batch_size)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.005)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout")
    for name, default in (("features", "tiers"), ("epochs", 3)):
        parser.add_argument(f"--{name}", default=default, type=type(default))
    options = parser.parse_args()
    L.seed_everything(0)
    data = Layout(options.layout, num_neighbors=[10, 10], features=options.features)
    model = Classifier(data.layout.feature_dim(data.layout.node_types[0]), data.layout.num_classes())
    trainer = L.Trainer(max_epochs=options.epochs, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(model, data)
    print(f"test accuracy {trainer.test(model, data, verbose=False)[0]['test accuracy']:.4f}")
