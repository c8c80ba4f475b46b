"""Train GraphSAGE in plain torch from the tiers of a layout.

    python examples/train_graphsage.py LAYOUT --epochs 5 --fanouts 10,10

``--source memory`` reads all features into memory first. Batches, and with the same seed the accuracy, stay the same.
``--model mlp`` ignores the graph, to show what the neighbors are worth. Layouts with several node types work: each
relation has its own linear map, and the results are summed. A node type without features gets one learned vector.
``--device cuda`` samples, gathers and trains on a GPU, with the same batches.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
import xxhash
from torch import Tensor, nn
from torch.nn import functional

import tiering
from tiering.loader import Batch, Block, Loader, TieredLayout
from tiering.sampling import SAMPLERS
from tiering.text.units import parse_fanouts

Relation = tuple[str, str, str]


def mean_over_edges(rows: Tensor, edge_index: Tensor, num_dst: int, weights: Tensor | None = None) -> Tensor:
    """Return the mean of the source rows of each destination, or zeros for a destination without edges.

    Parameters
    ----------
    rows
        Shape (sources, width).
    edge_index
        int64, shape (2, edges): sources above destinations.
    weights
        float32, shape (edges,), all positive; 1 by default.
    """
    src, dst = edge_index
    # index_select and index_add sum in the order of the edges, also in the backward pass; rows[src] would not.
    found = rows.index_select(0, src)
    if weights is None:
        total = torch.bincount(dst, minlength=num_dst).clamp_(min=1)
    else:
        found = found * weights.unsqueeze(1)
        total = rows.new_zeros(num_dst).index_add_(0, dst, weights)
        total = torch.where(total > 0, total, 1)
    return rows.new_zeros(num_dst, rows.shape[1]).index_add_(0, dst, found) / total.unsqueeze(1)


class SageLayer(nn.Module):
    """GraphSAGE with mean aggregation: out(v) = W_type x(v) + sum over relations of W_rel mean x(u), edges u -> v.

    If the sampler gives weights to its edges (visits of PinSAGE, importance of LADIES), the mean is weighted. The map
    runs before the mean: the result is the same, and hidden layers are narrower than features.
    """

    def __init__(self, widths: Mapping[str, int], relations: Sequence[Relation], out: int) -> None:
        super().__init__()
        self.own = nn.ModuleDict({node_type: nn.Linear(width, out) for node_type, width in widths.items()})
        self.neighbor = nn.ModuleDict({":".join(r): nn.Linear(widths[r[0]], out, bias=False) for r in relations})

    def forward(self, x: Mapping[str, Tensor], block: Block) -> dict[str, Tensor]:
        out = {t: self.own[t](x[t][: block.num_dst[t]]) for t in x}
        for relation, edges in block.edge_index.items():
            if edges.shape[1] == 0:
                continue
            src_type, _, dst_type = relation
            rows = self.neighbor[":".join(relation)](x[src_type][: block.num_src[src_type]])
            out[dst_type] = out[dst_type] + mean_over_edges(
                rows, edges, block.num_dst[dst_type], block.edge_weight.get(relation)
            )
        return out


class GraphSage(nn.Module):
    """One `SageLayer` per hop. The last layer returns the class scores of the seeds."""

    def __init__(self, loader: Loader, hops: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        layout = loader.layout
        widths = {t: layout.feature_dim(t) if t in layout.feature_types else hidden for t in layout.node_types}
        self.stand_in = nn.ParameterDict(
            {t: nn.Parameter(0.1 * torch.randn(hidden)) for t in widths if t not in layout.feature_types}
        )
        layers = []
        for hop in range(hops):
            out = classes if hop == hops - 1 else hidden
            layers.append(SageLayer(widths, loader.relations, out))
            widths = dict.fromkeys(widths, out)
        self.layers = nn.ModuleList(layers)
        self.dropout = dropout

    def forward(self, batch: Batch) -> Tensor:
        x = {
            t: batch.features[t].float() if t in batch.features else self.stand_in[t].expand(len(ids), -1)
            for t, ids in batch.nodes.items()
        }
        for layer, block in zip(self.layers[:-1], batch.blocks()[:-1], strict=True):
            x = {t: functional.dropout(h.relu(), self.dropout, self.training) for t, h in layer(x, block).items()}
        scores: Tensor = self.layers[-1](x, batch.blocks()[-1])[batch.seed_type]
        return scores


class Mlp(nn.Module):
    """A baseline without the graph: two layers on the features of the seeds."""

    def __init__(self, layout: TieredLayout, node_type: str, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        width = layout.feature_dim(node_type)
        self.net = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, classes))

    def forward(self, batch: Batch) -> Tensor:
        scores: Tensor = self.net(batch.features[batch.seed_type][: len(batch.seeds)].float())
        return scores


def digest_batch(hasher: xxhash.xxh3_64, batch: Batch) -> None:
    """Add every byte of a batch to the digest: nodes, edges and their weights, features, labels."""
    tensors: list[Tensor] = [*batch.nodes.values(), *batch.features.values()]
    tensors += [edges for hop in (*batch.hops, *batch.weights) for edges in hop.values()]
    if batch.y is not None:
        tensors.append(batch.y)
    for tensor in tensors:
        hasher.update(tensor.contiguous().view(-1).view(torch.uint8).cpu().numpy())


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Batch], hasher: xxhash.xxh3_64 | None
) -> float:
    """Train on all batches once and return the mean loss of the seeds."""
    model.train()
    total: Tensor | float = 0.0  # summed on its device: reading it would wait for the GPU
    seeds = 0
    for batch in batches:
        if hasher is not None:
            digest_batch(hasher, batch)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch), batch.y, ignore_index=-1)
        loss.backward()
        optimizer.step()
        total += loss.detach().double() * len(batch.seeds)
        seeds += len(batch.seeds)
    return float(total) / max(1, seeds)


@torch.no_grad()
def accuracy(model: nn.Module, loader: Loader) -> float:
    """Return the fraction of labeled seeds classified correctly. Epoch 0 always samples the same neighbors."""
    model.eval()
    right = labeled = 0
    for batch in loader.epoch(0):
        if batch.y is None:
            continue
        found, known = model(batch).argmax(1), batch.y >= 0
        right += int(torch.sum(found[known] == batch.y[known]))
        labeled += int(torch.sum(known))
    return right / max(1, labeled)


def train(
    layout_path: str | PathLike[str],
    *,
    epochs: int = 5,
    hidden: int = 64,
    fanouts: Sequence[int] = (10, 10),
    batch_size: int = 1024,
    seed: int = 0,
    source: str = "tiers",
    model: str = "sage",
    lr: float = 0.01,
    dropout: float = 0.3,
    frontier: str = "all",
    sampler: str = "uniform",
    engine: str = "auto",
    device: str = "cpu",
    digest: bool = True,
    threads: int = 1,
    log: Any = None,
) -> dict[str, Any]:
    """Train and evaluate. The same arguments give the same numbers with either `source`.

    Parameters
    ----------
    layout_path
        Layout directory. One node type must have labels and a split ``train``.
    source
        ``tiers`` or ``memory``.
    model
        ``sage`` or ``mlp``.
    sampler, device
        See `TieredLayout.loader`.
    digest
        Whether to compute ``batch_digest``. On a GPU this copies every batch back.
    threads
        Threads of torch. With more than one thread, losses may differ in their last bits from run to run; batches never
        differ.
    log
        Function that is called with a line of text after each epoch.

    Returns
    -------
    dict
        ``losses``, ``val`` and ``seconds`` by epoch; ``test`` after the last; ``batch_digest`` over every byte of all
        training batches; ``rows``: feature rows of the training by their source.
    """
    with deterministic(threads), tiering.open(layout_path) as layout:
        options: dict[str, Any] = {"fanouts": fanouts, "batch_size": batch_size, "seed": seed, "frontier": frontier}
        options |= {"sampler": sampler, "features": source, "engine": engine, "device": device}
        loader = layout.loader("train", **options)
        classes = layout.num_classes(loader.node_type)
        if classes is None:
            raise tiering.errors.InputError(f"{layout_path}: node type {loader.node_type!r} has no labels to train on")
        torch.manual_seed(seed)
        net: nn.Module
        if model == "mlp":
            net = Mlp(layout, loader.node_type, hidden, classes, dropout)
        else:
            net = GraphSage(loader, len(fanouts), hidden, classes, dropout)
        net.to(device)
        options["features"] = loader.features  # reuse the open tables
        options["batch_size"] = max(batch_size, 1024)
        splits = layout.graph.splits(loader.node_type)
        held_out = {
            name: layout.loader(name, node_type=loader.node_type, shuffle=False, **options)
            for name in ("val", "test")
            if name in splits and len(layout.split(name, loader.node_type))
        }
        return fit(net, loader, held_out, epochs, lr, digest, log)


@contextmanager
def deterministic(threads: int) -> Iterator[None]:
    """Make torch sum in a fixed order on `threads` threads; restore both settings afterwards."""
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch requires it on a GPU
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])


def fit(
    net: nn.Module, loader: Loader, held_out: Mapping[str, Loader], epochs: int, lr: float, digest: bool, log: Any
) -> dict[str, Any]:
    """Run the training loop; see `train` for the result."""
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    hasher = xxhash.xxh3_64()
    result: dict[str, Any] = {"losses": [], "val": [], "test": None, "seconds": []}
    loader.reset_counters()
    for epoch in range(epochs):
        start = time.perf_counter()
        loss = train_epoch(net, optimizer, loader.epoch(epoch), hasher if digest else None)
        result["losses"].append(loss)
        result["seconds"].append(time.perf_counter() - start)
        if epoch == epochs - 1:
            result["rows"] = loader.stats().rows
        if "val" in held_out:
            result["val"].append(accuracy(net, held_out["val"]))
        if log is not None:
            val = f"  val {result['val'][-1]:.4f}" if result["val"] else ""
            log(f"epoch {epoch}  loss {loss:.4f}{val}  {result['seconds'][-1]:.1f} s")
    if "test" in held_out:
        result["test"] = accuracy(net, held_out["test"])
    result["batch_digest"] = hasher.hexdigest() if digest else None
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description="Train GraphSAGE from the tiers of a layout.")
    parser.add_argument("layout", help="layout directory")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64, help="width of hidden layers")
    parser.add_argument("--fanouts", type=parse_fanouts, default=[10, 10], help="neighbors per hop, seeds first: 10,10")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--source", choices=["tiers", "memory"], default="tiers", help="where features are read from")
    parser.add_argument("--model", choices=["sage", "mlp"], default="sage")
    parser.add_argument("--frontier", choices=["all", "new"], default="all")
    parser.add_argument("--sampler", choices=sorted(SAMPLERS), default="uniform")
    parser.add_argument("--engine", choices=["auto", "io_uring", "threads"], default="auto")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--no-digest", dest="digest", action="store_false", help="skip the digest of all batches")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; several may change last bits of losses")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = vars(parser.parse_args(argv))
    path, as_json = args.pop("layout"), args.pop("json")
    try:
        result = train(path, log=None if as_json else print, **args)
    except tiering.errors.TieringError as error:
        parser.exit(1, f"error: {error}\n")
    if as_json:
        print(json.dumps(result))
    elif result["test"] is not None:
        print(f"test accuracy {result['test']:.4f}")


if __name__ == "__main__":
    main()
