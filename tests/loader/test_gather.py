"""Gather: rows equal the source's, whatever the engine, row size, striping and mixture of tiers."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
import torch

import tiering
from tiering import cuda
from tiering.errors import CapabilityError, FormatError, InputError, MissingError
from tiering.formats.features import FEATURE_DTYPES
from tiering.loader import TieredFeatures
from tiering.loader.options import ReadOptions

ROW_SIZES = [1, 4, 40, 512, 1024, 1536, 2408, 4096, 5732, 9000]
ROWS = 230


def bytes_layout(kit, build, row_bytes, *, page=4096, images=1, tiers=(10, 41, 30), rows=ROWS, peers=2):
    table = kit.random_table(rows, row_bytes)
    nodes = {"node": kit.Nodes(rows, table, "uint8", tiers=tiers)}
    data = kit.Dataset(nodes, page_bytes=page, images=images, peers=peers)
    return build(data), table[data.order("node")]


def some_ids(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        rng.integers(0, rows, 3 * rows),  # duplicates, all tiers
        np.arange(rows)[::-1].copy(),
        np.array([rows - 1] * 5 + [0] * 3),
        np.arange(rows - 20, rows),  # neighboring rows of one tier
        np.empty(0, np.int64),
    ]


@pytest.mark.parametrize("row_bytes", ROW_SIZES)
@pytest.mark.parametrize(("images", "page"), [(1, 512), (1, 4096), (3, 16384)])
def test_rows_equal_source(kit, build, engine, row_bytes, images, page):
    layout, rows = bytes_layout(kit, build, row_bytes, page=page, images=images)
    features = layout.features("node", engine=engine, depth={1: 1, 4096: 512}.get(row_bytes, 8))
    verified = layout.features("node", engine=engine, depth=8, verify=True)
    assert features.engine == engine and features is not verified
    for ids in some_ids(len(rows)):
        np.testing.assert_array_equal(features.gather_numpy(ids), rows[ids])
        np.testing.assert_array_equal(verified.gather_numpy(ids), rows[ids])
        np.testing.assert_array_equal(features.gather(torch.from_numpy(ids)).numpy(), rows[ids])


@pytest.mark.parametrize("tiers", list(itertools.product([0, 50], [0, 51], [0, 52])))
@pytest.mark.parametrize("rest", [0, 40])
def test_empty_tiers(kit, build, tiers, rest):
    rows = sum(tiers) + rest
    if rows == 0:
        rows = 1
    layout, expected = bytes_layout(kit, build, 512, tiers=tiers, rows=rows, peers=3)
    features = layout.features()
    ids = np.random.default_rng(0).integers(0, rows, 500)
    np.testing.assert_array_equal(features.gather_numpy(ids), expected[ids])
    placed = features.placement()
    assert [placed[t]["rows"] for t in ("gpu", "peer", "cpu", "ssd")] == [*tiers, rows - sum(tiers)]


def test_reads_through_the_page_cache(kit, build, engine):
    layout, rows = bytes_layout(kit, build, 4096, images=2)
    features = layout.features(engine=engine, direct="off")
    ids = np.random.default_rng(0).integers(0, len(rows), 400)
    np.testing.assert_array_equal(features.gather_numpy(ids), rows[ids])
    assert not features.reader.direct


@pytest.mark.parametrize("dtype", FEATURE_DTYPES)
def test_dtypes(kit, build, dtype):
    storage = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    raw = kit.random_table(60, 3 * storage.itemsize)
    if dtype.startswith("float"):
        raw = np.random.default_rng(0).normal(size=(60, 3)).astype(storage).view(np.uint8)
    table = raw.view(storage).reshape(60, 3)
    data = kit.Dataset({"node": kit.Nodes(60, table, dtype, tiers=(10, 10, 10))})
    features = build(data).features("node")
    ids = np.array([59, 0, 12, 25, 59, 33])
    rows = features.gather(ids)
    assert rows.dtype == getattr(torch, dtype)
    assert rows.shape == (6, 3)
    expected = table[data.order("node")][ids]
    np.testing.assert_array_equal(rows.view(torch.uint8).numpy(), expected.view(np.uint8))
    np.testing.assert_array_equal(features.gather_numpy(ids), expected)


@pytest.mark.parametrize("make", [np.int32, np.int64, torch.int32, torch.int64])
def test_id_dtypes(kit, build, make):
    layout, rows = bytes_layout(kit, build, 512)
    ids = torch.tensor([5, 200, 7], dtype=make) if isinstance(make, torch.dtype) else np.array([5, 200, 7], make)
    np.testing.assert_array_equal(layout.features().gather(ids).numpy(), rows[[5, 200, 7]])
    np.testing.assert_array_equal(layout.features().gather_numpy(np.arange(200)[::3]), rows[:200:3])


def test_out_is_filled_and_returned(kit, build):
    layout, rows = bytes_layout(kit, build, 4096)
    features, ids = layout.features(), np.array([200, 3, 100])
    out = torch.zeros((3, 4096), dtype=torch.uint8)
    assert features.gather(ids, out=out) is out
    np.testing.assert_array_equal(out.numpy(), rows[ids])
    unaligned = np.zeros(3 * 4096 + 1, np.uint8)[1:].reshape(3, 4096)
    np.testing.assert_array_equal(features.gather_numpy(ids, out=unaligned), rows[ids])


@pytest.mark.parametrize("bad", [-1, ROWS, 2**40])
def test_id_out_of_range(kit, build, engine, bad):
    layout, _ = bytes_layout(kit, build, 512)
    with pytest.raises(InputError, match=rf"'node': ids\[2\] is {bad}, outside 0..{ROWS - 1}"):
        layout.features(engine=engine).gather(np.array([0, 1, bad]))


def test_counters(kit, build, engine):
    layout, _ = bytes_layout(kit, build, 512)  # gpu 10, peer 41, cpu 30, ssd 149 rows, 8 per page
    features = layout.features(engine=engine, direct="off")
    features.gather(np.concatenate([np.arange(ROWS), np.arange(ROWS)]))
    counters = features.counters
    assert {t: c.rows for t, c in counters.tiers.items()} == {"gpu": 20, "peer": 82, "cpu": 60, "ssd": 298}
    assert counters.tiers["ssd"].bytes == 298 * 512
    assert counters.read_seconds > 0
    assert counters.copy_seconds > 0
    assert 1 <= counters.ssd_reads <= -(-149 // 8)  # pages are read once, neighbors together
    assert 149 * 512 <= counters.ssd_read_bytes <= -(-149 // 8) * 4096
    assert counters.hit_rates()["ssd"] == pytest.approx(298 / 460)
    assert "ssd reads" in counters.table()
    features.reset_counters()
    cleared = features.counters.as_dict()
    assert cleared["tiers"]["cpu"] == {"rows": 0, "bytes": 0}
    assert cleared["copy_seconds"] == cleared["read_seconds"] == 0.0


def test_duplicates_are_read_once_and_whole_sectors_land_without_a_copy(kit, build, engine):
    layout, rows = bytes_layout(kit, build, 4096, tiers=(0, 0, 0))
    features = layout.features(engine=engine, direct="off")
    ids = np.array([7, 100, 7, 7, 100])
    np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])
    assert features.counters.ssd_reads == 2 and features.counters.ssd_read_bytes == 2 * 4096
    features.reset_counters()
    features.gather(np.arange(0, ROWS, 3))
    assert features.counters.ssd_reads_in_place == features.counters.ssd_reads == len(range(0, ROWS, 3))


def test_host_tiers_are_announced_once(kit, build, caplog):
    layout, _ = bytes_layout(kit, build, 512)
    with caplog.at_level(logging.WARNING, "tiering.loader"):
        features = layout.features()
        layout.features(threads=1)
    assert sum("are in host memory" in r.message for r in caplog.records) == 1
    assert "device='cpu'" in features.placement()["gpu"]["where"]
    assert "gpu 10 rows in host memory (opened with device='cpu')" in repr(features)


@pytest.mark.parametrize("call", ["features", "loader"])
def test_a_gpu_is_refused_where_there_is_none(kit, build, call, monkeypatch):
    monkeypatch.setattr(cuda, "_found", None)
    monkeypatch.setattr(cuda, "_missing", "No module named 'tiering._cuda'")
    layout = build(kit.small_graph())
    with pytest.raises(CapabilityError, match="this build has no CUDA part, because nvcc or a GPU was missing"):
        getattr(layout, call)(device="cuda")


def test_bad_options(kit, build):
    layout, _ = bytes_layout(kit, build, 512)
    for option, value, words in (("engine", "spdk", "one of"), ("depth", 0, "a whole"), ("direct", "no", "auto, on")):
        with pytest.raises(InputError, match=f"{option}: expected {words}"):
            layout.features(**{option: value})


def test_unknown_type(kit, build):
    layout = build(kit.hetero_graph())
    with pytest.raises(MissingError, match="'venue' has no tiered features; types with them: author, paper"):
        layout.features("venue")
    with pytest.raises(MissingError, match="author, paper"):
        layout.features()


def test_image_truncated_before_open(kit, build):
    layout, _ = bytes_layout(kit, build, 4096, images=2)
    path = layout.artifact.images[1]
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(FormatError, match=r"ssd image 1 .* needs at least \d+ bytes"):
        layout.features()
    with pytest.raises(FormatError, match=r"expected .* bytes, found"):
        tiering.open(layout.path)


def test_image_missing(kit, build):
    """Whoever has the layout open keeps the image; nobody else can read it."""
    layout, rows = bytes_layout(kit, build, 4096)
    layout.artifact.manifest.external["ssd-0"].path.unlink()
    np.testing.assert_array_equal(layout.features().gather_numpy(np.arange(ROWS)), rows)
    with pytest.raises(MissingError, match=r"ssd-0-of-1: the file does not exist; make the artifact again"):
        tiering.open(layout.path).features()
    assert [problem.kind for problem in tiering.check(layout.path)] == ["external"]


def test_tier_file_changed_after_open(kit, build):
    layout, _ = bytes_layout(kit, build, 512)
    path = layout.artifact.tier_path("node", "cpu")
    path.write_bytes(b"short")
    with pytest.raises(FormatError, match="expected 15360 bytes, found 5"):
        layout.features()


def test_closed_features(kit, build):
    layout, rows = bytes_layout(kit, build, 512)
    with layout.features() as features:
        features.gather(np.array([1]))
    assert features.closed
    with pytest.raises(InputError, match="closed"):
        features.gather(np.array([1]))
    np.testing.assert_array_equal(layout.features().gather(np.array([1])).numpy(), rows[[1]])  # opens anew


def test_memory_is_shared_and_freed(kit, build):
    import gc

    from tiering.loader.tables import resident

    layout, _ = bytes_layout(kit, build, 512)
    before = len(resident._resident)
    first = TieredFeatures(layout.artifact, "node", ReadOptions(engine="threads"))
    second = TieredFeatures(layout.artifact, "node", ReadOptions(engine="threads", direct="off"))
    assert [a.array is b.array for a, b in zip(first._resident, second._resident, strict=True)] == [True] * 4
    first.close()
    assert second.gather(np.array([0])).shape == (1, 512)
    second.close()
    gc.collect()
    assert len(resident._resident) == before


def test_same_arguments_same_table(kit, build):
    layout, _ = bytes_layout(kit, build, 512)
    assert layout.features() is layout.features("node", engine="auto")
    assert layout.features(engine="threads") is not layout.features(engine="auto", direct="off")
