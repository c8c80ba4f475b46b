"""Loaders whose neighbor lists exceed memory: the batches are those of memory, each is sampled once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from child_process import in_child
from epochs import bits, rows, same, truth
from tight_memory import GRAPHS, spare, tight_loader, wide_graph

from tiering.errors import InputError, StorageError
from tiering.loader.batches import lookahead
from tiering.loader.batches import windows as windowed
from tiering.loader.batches.pipeline import StageError
from tiering.readahead import memory
from tiering.sampling.base import Sampler


@pytest.fixture
def options(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("window", "workers", "prefetch")}


@pytest.fixture
def exceed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Lists exceed memory from here on; returns the numbers of the batches of each window."""
    made, plain = [], Sampler.sample_window

    def sample_window(self: Sampler, *args: Any, **key: Any) -> Any:
        found = plain(self, *args, **key)
        made.append([batch.batch for batch in found[0]])
        return found

    monkeypatch.setattr(memory, "LEAST_LISTS", 0)
    monkeypatch.setattr(lookahead, "KNOWN_SHARE", 0.0)  # what batches would be kept in without windows
    monkeypatch.setattr(windowed, "bytes_around", lambda sampler: 1 << 62)
    monkeypatch.setattr(Sampler, "sample_window", sample_window)
    return made


EPOCHS = (0, 1)


