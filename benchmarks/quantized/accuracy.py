"""Accuracy of GraphSAGE on tables of every codec: the same seeds and splits, on the codec's decoded rows.

Two layers as PyG's ``SAGEConv`` with ``mean`` (its mathematics and initial weights), full batch, Adam at .01 with
weight decay 5e-4, dropout between the layers; the test score is that of the epoch with the best validation score. A
seed draws split, weights and dropout. A codec *differs* from float32 if the paired t-test over the seeds says so at
5 %, after Holm's correction for all codecs of a graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy import stats
from torch.nn import functional

from benchmarks.harness import Table
from tiering.codecs import CODECS, LossMeter, fit_codec
from tiering.errors import MissingError

Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Splits = tuple[Ids, Ids, Ids]
PLAIN = "float32"
HEADS = ["codec", "row bytes", "score", "sd", "difference", "95 %", "p", "differs"]
HEADS += ["rms", "largest", "worst column", "exact columns"]
_LEVEL = 0.05


def draw_per_class(train: int, valid: int, test: int | None = None) -> Callable[[Ids, np.random.Generator], Splits]:
    """Return a rule: `train` nodes of each class; `valid` of each and the rest, or so many in all where `test` is."""

    def draw(labels: Ids, random: np.random.Generator) -> Splits:
        order = random.permutation(len(labels))
        within = np.empty(len(labels), np.int64)  # number of a node among those of its class, as they were drawn
        for label in np.unique(labels):
            members = order[labels[order] == label]
            within[members] = np.arange(len(members))
        rest = order[within[order] >= train]
        first, held = order[within[order] < train], within[rest] < train + valid
        return (first, rest[held], rest[~held]) if test is None else (first, rest[:valid], rest[valid : valid + test])

    return draw


def draw_halves(labels: Ids, random: np.random.Generator) -> Splits:
    """Return half of the nodes, a quarter and a quarter."""
    order, half, quarter = random.permutation(len(labels)), len(labels) // 2, len(labels) // 4
    return order[:half], order[half : half + quarter], order[half + quarter :]


@dataclass(frozen=True)
class Setting:
    """How a graph is trained on."""

    draw: Callable[[Ids, np.random.Generator], Splits]
    hidden: int
    dropout: float
    epochs: int
    both_ways: bool = False  # whether edges are stored once, and go both ways
    auc: bool = False  # whether the score is ROC AUC of two classes instead of the accuracy


SETTINGS = {
    "dblp-citation": Setting(draw_per_class(20, 30), 64, 0.5, 60),
    "tolokers": Setting(draw_halves, 32, 0.2, 100, both_ways=True, auc=True),
    "cora": Setting(draw_per_class(20, 500, 1000), 32, 0.5, 100),
}


class Mean(torch.autograd.Function):
    """The product of a sparse matrix and rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, matrix: Any) -> torch.Tensor:
        """Return `matrix` @ `rows`."""
        ctx.matrix = matrix
        return torch.from_numpy(matrix @ rows.detach().numpy())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient of the rows."""
        return torch.from_numpy(ctx.matrix.T @ gradients[0].contiguous().numpy()), None


class Graph(NamedTuple):
    """Edges as the matrix that takes means over in-neighbors, and what is learned."""

    mean: Any
    labels: Ids


class Sage(torch.nn.Module):
    """Two layers; the mean of the first is taken before, once per table, and that of the second after its product."""

    def __init__(self, dim: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.from_mean, self.from_self = torch.nn.Linear(dim, hidden), torch.nn.Linear(dim, hidden, bias=False)
        self.to_mean, self.to_self = torch.nn.Linear(hidden, classes), torch.nn.Linear(hidden, classes, bias=False)
        self._dropout = dropout

    def forward(self, rows: torch.Tensor, means: torch.Tensor, mean: Any, targets: Any = slice(None)) -> torch.Tensor:
        """Return the classes' logits of `targets`, the rows of `mean`, from rows and means of all its columns."""
        hidden = functional.relu(self.from_mean(means) + self.from_self(rows))
        hidden = functional.dropout(hidden, self._dropout, self.training)
        multiply: Callable[..., torch.Tensor] = Mean.apply
        near = multiply(hidden @ self.to_mean.weight.T, mean) + self.to_mean.bias
        own: torch.Tensor = self.to_self(hidden[targets])
        return near + own


