"""Loaders that read rows of the ssd tier ahead of the batches: which batches they give, and within which memory."""

from __future__ import annotations

import gc
import logging
import math
import re
from typing import Any

import numpy as np
import pytest
from epochs import bits, small_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from tight_memory import GRAPHS, ROW_BYTES, least_memory, spare, tight_loader, wide_graph

from tiering import native
from tiering.errors import BudgetError
from tiering.loader.batches import lookahead as looking
from tiering.memory import own_memory
from tiering.readahead import disk_speed
from tiering.readahead.disk_speed import DiskSpeed
from tiering.readahead.memory import LEAST_SLOTS

SAMPLERS = {
    "uniform": {"fanouts": [3, 2]},
    "new": {"fanouts": [3, 2], "frontier": "new"},
    "replacement": {"sampler": "replacement", "fanouts": [3, 2]},
    "weighted": {"sampler": "weighted", "fanouts": [3, 2]},
    "full": {"sampler": "full", "fanouts": [-1]},
    "disjoint": {"fanouts": [3, 2], "disjoint": True},
    "induced": {"fanouts": [3, 2], "disjoint": True, "subgraph_type": "induced"},
    "pinsage": {"sampler": "pinsage", "fanouts": [4], "num_walks": 10, "walk_length": 3, "restart": 0.3},
    "ladies": {"sampler": "ladies", "fanouts": [30, 30]},
}
ENGINES = [name for name in ("io_uring", "threads") if name != "io_uring" or not native.uring_unavailable()]


@pytest.fixture
def options(options: dict[str, Any]) -> dict[str, Any]:
    """Small batches, few reads in flight, and a window that the loader chooses."""
    return {name: value for name, value in options.items() if name not in ("window", "workers", "prefetch")}


