"""Train with Lightning: a layout as a `DataModule`, with checkpoints within an epoch.

python examples/lightning_graphsage.py LAYOUT [--features memory] [--epochs N] [--checkpoints DIRECTORY] [--every N]
"""

import argparse
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch_geometric.nn import GraphSAGE

import tiering


class Layout(L.LightningDataModule):
    """The loaders of a layout. A checkpoint holds the current epoch and the number of its batches trained on."""

    def __init__(self, path, **options):
        super().__init__()
        self.layout, self.options, self.train = tiering.open(path), options, None

    def setup(self, stage):
        if stage == "fit" and self.train is None:  # now the process group exists
            self.train = self.layout.pyg_loader("train", batch_size=256, **self.options)

    def state_dict(self):
        return {} if self.train is None else self.train.state_dict()

    def load_state_dict(self, state):
        if self.train is not None:  # `trainer.test` also loads a checkpoint
            self.train.load_state_dict(state)

    def train_dataloader(self):
        return self.train

    def test_dataloader(self):
        return self.layout.pyg_loader("test", batch_size=1024, shuffle=False, **self.options)


class Classifier(L.LightningModule):
    """A GraphSAGE. The seeds are the first nodes of a batch."""

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
    for name, default in (("features", "tiers"), ("epochs", 3), ("checkpoints", ""), ("every", 100)):
        parser.add_argument(f"--{name}", default=default, type=type(default))
    options = parser.parse_args()
    L.seed_everything(0)
    data = Layout(options.layout, num_neighbors=[10, 10], features=options.features)
    model = Classifier(data.layout.feature_dim(data.layout.node_types[0]), data.layout.num_classes())
    saved = options.checkpoints
    saving = [ModelCheckpoint(saved, save_last=True, every_n_train_steps=options.every)] if saved else []
    trainer = L.Trainer(
        max_epochs=options.epochs, accelerator="cpu", logger=False, callbacks=saving, enable_checkpointing=bool(saving)
    )
    resumed = saved and Path(saved, "last.ckpt").exists()
    trainer.fit(model, data, ckpt_path="last" if resumed else None)
    print(f"test accuracy {trainer.test(model, data, verbose=False)[0]['test accuracy']:.4f}")
