"""16-bit tables without a codec, whose rows have no padding, delivered as other dtypes: odd numbers of columns too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from coded_layouts import as_dtype, as_float32
from toy_datasets import Toy, chain

import tiering
from tiering.codecs import DELIVERED
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.features import FeatureTable
from tiering.loader.memory import decide_memory

DIMS = (1, 2, 3, 7, 128, 129)
TIERS = {"gpu": "11%", "peer": "2x7%", "cpu": "20%"}


@pytest.fixture(scope="module", params=["float16", "bfloat16"])
def made(request, tmp_path_factory):
    """Rows by rank of a type for each number of columns, as float32, and a layout with rows in all tiers."""
    folder, random, rows = tmp_path_factory.mktemp("halves"), np.random.default_rng(3), 300
    toy = Toy(Dataset("halves", "npy", {}, []))
    for dim in DIMS:
        table = as_dtype(random.normal(size=(rows, dim)).astype(np.float32), request.param)
        (folder / f"t{dim}").write_bytes(table.tobytes())
        nodes = NodeData(rows, features=FeatureTable(folder / f"t{dim}", rows, dim, request.param))
        nodes.splits = {"train": random.permutation(rows)[:150]}
        toy.dataset.nodes[f"t{dim}"], toy.tables[f"t{dim}"] = nodes, table
    for dim in DIMS:
        src, dst = random.integers(0, rows, (2, 900))
        toy.dataset.edges.append(EdgeData((f"t{dim}", "to", "t7"), src, dst, data={}, where="toy.npy"))
    out = folder / "out"
    disks = [folder / f"ssd{k}" for k in range(2)]
    tiering.write_layout(chain(toy, folder)[2], out=out, ssd=disks, dtype="auto", **TIERS).close()
    with tiering.open(out) as layout:
        assert not any(layout.artifact.type_layout(name).codec for name in layout.feature_types)
        ranked = {name: table[np.asarray(layout.new_to_old(name))] for name, table in toy.tables.items()}
    return {name: as_float32(table, request.param) for name, table in ranked.items()}, out


def bits(tensor):
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy().tobytes()


@pytest.mark.parametrize("dtype", DELIVERED)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_tier_delivers_every_dtype(made, gpu, device, dtype):
    rows, path = made
    tiers: set[str] = set()
    with tiering.open(path) as layout:
        for name, expected in rows.items():
            ids = np.random.default_rng(1).permutation(len(expected))
            with layout.features(name, device=device, dtype=dtype) as table:
                found = table.gather(ids)
                assert found.dtype == getattr(torch, dtype) and found.shape == expected.shape
                assert bits(found) == as_dtype(expected[ids], dtype).tobytes()
                assert bits(table.gather(ids[:1])) == as_dtype(expected[ids[:1]], dtype).tobytes()
                if expected.shape[1] % 2:
                    tiers |= {tier for tier, served in table.counters.tiers.items() if served.rows}
    assert tiers == {"gpu", "peer", "cpu", "ssd"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"memory": "tiers"}, {"features": "memory"}])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_deliver_every_dtype(made, gpu, monkeypatch, device, options, dtype):
    """Also where rows come by slots, in several parts of a batch."""
    rows, path = made
    if not options:
        monkeypatch.setattr(
            "tiering.loader.loader.decide_memory", lambda *of: replace(decide_memory(*of), preload=False)
        )
        few = lambda tables, nbytes, sizes: [(size, 20) for size in sizes]  # noqa: E731
        monkeypatch.setattr("tiering.readahead.memory.divide_slots", few)
    with tiering.open(path) as layout:
        chosen = {"batch_size": 50, "fanouts": [3, 3], "node_type": "t7", "device": device, "dtype": dtype}
        batches = list(layout.loader("train", **chosen, **options))
        assert len(batches) == 3
        for batch in batches:
            assert set(batch.features) == set(rows)
            for name, found in batch.features.items():
                expected = as_dtype(rows[name][batch.nodes[name].cpu().numpy()], dtype)
                assert found.dtype == getattr(torch, dtype) and bits(found) == expected.tobytes()
