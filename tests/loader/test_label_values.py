"""Labels that are no classes and splits in several masks, from the source to what every loader delivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiering
from tiering.datasets import import_context
from tiering.errors import InputError

NODES = 90
RANDOM = np.random.default_rng(3)
EDGES = torch.from_numpy(RANDOM.integers(0, NODES, (2, 500)))
MASKS = torch.from_numpy(RANDOM.random((NODES, 10)) < 0.3)
NAN = torch.where(torch.arange(NODES) % 3 == 0, torch.nan, torch.linspace(-2, 2, NODES))
LABELS = {
    "float": torch.linspace(-2, 2, NODES),
    "whole floats": torch.arange(NODES).float(),
    "NaN": NAN,
    "one column": torch.linspace(-2, 2, NODES, dtype=torch.float64)[:, None],
    "half": torch.linspace(-2, 2, NODES).half(),
    "multi-label": (torch.from_numpy(RANDOM.random((NODES, 7))) < 0.5).float(),
    "0 and 1": torch.from_numpy(RANDOM.integers(0, 2, (NODES, 7))),
    "boolean": torch.from_numpy(RANDOM.random((NODES, 3)) < 0.5),
    "transposed": torch.linspace(-1, 1, 4 * NODES).reshape(4, NODES).T,
    "classes": torch.arange(NODES) % 5,
}


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def build(source: Any, **options: Any) -> Any:
        graph = tiering.import_graph(source, tmp_path / "graph", force=True, **options)
        scores = tiering.score_graph(graph, out=tmp_path / "scores", method="degree", force=True)
        ranked = tiering.reorder_graph(graph, scores, out=tmp_path / "ranked", force=True)
        layout = tiering.write_layout(ranked, out=tmp_path / "layout", cpu="30%", ssd=[tmp_path / "ssd"], force=True)
        for artifact in (graph, ranked):
            assert tiering.check(artifact.path, "full") == []
        return layout

    return build


def data(labels: torch.Tensor, **nodes: Any) -> Any:
    pyg = pytest.importorskip("torch_geometric.data")
    return pyg.Data(x=torch.rand(NODES, 4), edge_index=EDGES, y=labels, test_mask=MASKS[:, 0], **nodes)


def equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("kind", LABELS)
def test_every_loader_delivers_labels_as_they_were(make: Any, kind: str) -> None:
    labels = LABELS[kind]
    with make(data(labels, train_mask=MASKS, val_mask=~MASKS)) as layout:
        assert layout.num_classes() == (5 if kind == "classes" else labels.shape[1] if labels.ndim == 2 else 1)
        assert layout.graph.splits()[:3] == ["train-0", "train-1", "train-2"]
        for batch in layout.loader("train-3", fanouts=[3, 2], batch_size=16):
            equal(batch.y, labels[layout.new_to_old()[batch.seeds]])
        seen = []
        for batch in layout.pyg_loader("train-3", num_neighbors=[3, 2], batch_size=16):
            equal(batch.y, labels[batch.n_id])
            equal(batch.train_mask, MASKS[batch.n_id])
            equal(batch.val_mask, ~MASKS[batch.n_id])
            equal(batch.test_mask, MASKS[batch.n_id, 0])
            seen.append(batch.n_id[: batch.batch_size])
        equal(torch.cat(seen).sort().values, MASKS[:, 3].nonzero()[:, 0])
        features, _ = layout.pyg_stores()
        ids = torch.tensor([5, 0, 88])
        equal(features.get_tensor(group_name=None, attr_name="y", index=ids), labels[ids])
        equal(features.get_tensor(group_name=None, attr_name="train_mask", index=ids), MASKS[ids])
        for name, whole in (("y", labels), ("train_mask", MASKS), ("test_mask", MASKS[:, 0])):
            assert features.get_tensor_size(group_name=None, attr_name=name, index=None) == tuple(whole.shape)


@pytest.mark.parametrize("kind", ["NaN", "one column", "0 and 1", "boolean", "classes"])
def test_a_gpu_delivers_the_same(gpu: Any, make: Any, kind: str) -> None:
    labels, masks = LABELS[kind], torch.from_numpy(RANDOM.random((NODES, 70)) < 0.5)  # more than a word has bits
    with make(data(labels, train_mask=masks)) as layout:
        for batch in layout.pyg_loader("train-69", num_neighbors=[3, 2], batch_size=16, device="cuda"):
            equal(batch.y, labels[batch.n_id])
            equal(batch.train_mask, masks[batch.n_id])
        for native in layout.loader("train-69", fanouts=[3, 2], batch_size=16, device="cuda"):
            equal(native.y, labels[layout.new_to_old()[native.seeds]])


def test_dgl_batches_and_exports_have_them(make: Any, tmp_path: Path) -> None:
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph((EDGES[0], EDGES[1]), num_nodes=NODES)
    graph.ndata["feat"], graph.ndata["label"] = torch.rand(NODES, 4), LABELS["multi-label"]
    graph.ndata["train_mask"] = MASKS[:, 1]
    with make(graph) as layout:
        for _, outputs, blocks in layout.dgl_loader("train", fanouts=[3, 2], batch_size=16):
            equal(blocks[-1].dstdata["label"], LABELS["multi-label"][outputs])
        tiering.export_layout(layout.path, tmp_path / "export", original_order=True)
    train = np.load(tmp_path / "export/nodes/node/train_idx.npy")
    equal(torch.from_numpy(np.load(tmp_path / "export/nodes/node/label.npy")), LABELS["multi-label"])
    equal(torch.from_numpy(np.load(tmp_path / "export/nodes/node/train_labels.npy")), LABELS["multi-label"][train])


def test_types_have_labels_of_their_own(make: Any) -> None:
    pyg = pytest.importorskip("torch_geometric.data")
    graph = pyg.HeteroData()
    graph["user"].x, graph["user"].y, graph["user"].train_mask = torch.rand(NODES, 4), LABELS["float"], MASKS[:, 2]
    graph["item"].x, graph["item"].y = torch.rand(NODES, 4), LABELS["multi-label"]
    graph["user", "rates", "item"].edge_index, graph["item", "of", "user"].edge_index = EDGES, EDGES.flip(0)
    with make(graph) as layout:
        assert (layout.num_classes("user"), layout.num_classes("item")) == (1, 7)
        for batch in layout.pyg_loader("train", num_neighbors=[3, 2], batch_size=16):
            equal(batch["user"].y, LABELS["float"][batch["user"].n_id])
            equal(batch["item"].y, LABELS["multi-label"][batch["item"].n_id])


@pytest.mark.parametrize("on_disk", [False, True])
def test_numpy_files_hold_values_and_masks(tmp_path: Path, capfd: Any, monkeypatch: Any, on_disk: bool) -> None:
    if on_disk:
        monkeypatch.setattr(import_context, "IN_MEMORY_BYTES", 0)
        monkeypatch.setattr(import_context, "CHUNK", 16)
    folder, labels = tmp_path / "toy", np.asfortranarray(np.random.default_rng(0).random((NODES, 6)))
    folder.mkdir()
    np.save(folder / "edge_index.npy", EDGES.numpy())
    np.save(folder / "node_label.npy", labels)
    np.save(folder / "train_mask.npy", MASKS.numpy())
    graph = tiering.import_graph(folder, tmp_path / "a", work_dir=tmp_path)
    np.testing.assert_array_equal(graph.labels(), labels)
    np.testing.assert_array_equal(graph.split("train-9"), np.flatnonzero(MASKS[:, 9]))
    assert "note" not in capfd.readouterr().err
    np.save(folder / "node_label.npy", NAN.numpy())
    graph = tiering.import_graph(folder, tmp_path / "b", split=(0.5, 0.25, 0.25))
    np.testing.assert_array_equal(graph.labels(), NAN.numpy())
    assert "node_label.npy: -1.9550561904907227 at row 1 is not a class" in capfd.readouterr().err
    assert not np.isnan(NAN.numpy()[graph.split("train")]).any() and graph.split("train").size == 30
    np.save(folder / "node_label.npy", (np.arange(NODES) % 4).astype(np.float32))  # whole numbers: classes, as in IGB
    assert tiering.import_graph(folder, tmp_path / "c").num_classes() == 4


def test_types_of_a_tree_of_numpy_files_have_them(tmp_path: Path) -> None:
    tree = tmp_path / "data/processed"
    values = {"paper": LABELS["multi-label"].numpy(), "author": LABELS["float"].numpy()}
    for node_type, labels in values.items():
        (tree / node_type).mkdir(parents=True)
        np.save(tree / node_type / "node_label.npy", labels)
        np.save(tree / node_type / "train_mask.npy", MASKS.numpy())
    (tree / "author__writes__paper").mkdir()
    np.save(tree / "author__writes__paper/edge_index.npy", EDGES.numpy())
    graph = tiering.import_graph(tree.parent, tmp_path / "graph", memory="1GiB")
    for node_type, labels in values.items():
        np.testing.assert_array_equal(graph.labels(node_type), labels)
        np.testing.assert_array_equal(graph.split("train-4", node_type), np.flatnonzero(MASKS[:, 4]))
    np.save(tree / "author/node_label_19.npy", values["author"])  # IGB's own
    with pytest.raises(InputError, match=r"node_label_19\.npy: expected labels 0, 1, 2"):
        tiering.import_graph(tree.parent, tmp_path / "other")