@pytest.fixture(scope="module")
def worlds(kit: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Layouts of each graph over 1, 2 and 3 images with pages of each size, and batches of memory, made when asked."""
    folder = tmp_path_factory.mktemp("worlds")
    speed, layouts, truths = small_batches(folder)["ssd_model"], {}, {}

    def world(graph: str, images: int, page_bytes: int, sampler: str) -> tuple[Any, dict[str, Any], Any]:
        key = (graph, images, page_bytes)
        if key not in layouts:
            data = GRAPHS[graph](kit, images=images, page_bytes=page_bytes)
            layouts[key] = kit.write_layout(folder / f"layout-{len(layouts)}", data)
        options = {"batch_size": 8, "seed": 7, "depth": 4, "ssd_model": speed, **SAMPLERS[sampler]}
        if (graph, sampler) not in truths:
            loader = layouts[key].loader(**options, features="memory")
            truths[graph, sampler] = [[bits(batch) for batch in loader.epoch(e)] for e in (0, 1)]
        return layouts[key], options, truths[graph, sampler]

    yield world
    for made in layouts.values():
        made.close()


@settings(max_examples=6)
@given(
    graph=st.sampled_from(sorted(GRAPHS)), images=st.sampled_from([1, 2, 3]), page_bytes=st.sampled_from([512, 4096]),
    sampler=st.sampled_from(sorted(SAMPLERS)), extra_rows=st.sampled_from([0, 10, 100, 400]),
    window=st.sampled_from([1, 2, 5, "auto"]), engine=st.sampled_from(ENGINES), workers=st.integers(1, 3),
    prefetch=st.integers(0, 3),
)  # fmt: skip
def test_batches_are_those_of_memory(
    worlds: Any, graph: str, images: int, page_bytes: int, sampler: str, extra_rows: int, **choices: Any
) -> None:
    layout, options, truth = worlds(graph, images, page_bytes, sampler)
    options = {**options, **choices}
    try:
        loader = tight_loader(layout, extra_rows, **options)
    except AssertionError:  # little more than it needs is enough for all rows
        loader = layout.loader(**options, memory=spare(1 << 30))
    for expected in truth:
        assert [bits(batch) for batch in loader] == expected


@pytest.mark.parametrize("graph", GRAPHS)
def test_batches_are_those_of_the_tiers(kit, build, options, engine, graph):
    layout = build(GRAPHS[graph](kit, images=2))
    ahead, alone = tight_loader(layout, engine=engine, **options), layout.loader(**options, memory="tiers")
    assert alone.lookahead is None
    list(ahead.epoch(9))  # opens the buffer, which an abandoned trial of `tight_loader` may have used
    ahead.reset_counters()  # loaders of a layout share their tables
    for epoch in (0, 1):
        for a, b in zip(ahead.epoch(epoch), alone.epoch(epoch), strict=True):
            assert bits(a) == bits(b)
    counted = ahead.lookahead.buffer.counters()
    cold = sum(c["tiers"]["ssd"]["rows"] for c in ahead.counters().values())
    assert counted["rows"] == cold == sum(c["tiers"]["ssd"]["rows"] for c in alone.counters().values()) > 0
    assert 0 < counted["rows_read"] <= counted["rows_needed"] <= counted["rows"]
    assert counted["batches"] == 2 * len(ahead)
    assert {t: c["tiers"] for t, c in ahead.counters().items()} == {t: c["tiers"] for t, c in alone.counters().items()}


def test_batches_without_rows_on_ssd(kit, build, options):
    """Seeds without neighbors that lie in memory, between others."""
    data = wide_graph(kit)
    relation = ("node", "to", "node")
    src, dst = data.edges[relation]
    hot = data.order("node")[:100]
    kept = ~np.isin(dst, hot)
    data.edges[relation], data.weights = (src[kept], dst[kept]), {}
    layout = build(data)
    given = {**options, "split": None, "seeds": np.r_[0:8, 500:508, 8:40, 600:612, 40:100], "shuffle": False}
    loader = tight_loader(layout, **given)
    expected = [bits(batch) for batch in layout.loader(**given, features="memory")]
    assert [bits(batch) for batch in loader] == expected


def test_a_window_fixed_by_hand_is_used(layout, options):
    loader = tight_loader(layout, extra_rows=200, window=2, **options)
    list(loader)
    choice, counted = loader.lookahead.choice, loader.lookahead.buffer.counters()
    assert choice.window == math.ceil(2 * choice.parts)
    assert -(-len(loader) // 2) <= counted["rounds"] < choice.parts * len(loader)


def test_rows_that_fit_are_read_once_and_never_again(layout, options, engine):
    loader = layout.loader(**options, engine=engine, memory=spare(1 << 30))
    assert loader.lookahead is None
    table = loader.features["node"]
    assert table.preloaded and table.placement()["ssd"]["where"] == "host memory (read from SSD)"
    batches = [bits(batch) for batch in loader]
    counted = loader.counters()["node"]
    assert counted["tiers"]["ssd"]["rows"] > 0
    assert counted["ssd_reads"] == counted["ssd_read_bytes"] == 0
    assert batches == [bits(batch) for batch in layout.loader(**options, memory="tiers").epoch(0)]


def test_loaders_of_a_layout_share_the_rows_in_memory(layout, options):
    """The second is charged nothing for them, though no other memory is left."""
    train = layout.loader("train", **options, memory=spare(1 << 30))
    rows = train.features["node"]._resident[-1].array
    assert rows.size == 1100 * ROW_BYTES
    before = own_memory()
    val = layout.loader("val", **options, engine="threads", memory=spare(3 << 20))
    assert val.lookahead is None
    assert val.features["node"]._resident[-1].array is rows
    assert own_memory() - before < rows.size // 2
    assert len(list(train)) == 15 and len(list(val)) == 8


def test_memory_for_rows_goes_with_the_layout(kit, build, options, settled_memory):
    layout = build(wide_graph(kit))
    layout.loader(**options, memory=spare(1 << 30))
    held = own_memory()
    layout.close()
    gc.collect()
    assert held - own_memory() > 1000 * ROW_BYTES


def test_batches_larger_than_all_that_were_tried_and_than_the_buffer(layout, options, monkeypatch):
    monkeypatch.setattr(looking, "TRIAL_BATCHES", 2)
    many = np.arange(400, 1200)
    seeds = {"split": None, "seeds": np.r_[np.repeat([3], 32), many[:80]], "shuffle": False, "batch_size": 16}
    options = {**options, **seeds, "fanouts": [9, 9], "prefetch": 1}
    expected = [bits(batch) for batch in layout.loader(**options, features="memory")]
    loader = tight_loader(layout, 0, **options)
    assert [bits(batch) for batch in loader] == expected
    slots = sum(number for _, number in loader.lookahead.buffer.pools)
    assert any(sum(b.nodes["node"].numpy() >= 100) > slots for b in loader.epoch(0))


def test_the_choice_is_logged(layout, options, caplog):
    caplog.set_level(logging.INFO, "tiering.loader")
    loader = tight_loader(layout, **options)
    list(loader)
    line = [record.getMessage() for record in caplog.records if "buffer of" in record.getMessage()][-1]
    assert "rows of the ssd tier" in line and str(loader.lookahead.choice) in line and "100,000 random reads/s" in line


def test_loaders_of_a_layout_share_a_buffer(layout: Any, options: Any) -> None:
    """Training and validation with the same memory: the second takes no more, and finds what the first has read."""
    train = tight_loader(layout, extra_rows=200, **options)
    val = layout.loader(**{**options, "seed": 1}, memory=train.options.memory.memory)
    list(train)
    list(val)
    assert train.lookahead.buffer is val.lookahead.buffer is not None
    alone = layout.loader(**{**options, "seed": 1}, memory="tiers")
    for one, other in zip(val.epoch(1), alone.epoch(1), strict=True):
        assert (one.x == other.x).all()


def test_a_loader_measures_the_disks_once_for_its_layout(layout, options, monkeypatch):
    """The first loader that looks ahead measures, and keeps it beside the layout; another one takes what it found."""
    made = []

    def measured(images: Any) -> DiskSpeed:
        made.append(list(images))
        return DiskSpeed(1000, 1e6)

    monkeypatch.setattr(disk_speed, "measure", measured)
    for _ in range(2):
        loader = tight_loader(layout, **{**options, "ssd_model": None})
        list(loader)
        assert loader.lookahead.speed == DiskSpeed(1000, 1e6)
    assert made == [layout.artifact.image_places]
    assert (layout.path.parent / disk_speed.CACHE).is_file()


def test_what_a_refusal_advises_suffices(kit, build, options):
    layout = build(wide_graph(kit, num_edges=30_000))
    for nbytes in (1, least_memory(layout, **options) // 8):
        with pytest.raises(BudgetError, match="or more") as refused:
            next(iter(layout.loader(**options, memory=spare(nbytes))))
        advised = re.search(r"give memory=\"(\w+)\" or more", str(refused.value))[1]
        assert len(list(layout.loader(**options, memory=advised))) == 15


def test_a_large_adjacency_takes_no_memory_that_the_loader_needs(kit, build, options):
    """The page cache has its share of what remains beside the smallest buffer."""
    layout = build(wide_graph(kit, num_edges=1_000_000))
    least = least_memory(layout, **options)
    loader = layout.loader(**options, memory=spare(int(least * 1.25)))
    assert len(list(loader)) == 15
    loader = layout.loader(**options, memory=spare(2 * least))
    list(loader)
    # 15 % of what is needed are for batches to come, and 5 to 15 % of what is given, twice as much.
    low, high = ((2 * given - 0.85) * least + LEAST_SLOTS * (ROW_BYTES + 8) for given in (0.85, 0.95))
    assert 0.6 * low < loader.lookahead.buffer.arena.size < 0.7 * high
