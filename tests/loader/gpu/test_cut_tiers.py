"""Loaders of a GPU whose tiers have other sizes than the layout: the same batches, from tiers of those sizes."""

from __future__ import annotations

import numpy as np
import pytest
from epochs import bits, known_disk
from tight_memory import tight_loader, wide_graph

from tiering.errors import BudgetError
from tiering.formats.layout import TIERS
from tiering.layout.cut import cut_layout
from tiering.loader.tables import ranks

pytestmark = pytest.mark.usefixtures("watchdog")
SIZES = [{"gpu": "1%", "cpu": "12%"}, {"gpu": "7%"}, {"gpu": "20%", "cpu": "15%"}]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Tiers are read in many pieces."""
    monkeypatch.setattr(ranks, "_PIECE", 5 * 4096)


@pytest.mark.parametrize("way", ["tiers", "auto", "tight"])
def test_one_layout_at_three_sizes_is_three_layouts(gpu, kit, build, tmp_path, way):
    """The same batches, rows and bytes by tier, and memory of the GPU, as of layouts that are written so."""
    data = wide_graph(kit, images=2)
    layout, counts = build(data), set()
    options = {"batch_size": 8, "fanouts": [3, 2], "seed": 7, "depth": 4, "ssd_model": known_disk(tmp_path)}
    options |= {"device": "cuda"}

    def trained(made, **sizes):
        make = {"tight": lambda: tight_loader(made, 40, **options, **sizes)}
        loader = make.get(way, lambda: made.loader(memory=way, **options, **sizes))()
        loader.reset_counters()
        found = [bits(batch) for batch in loader.epoch(1)]
        tiers = {t: (c["rows"], c["bytes"]) for t, c in loader.counters()["node"]["tiers"].items()}
        held, places = gpu.live("bytes"), {t: p["ranks"] for t, p in loader.features["node"].placement().items()}
        del loader
        made.close()
        return found, tiers, held, places

    expected = [bits(batch) for batch in layout.loader(**{**options, "device": "cpu"}, features="memory").epoch(1)]
    for sizes in SIZES:
        entry = cut_layout(layout.artifact, **sizes).type_layout("node")
        data.nodes["node"].tiers = tuple(entry.rows(tier) for tier in TIERS[:3])
        found = trained(layout, **sizes)
        assert found == trained(build(data)) and found[0] == expected
        counts.add(str(found[1]))
    assert len(counts) == len(SIZES)


@pytest.mark.parametrize("row_bytes", [12, 602, 4096])
@pytest.mark.parametrize("verify", [False, True])
def test_rows_of_all_tiers(gpu, kit, build, row_bytes, verify):
    rows = 700
    table = np.random.default_rng(row_bytes).integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    data = kit.Dataset({"paper": kit.Nodes(rows, table, "uint8", tiers=(60, 91, 49))}, peers=3, images=2)
    layout, ids = build(data), np.random.default_rng(1).integers(0, rows, 3000)
    for sizes in ({"gpu": 0}, {"gpu": "3%"}, {"gpu": "55%"}, {"gpu": "100%"}, {"gpu": "20%", "cpu": "60%"}):
        with layout.features(device="cuda", verify=verify, **sizes) as features:
            np.testing.assert_array_equal(features.gather(ids).numpy(), table[data.order("paper")][ids])
            places = features.placement()
            served = {t: features.counters.tiers[t].rows for t in TIERS}
        assert served == {t: int(((ids >= a) & (ids < b)).sum()) for t, (a, b) in
                          ((t, places[t]["ranks"]) for t in TIERS)}  # fmt: skip


def test_rows_that_a_gpu_reads_from_drives(gpu, kit, build):
    """The host reads the rows that leave the ssd tier."""
    table = np.random.default_rng(1).integers(0, 256, (900, 512), dtype=np.uint8)
    data = kit.Dataset({"paper": kit.Nodes(900, table, "uint8", tiers=(50, 0, 100))}, images=2)
    layout, ids = build(data), np.random.default_rng(2).integers(0, 900, 2000)
    drives = [str(path) for path in layout.artifact.images]
    for sizes in ({"gpu": "2%", "cpu": "40%"}, {"gpu": "50%"}, {"cpu": "100%"}):
        with layout.features(device="cuda", engine="bam", drives=drives, verify=True, **sizes) as features:
            np.testing.assert_array_equal(features.gather(ids).numpy(), table[data.order("paper")][ids])
            begin = features.placement()["ssd"]["ranks"][0]
            assert features.counters.tiers["ssd"].rows == int((ids >= begin).sum())


def test_a_gpu_without_room_says_which_size_to_give(gpu, kit, build):
    layout = build(wide_graph(kit))
    free = gpu.live("bytes")
    gpu.set_memory(free + 100 * 4096)
    with pytest.raises(BudgetError, match=r"gpu tier: memory of the GPU.* are free; give a smaller gpu="):
        layout.features(device="cuda", gpu="50%")
    assert gpu.live("bytes") == free
    layout.features(device="cuda", gpu="5%").close()
