"""Bytes that SSDs deliver, counted by evaluations: against a walk over blocks, and the loader."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_graphs import import_graph

import tiering
from tiering import generate_dataset, pipeline
from tiering.errors import InputError
from tiering.evaluation import evaluate
from tiering.evaluation.cache_order import read_spans
from tiering.evaluation.options import EvaluationOptions
from tiering.formats.ssd_rows import SsdRows
from tiering.layout.tiers import parse_capacities


def walk(begins, ends, page, block):
    """Page by page: all blocks from the first needed byte of the page to the last."""
    needed = {}
    for begin, end in zip(begins, ends, strict=True):
        for byte in range(begin, end):
            needed.setdefault(byte // page, []).append(byte // block)
    blocks = sum(max(each) - min(each) + 1 for each in needed.values())
    return blocks * block, len(needed)


@settings(max_examples=150)
@given(data=st.data())
def test_equals_a_walk_over_the_blocks(data):
    page = data.draw(st.sampled_from([512, 1024, 4096]))
    block = data.draw(st.sampled_from([1, 64, 512, page]))
    row_bytes = data.draw(st.sampled_from([1, 7, 32, 100, 400, 512, 600, 1536, 2408, 5000]))
    rows = np.unique(data.draw(st.lists(st.integers(0, 40), max_size=12))).astype(np.int64)
    unit, (place,) = SsdRows.plan_all([(41, row_bytes)], page, 1)
    begins = place.begins(rows, unit)
    found = read_spans(begins, begins + row_bytes, page, block)[:2]
    assert found == walk(begins.tolist(), (begins + row_bytes).tolist(), page, block)


@pytest.mark.parametrize(("page", "block"), [("4KiB", 8192), ("512", 0), ("4KiB", 500), ("1000", 512)])
def test_sizes_that_do_not_fit(page, block):
    with pytest.raises(InputError, match="power of two"):
        EvaluationOptions(page=page, block=block)


@pytest.mark.parametrize(("dim", "page"), [(8, 4096), (100, 4096), (100, 512), (200, 4096), (602, 4096), (300, 512)])
@pytest.mark.parametrize("hetero", [False, True])
def test_the_loader_reads_the_same(dim, page, hetero, tmp_path):
    """Rows packed, padded, and larger than a page; direct reads, and those through the page cache, byte by byte."""
    pytest.importorskip("torch")
    generate_dataset(tmp_path / "data", nodes=1500, edges=9000, dim=dim, classes=3, seed=dim, hetero=hetero)
    graph = import_graph(tmp_path / "data", tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", "wrpr")
    reordered = pipeline.reorder_graph(graph, scores, tmp_path / "reordered")
    images = [tmp_path / "one", tmp_path / "two"][: 1 if dim == 8 else 2]  # units of small tables follow the images
    pipeline.layout(reordered, tmp_path / "layout", gpu="10%", cpu="10%", ssd=images, page=page)
    run = {"fanouts": [3, 3], "batch_size": 16, "seed": 4}
    for direct in ("on", "off"):
        with tiering.open(tmp_path / "layout") as layout:
            block = min(layout.features(t, direct=direct).reader.offset_alignment for t in layout.feature_types)
            if block > page:
                pytest.skip("direct reads are aligned to more than a page here")
            loader = layout.loader("train", direct=direct, memory="tiers", **run)
            for _ in loader.epoch(0):
                pass
            served = loader.counters()
        asked = {"tiers": parse_capacities("10%", cpu="10%", ssd=True), "page": page, "block": block, "epochs": 1}
        found = evaluate(graph, {"s": scores}, run["fanouts"], batch_size=16, seed=4, **asked)
        for node_type, entry in found.to_json()["tiers"]["scores"]["s"]["types"].items():
            ssd = entry["links"]["ssd"]
            assert served[node_type]["ssd_read_bytes"] == ssd["bytes_read_per_epoch"], (node_type, block)
            assert served[node_type]["ssd_reads"] <= ssd["pages_read_per_epoch"]
        assert sum(each["ssd_read_bytes"] for each in served.values()) > 0