def truth_of(make: Any) -> list[Any]:
    return [[bits(batch) for batch in make().epoch(e)] for e in EPOCHS]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(
    "more",
    [
        {}, {"frontier": "new"}, {"sampler": "replacement"}, {"sampler": "full", "fanouts": [-1]},
        {"disjoint": True}, {"sampler": "weighted"}, {"edge_positions": True, "workers": 3},
        {"rank": 1, "world_size": 3}, {"in_order": False, "workers": 2}, {"subgraph_type": "induced"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("memory", ["memory", "tiers", "tight"])
def test_batches_are_those_of_memory(kit, build, options, request, graph, more, memory):
    """Rows in memory, read by each batch, and read ahead."""
    layout, options = build(GRAPHS[graph](kit, images=2)), {**options, **more}
    expected = truth_of(lambda: layout.loader(**options, features="memory"))
    windows = request.getfixturevalue("exceed")
    loader = {
        "memory": lambda: layout.loader(**options, features="memory"),
        "tiers": lambda: layout.loader(**options, memory="tiers"),
        "tight": lambda: tight_loader(layout, 30, **options),
    }[memory]()
    windows.clear()
    loader.reset_counters()
    for epoch in EPOCHS:
        found = [bits(batch) for batch in loader.epoch(epoch)]
        assert found == expected[epoch] if more.get("in_order", True) else sorted(found) == sorted(expected[epoch])
    mine = list(loader.rank.batches(len(loader) * loader.rank.world_size))
    assert sorted(batch for window in windows for batch in window) == sorted(2 * mine)  # each once an epoch
    assert len(windows[0]) == 1
    lists = loader.stats().lists
    assert lists["batches"] == 2 * len(loader)
    assert lists["largest_window"] == max(map(len, windows))
    assert memory == "tight" or "subgraph_type" in more or lists["largest_window"] > 1
    assert 0 < lists["reads"] <= lists["read_bytes"] // 4096
    assert f"{2 * len(loader)} batches, sampled in windows of up to {lists['largest_window']}" in loader.stats().table()


def test_windows_keep_to_their_memory(layout, options, exceed):
    """Little memory: windows of few batches, the same batches."""
    loader = layout.loader(**options, features="memory")
    loader.windows.memory.room = 1
    assert [batch.index for batch in loader.epoch(0)] == list(range(len(loader)))
    assert set(map(len, exceed)) == {1}
    loader.windows.memory.room, loader.windows.memory.most = 1 << 30, 5
    exceed.clear()
    assert [batch.index for batch in loader.epoch(0)] == list(range(len(loader)))
    assert [len(window) for window in exceed[:4]] == [1, 2, 4, 5]


def test_windows_that_end_early_lose_no_batch(layout, options, exceed, monkeypatch):
    """Where batches take more memory than those before them."""
    plain = Sampler.sample_window

    def sample_less(self: Sampler, seeds: Any, batches: Any, lists: Any, size: int, **key: Any) -> Any:
        made, following, cost = plain(self, seeds, batches, lists, min(size, 1 + batches[0] % 3), **key)
        return made, max(4, following), cost

    monkeypatch.setattr(Sampler, "sample_window", sample_less)
    loader = layout.loader(**options, features="memory")
    assert [batch.index for batch in loader.epoch(0)] == list(range(len(loader)))
    assert sorted(batch for window in exceed for batch in window) == list(range(len(loader)))


def test_memory_that_holds_the_lists_is_used(layout, options):
    assert layout.loader(**options, features="memory").windows is None
    assert layout.loader(**options, memory=spare(1 << 30)).windows is None


def test_windows_stay_where_memory_holds_the_rows_and_not_the_lists(layout, options, exceed, monkeypatch):
    assert layout.loader(**options, memory=spare(1 << 30)).windows is None
    monkeypatch.setattr("tiering.loader.memory.mapped_files", lambda graph: [("lists", range(1 << 40))])
    assert layout.loader(**options, memory=spare(1 << 30)).windows is not None


def test_links_and_single_batches(layout, options, request):
    given = {name: value for name, value in options.items() if name != "split"}

    def make() -> Any:
        return layout.link_loader(**given, features="memory", negatives=1)

    expected, single = truth_of(make), bits(layout.loader(**options, features="memory")(np.arange(9)))
    windows = request.getfixturevalue("exceed")
    assert truth_of(make) == expected
    assert len({tuple(window) for window in windows}) > 3
    assert bits(layout.loader(**options, features="memory")(np.arange(9))) == single


def test_a_fork_samples_by_windows_too(layout, options, request):
    expected = [truth(layout, options, epoch) for epoch in EPOCHS]
    request.getfixturevalue("exceed")
    loader = layout.loader(**options, features="memory")
    next(epoch := loader.epoch(0))  # a window is being sampled
    child = in_child(lambda: [rows(loader.epoch(e)) for e in EPOCHS])
    assert all(map(same, child, expected))
    epoch.close()
    assert same(rows(loader.epoch(0)), expected[0])


@pytest.mark.parametrize("epochs", ["left", "whole"])
def test_an_epoch_that_is_left_ends_its_window(layout, options, exceed, epochs):
    import threading

    loader = tight_loader(layout, **options)
    for taken, _ in enumerate(loader.epoch(0)):
        if epochs == "left" and taken == 3:
            break
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("tiering-windows")]


def test_a_bad_id_comes_with_its_batch(kit, tmp_path, options, exceed):
    """Batches before it arrive; the error names the list; the next epoch works where the file is sound again."""
    made = kit.write_layout(tmp_path / "layout", wide_graph(kit))
    file = next((tmp_path / "layout").rglob("*indices*"))
    sound = file.read_bytes()
    loader = made.loader(**options, features="memory", verify=False)
    healthy = [bits(batch) for batch in loader.epoch(0)]
    indptr, indices = made.artifact.graph.csc(("node", "to", "node"))
    seed = int(list(loader.epoch(0))[len(healthy) // 2 + 3].seeds[0])
    bad = np.frombuffer(sound, indices.dtype).copy()
    bad[indptr[seed] : indptr[seed + 1]] = 1200
    file.write_bytes(bad.tobytes())
    arrived, message = ([], r"batch (\d+): sampling failed.*indices\[(\d+)\]: source id 1200 is outside 0..1199")
    with pytest.raises(StageError, match=message) as met:
        arrived.extend(map(bits, loader.epoch(0)))
    assert isinstance(met.value.__cause__, InputError)
    number, place = map(int, re.search(message, str(met.value)).groups())
    assert indptr[seed] <= place < indptr[seed + 1]
    with pytest.raises(InputError, match="1200"):
        loader.node_sampler.sample(loader.targets.plan(0)[number], epoch=0, batch=number)
    assert arrived == healthy[:number]
    file.write_bytes(sound)
    assert [bits(batch) for batch in loader.epoch(0)] == healthy


def test_a_file_that_is_gone_is_named(kit, tmp_path, options, exceed):
    made = kit.write_layout(tmp_path / "layout", wide_graph(kit))
    loader = made.loader(**options, features="memory")
    file = next((tmp_path / "layout").rglob("*indices*"))
    file.rename(tmp_path / "elsewhere")
    with pytest.raises(StageError, match="indices") as met:
        next(loader.epoch(0))
    assert isinstance(met.value.__cause__, StorageError)
    (tmp_path / "elsewhere").rename(file)
    assert len(list(loader.epoch(0))) == len(loader)


def test_rules_that_need_lists_say_so_once(layout, options, exceed, capsys):
    given = {**options, "sampler": "ladies", "fanouts": [30, 30]}
    loader = layout.loader(**given, features="memory")
    assert loader.windows is None
    assert capsys.readouterr().err.count("read at random from disk") == 1
    assert len(list(loader)) == len(loader)


def test_loaders_of_libraries(layout, options, request):
    pytest.importorskip("torch_geometric")
    given = {name: value for name, value in options.items() if name not in ("split", "node_type", "fanouts")}

    def batches() -> list[Any]:
        loader = layout.pyg_loader("train", num_neighbors=options["fanouts"], features="memory", **given)
        return [[tensor.tolist() for tensor in (batch.n_id, batch.edge_index)] for batch in loader]

    expected = batches()
    windows = request.getfixturevalue("exceed")
    assert batches() == expected
    assert max(map(len, windows)) > 1


def test_pyg_asks_for_one_batch_at_a_time(kit, build, request):
    pytest.importorskip("torch_geometric")
    from torch_geometric.loader import NodeLoader

    layout = build(kit.hetero_graph(images=2))

    def batches() -> list[Any]:
        sampler = layout.pyg_sampler([4, 3], seed=5)
        loader = NodeLoader(layout.pyg_stores(), sampler, input_nodes=("paper", np.arange(100)), batch_size=32)
        return [(batch.n_id_dict, batch.edge_index_dict) for batch in loader]

    expected = batches()
    windows = request.getfixturevalue("exceed")
    for found, wanted in zip(batches(), expected, strict=True):
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.keys() == theirs.keys()
            assert all(mine[name].equal(theirs[name]) for name in mine)
    assert set(map(len, windows)) == {1}
