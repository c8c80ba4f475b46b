"""Rows of the ssd tier that the page cache has: they are taken from there, and read from disk where it has not.

Pages that a process has mapped and touched stay: what is to be forgotten is asked for by a table that was opened anew.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from epochs import bits
from tight_memory import ROW_BYTES, spare, tight_loader, wide_graph

import tiering
from tiering import native
from tiering.errors import StorageError
from tiering.loader.tables import ssd


def forget(image: Path) -> None:
    """Let the page cache forget a file; pages that were just written may take several calls."""
    with image.open("rb") as file:
        os.fsync(file.fileno())
        for _ in range(20):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(0.01)


def keeps_pages(image: Path) -> bool:
    """Whether a file's pages stay in memory whatever one asks: that of a file system in memory."""
    return image.stat().st_dev == Path("/dev/shm").stat().st_dev


@pytest.mark.parametrize(("images", "row_bytes"), [(1, 512), (2, 600), (3, 5000)])
def test_rows_in_the_page_cache_are_taken_from_there(kit, build, images, row_bytes):
    """``auto`` reads again once they have left it, as ``on`` and checks do at once; rows are the same."""
    rng = np.random.default_rng(row_bytes)
    table = rng.integers(0, 256, (700, row_bytes), dtype=np.uint8)
    nodes = kit.Nodes(700, table, "uint8", None, {"train": np.arange(700)}, (0, 50, 60))
    edges = {("node", "to", "node"): (np.arange(699), np.arange(1, 700))}
    data = kit.Dataset({"node": nodes}, edges, images=images)
    layout = build(data)
    rows, ids = table[data.order("node")], rng.integers(0, 700, 3000)
    assert keeps_pages(layout.artifact.image_places[0]) or reads(layout, rows, ids, direct="on") > 0
    for image in layout.artifact.image_places:
        image.read_bytes()
    assert reads(layout, rows, ids) == 0 < reads(layout, rows, ids, verify=True)
    forget(layout.artifact.image_places[-1])
    assert keeps_pages(layout.artifact.image_places[-1]) or reads(layout, rows, ids) > 0


def reads(layout, rows, ids, **options):
    """Reads of stripe files by two gathers, whose rows are compared with `rows`."""
    with layout.features(**options) as features:
        features.reset_counters()
        for wanted in (ids, ids[:1]):
            np.testing.assert_array_equal(features.gather_numpy(wanted), rows[wanted])
        return features.counters.ssd_reads


def test_rows_are_preloaded_in_pieces(kit, build, monkeypatch):
    """Four pieces, the last one smaller, give what one gives: every row of the ssd tier."""
    data = wide_graph(kit)
    layout = build(data)
    expected = layout.features(direct="on").gather_numpy(np.arange(1200))
    monkeypatch.setattr(ssd, "_PRELOAD_ROWS", 300)
    for options in ({}, {"direct": "on"}, {"direct": "on", "verify": True}):
        with tiering.open(layout.path) as again:
            (table,) = again.loader(memory=spare(1 << 30), batch_size=8, fanouts=[3], **options).features.values()
            assert table.preloaded
            np.testing.assert_array_equal(table.gather_numpy(np.arange(1200)), expected)