def measure(name: str, data: Path, seeds: int) -> Table:
    """Train on the graph `name` of the folder `data` from each of so many seeds, on the table of each codec."""
    torch.set_num_threads(1)
    setting = SETTINGS[name]
    rows, graph = load_graph(data / name, setting.both_ways)
    known, scores, stored = dict[str, Scores](), dict[str, Scores](), dict[str, list[Any]]()
    for codec_name in CODECS:
        codec = fit_codec(codec_name, [rows], rows.shape[1], "float32", name)
        meter = LossMeter(codec)
        decoded = codec.decode(meter.encode(rows))
        loss, digest = meter.loss(), hashlib.sha256(decoded.tobytes()).hexdigest()
        if digest not in known:  # equal tables train alike
            known[digest] = train_all(decoded, graph, setting, seeds)
        scores[codec_name] = known[digest]
        exact = f"{loss.exact_columns} of {loss.columns}"
        stored[codec_name] = [codec.row_bytes, loss.rms, loss.largest, loss.worst_rms, exact]
    changes = {codec_name: found - scores[PLAIN] for codec_name, found in scores.items() if codec_name != PLAIN}
    adjusted = dict(zip(changes, holm([p_value(change) for change in changes.values()]), strict=True))
    lines: list[list[Any]] = []
    for codec_name, (row_bytes, *losses) in stored.items():
        figures: list[Any] = [None] * 4
        if codec_name in changes:
            p, change = adjusted[codec_name], changes[codec_name]
            figures = [float(change.mean()), interval(change), p, "yes" if p < _LEVEL else "no"]
        mean, spread = float(scores[codec_name].mean()), float(scores[codec_name].std(ddof=1))
        lines.append([codec_name, row_bytes, mean, spread, *figures, *losses])
    about = {"seeds": seeds, "score": "ROC AUC" if setting.auc else "accuracy", "epochs": setting.epochs}
    return Table(f"accuracy, {name}", {**about, "hidden": setting.hidden}, HEADS, lines)


def load_graph(folder: Path, both_ways: bool) -> tuple[Floats, Graph]:
    """Return a graph's rows and the rest of it."""
    if not folder.is_dir():
        raise MissingError(f"{folder}: no such directory; say with --data where the graphs lie")
    rows, edges, labels = (np.load(folder / f"{part}.npy") for part in ("node_feat", "edge_index", "node_label"))
    if both_ways:
        edges = np.concatenate([edges, edges[::-1]], 1)
    counts = sp.csr_matrix((np.ones(edges.shape[1]), (edges[1], edges[0])), (len(rows), len(rows)))
    degrees = np.maximum(np.asarray(counts.sum(1)).ravel(), 1)
    return np.ascontiguousarray(rows, np.float32), Graph((sp.diags(1 / degrees) @ counts).astype(np.float32), labels)


def train_all(rows: Floats, graph: Graph, setting: Setting, seeds: int) -> Scores:
    """Return the test score of each seed."""
    means = np.ascontiguousarray(graph.mean @ rows)
    return np.array([train(rows, means, graph, setting, seed) for seed in range(seeds)])


def train(rows: Floats, means: Floats, graph: Graph, setting: Setting, seed: int) -> float:
    """Return the test score of one seed; training looks at its nodes and their neighbors only."""
    first, valid, test = setting.draw(graph.labels, np.random.default_rng(seed))
    torch.manual_seed(seed)
    model = Sage(rows.shape[1], setting.hidden, int(graph.labels.max()) + 1, setting.dropout)
    adam = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    seen = np.unique(np.concatenate([graph.mean[first].indices, first]))
    part = graph.mean[first][:, seen].tocsr()
    x, near, targets = torch.from_numpy(rows[seen]), torch.from_numpy(means[seen]), np.searchsorted(seen, first)
    whole, labels = (torch.from_numpy(rows), torch.from_numpy(means)), torch.from_numpy(graph.labels)
    best, result = -1.0, 0.0
    for _ in range(setting.epochs):
        model.train()
        adam.zero_grad()
        loss: Any = functional.cross_entropy(model(x, near, part, targets), labels[first])
        loss.backward()
        adam.step()
        model.eval()
        with torch.no_grad():
            logits = model(*whole, graph.mean).numpy()
        found = score(logits[valid], graph.labels[valid], setting.auc)
        if found > best:
            best, result = found, score(logits[test], graph.labels[test], setting.auc)
    return result


def score(logits: Floats, labels: Ids, auc: bool) -> float:
    """Return the accuracy, or the area under the ROC curve of class 1."""
    if not auc:
        return float((logits.argmax(1) == labels).mean())
    ranks, ones = stats.rankdata(logits[:, 1] - logits[:, 0]), labels == 1
    wins = ranks[ones].sum() - ones.sum() * (ones.sum() + 1) / 2
    return float(wins / (ones.sum() * (~ones).sum()))


def p_value(differences: Scores) -> float:
    """Return the p of a paired t-test; 1 where no seed differs."""
    return float(stats.ttest_1samp(differences, 0).pvalue) if differences.any() else 1.0


def interval(differences: Scores) -> float:
    """Return half of the 95 % interval of the mean difference."""
    count = len(differences)
    return float(stats.t.ppf(1 - _LEVEL / 2, count - 1) * differences.std(ddof=1) / np.sqrt(count))


def holm(values: list[float]) -> list[float]:
    """Return p values corrected for their number, by Holm's steps down."""
    order, count = np.argsort(values), len(values)
    corrected = np.minimum(1, np.maximum.accumulate(np.array(values)[order] * np.arange(count, 0, -1)))
    return [float(corrected[place]) for place in np.argsort(order)]