def test_a_file_that_was_cut_is_not_taken_from_the_page_cache(kit, build):
    """Touching its mapping would end the process."""
    layout = build(kit.small_graph())
    with layout.features() as features:
        image = layout.artifact.image_places[0]
        image.read_bytes()
        features.gather(np.arange(300))
        os.truncate(image, image.stat().st_size // 2)
        with pytest.raises(StorageError, match="ends at byte"):
            features.gather(np.arange(300))


def test_epochs_take_rows_from_the_page_cache_while_it_has_them(layout, options):
    """Nothing is read and no buffer is filled; without them rows are read ahead, and batches are the same."""
    images = layout.artifact.image_places
    if keeps_pages(images[0]):
        pytest.skip("this file system keeps files in memory")
    expected = [[bits(batch) for batch in layout.loader(**options, memory="tiers").epoch(e)] for e in range(4)]
    options = {**options, "direct": "auto"}
    for image in images:
        forget(image)
    with tiering.open(layout.path) as again:
        loader, read = tight_loader(again, **options), [0]
        for epoch, batches in enumerate(expected):
            if epoch == 2:
                for image in images:
                    image.read_bytes()
            assert [bits(batch) for batch in loader] == batches
            read.append(loader.lookahead.buffer.counters()["rows_read"])
        assert 0 == read[0] < read[1] < read[2] == read[3] == read[4]
        assert loader.counters()["node"]["ssd_reads"] == 0
    with tiering.open(layout.path) as again:
        loader = again.loader(**options, memory=loader.options.memory.memory)
        assert [bits(batch) for batch in loader] == expected[0]
        assert loader.lookahead.buffer is None


@pytest.mark.parametrize("in_order", [True, False])
def test_an_epoch_whose_rows_leave_the_page_cache_is_read_ahead(kit, build, options, in_order):
    """From the batch on that had to read; each batch comes once. A few pages are missing, which batches need alone."""
    data = wide_graph(kit)
    order, relation = data.order("node"), ("node", "to", "node")
    hot, cold = order[:100], order[600:612]
    rng = np.random.default_rng(0)
    data.edges[relation], data.weights = (rng.choice(cold, 800), rng.choice(hot, 800)), {}
    layout = build(data)
    (image,), rows = layout.artifact.image_places, layout.artifact.type_layout("node").ssd_rows
    if keeps_pages(image):
        pytest.skip("this file system keeps files in memory")
    given = {**options, "split": None, "seeds": np.arange(100), "in_order": in_order}
    expected = sorted(bits(batch) for batch in layout.loader(**given, memory="tiers"))
    forget(image)
    with tiering.open(layout.path) as again:
        loader = tight_loader(again, **{**given, "direct": "auto"})
    with tiering.open(layout.path) as again:
        loader = again.loader(**{**given, "direct": "auto"}, memory=loader.options.memory.memory)
        image.read_bytes()
        first = rows.first_unit + 500
        with image.open("rb") as file:
            os.posix_fadvise(file.fileno(), first * ROW_BYTES, 12 * ROW_BYTES, os.POSIX_FADV_DONTNEED)
        assert native.in_page_cache([str(image)])
        found, cached = [], []
        for batch in loader:
            found.append(bits(batch))
            cached.append(loader.lookahead.cached)
        assert sorted(found) == expected and len(found) == 13
        assert cached[0] and not cached[-1]
        assert loader.lookahead.buffer.counters()["batches"] == cached.count(False)
        assert loader(np.arange(8)).num_nodes


@pytest.mark.parametrize(
    ("row_bytes", "first_unit", "stride", "rows_per_unit", "unit_bytes", "images"),
    [(100, 0, 100, 0, 4096, 1), (100, 3, 112, 0, 4096, 1), (100, 2, 128, 4, 512, 3), (5000, 1, 5632, 1, 8192, 2)],
)
def test_mapped_images_of_each_geometry(tmp_path, row_bytes, first_unit, stride, rows_per_unit, unit_bytes, images):
    """Rows over units and images, the first rows in memory: with a mapping as without."""
    rng, rows = np.random.default_rng(row_bytes), 90
    units = first_unit + (-(-rows // rows_per_unit) if rows_per_unit else -(-rows * stride // unit_bytes))
    paths = [tmp_path / f"image{k}" for k in range(images)]
    for path in paths:
        path.write_bytes(rng.bytes(-(-units // images) * unit_bytes))
    memory, ids = rng.integers(0, 256, 10 * row_bytes, dtype=np.uint8), rng.integers(0, 10 + rows, 1000)
    found = []
    for mapped in (False, True):
        reader = native.SsdReader([str(path) for path in paths], 512, "threads", 4, "off", row_bytes, map=mapped)
        table = native.TieredTable(
            row_bytes, [0, 0, 10, 10 + rows], None, [], memory, reader, first_unit, stride, rows_per_unit, unit_bytes,
            512,
        )  # fmt: skip
        out = np.zeros((ids.size, row_bytes), np.uint8)
        stats = table.gather(ids, out, 2)
        assert (stats.reads == 0) == mapped
        assert list(stats.rows) == [0, 0, int((ids < 10).sum()), int((ids >= 10).sum())]
        found.append(out)
    np.testing.assert_array_equal(*found)


def test_files_of_others_count_as_not_there():
    """Of a file that one may not write, the kernel calls every page resident."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        image = Path(folder) / "image"
        image.write_bytes(bytes(1 << 16))
        image.chmod(0o644)
        Path(folder).chmod(0o755)
        assert native.in_page_cache([str(image)])
        os.seteuid(65534)
        try:
            assert not native.in_page_cache([str(image)])
        finally:
            os.seteuid(0)
