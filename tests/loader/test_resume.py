"""Loaders that continue in the middle of an epoch: the batches of the unbroken one, and nothing read for the others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import warm_processes
from epochs import bits, in_pieces, seen
from tight_memory import GRAPHS, tight_loader

from tiering.errors import InputError
from tiering.loader.batches import windows as windowed
from tiering.loader.batches.tensors import tensors_in
from tiering.loader.loader import Loader
from tiering.readahead import memory
from tiering.sampling.base import Sampler

SMALL = {"batch_size": 16, "seed": 7}


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the batches that samplers were asked for, alone or in windows."""
    numbers, alone, together = [], Sampler.sample, Sampler.sample_window

    def sample(self: Sampler, *args: Any, batch: int = 0, **key: Any) -> Any:
        numbers.append(batch)
        return alone(self, *args, batch=batch, **key)

    def sample_window(self: Sampler, seeds: Any, batches: Any, *args: Any, **key: Any) -> Any:
        found = together(self, seeds, batches, *args, **key)
        numbers.extend(batch.batch for batch in found[0])
        return found

    monkeypatch.setattr(Sampler, "sample", sample)
    monkeypatch.setattr(Sampler, "sample_window", sample_window)
    return numbers


def exceed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on neighbor lists are read by windows of batches."""
    monkeypatch.setattr(memory, "LEAST_LISTS", 0)
    monkeypatch.setattr(windowed, "bytes_around", lambda sampler: 1 << 62)


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("source", ["memory", "tiers", "tight"])
def test_epochs_in_pieces_are_whole_epochs(kit, build, options, monkeypatch, source, graph, windows):
    """Three pieces at random batches, of every rank of 1 to 3 processes, in order and not."""
    layout, rng = build(GRAPHS[graph](kit, images=2)), np.random.default_rng([len(graph), len(source), windows])
    options = {name: value for name, value in options.items() if name not in ("window", "workers", "prefetch")}
    make: dict[str, Callable[..., Loader]] = {
        "memory": lambda **more: layout.loader(**options, **more, features="memory"),
        "tiers": lambda **more: layout.loader(**options, **more, memory="tiers"),
        "tight": lambda **more: tight_loader(layout, 30, **options, **more),
    }
    trials = [
        {"world_size": size, "rank": int(rng.integers(size)), "workers": int(rng.integers(1, 4)), "prefetch": prefetch}
        for size, prefetch in ((1, 0), (2, 2), (3, 5))
    ]
    epochs = [int(epoch) for epoch in rng.integers(0, 5, 3)]
    whole = [[bits(b) for e in (epoch, epoch + 1) for b in make["memory"](**trial).epoch(e)] for epoch, trial in
             zip(epochs, trials, strict=True)]  # fmt: skip
    if windows:
        exceed_memory(monkeypatch)
    for trial, epoch, expected in zip(trials, epochs, whole, strict=True):
        count = len(expected) // 2
        cuts = np.diff([0, *sorted(rng.integers(0, count, 2))]).tolist()
        for in_order in (True, False):
            found = in_pieces(lambda in_order=in_order: make[source](**trial, in_order=in_order), epoch, cuts)  # noqa: B023
            assert found == expected if in_order else sorted(found) == sorted(expected), (trial, epoch, cuts)


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("source", ["tiers", "tight"])
def test_rows_of_skipped_batches_are_not_read(layout, options, monkeypatch, sampled, source, windows):
    """Nor are these sampled, but that the first epoch of a loader that reads ahead tries them to choose its window."""
    if windows:
        exceed_memory(monkeypatch)
    loader = layout.loader(**options, memory="tiers") if source == "tiers" else tight_loader(layout, 30, **options)
    assert (loader.windows is not None) == windows and (loader.lookahead is not None) == (source == "tight")
    first, ssd_rows = layout.artifact.type_layout("node").ranges["ssd"][0], 0
    for epoch, start in ((2, 9), (3, 14), (4, 11)):
        sampled.clear()
        batches = list(loader.epoch(epoch, start=start))
        assert [batch.index for batch in batches] == [*range(start, len(loader))]
        assert set(sampled) == {*range(start, 15)} or (
            source == "tight" and epoch == 2 and {*range(9, 15)} < {*sampled}
        )
        ssd_rows += sum(int((batch.nodes["node"] >= first).sum()) for batch in batches)
        tables = loader.counters()["node"]["tiers"]["ssd"], loader.lookahead and loader.lookahead.buffer.counters()
        assert tables[source == "tight"]["rows"] == ssd_rows


def test_a_window_is_chosen_by_whole_epochs(layout, options):
    """A loader that begins at the last batch has the buffer and the window of one that begins at the first."""
    memory = tight_loader(layout, 200, **{**options, "window": "auto"}).options.memory.memory
    choices = []
    for start in (0, 14):
        loader = layout.loader(**{**options, "window": "auto"}, memory=memory)
        list(loader.epoch(0, start=start))
        choices.append((loader.lookahead.choice.window, loader.lookahead.buffer.pools))
        del loader
    assert choices[0] == choices[1]


def test_the_state_counts_batches_that_the_consumer_has(layout):
    loader = layout.loader(**SMALL, fanouts=[2], workers=3, prefetch=4)
    where = lambda: (loader.state_dict()["epoch"], loader.state_dict()["batches"])  # noqa: E731
    assert where() == (0, 0)
    iter(loader)
    for epoch in (0, 1):
        for count, batch in enumerate(loader, 1):
            assert batch.epoch == epoch  # an iterator from which nothing was taken begins no epoch
            assert where() == ((epoch, count) if count < len(loader) else (epoch + 1, 0))
    next(iter(loader))
    assert where() == (2, 1)
    assert next(iter(loader)).epoch == 3 and where() == (3, 1)
    next(loader.epoch(np.int64(7), start=np.int64(3)))
    assert where() == (7, 4) and "int64(" not in str((where(), loader.state_dict()["epoch"]))
    with pytest.raises(InputError, match="epoch: expected a whole number"):
        loader.epoch(-1)
    loader([1, 2])  # a batch of its own
    assert where() == (7, 4)
    assert list(loader.epoch(7, start=len(loader))) == []


def test_an_epoch_by_its_number_continues_where_the_state_says(layout):
    loader = layout.loader(**SMALL, fanouts=[2])
    list(islice(loader.epoch(4), 3))
    state = loader.state_dict()
    for start, indices, then in ((None, [3, 4, 5, 6, 7], 0), (6, [6, 7], 3), (0, [*range(8)], 3)):
        again = layout.loader(**SMALL, fanouts=[2])
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert [batch.index for batch in again.epoch(5)] == [*range(8)]
        assert [batch.index for batch in again.epoch(4, start)] == indices
        assert [batch.index for batch in again.epoch(4)] == [*range(then, 8)]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 3)])
def test_another_world_size_continues_at_the_next_round(layout, before, after):
    options = {**SMALL, "batch_size": 4, "fanouts": [2]}
    whole = {batch.index: bits(batch) for batch in layout.loader(**options, rank=0, world_size=1).epoch(0)}
    for done in (1, 3, 5):
        loader = layout.loader(**options, rank=0, world_size=before)
        list(islice(loader, done))
        state = loader.state_dict()
        found = {}
        for rank in range(after):
            again = layout.loader(**options, rank=rank, world_size=after)
            again.load_state_dict(state)
            found |= {batch.index: bits(batch) for batch in again}
        first = -(-done * before // after) * after
        assert 0 <= first - done * before < after and sorted(found) == [*range(first, len(again) * after)]
        full = 120 // 4 // after * after  # batches of whole rounds
        assert all(found[index] == whole[index] for index in range(first, full))
    list(loader)
    last = loader.state_dict() | {"batches": len(loader) - 1}
    again = layout.loader(**options, rank=0, world_size=after)
    again.load_state_dict(last)
    assert (batch := next(iter(again))).epoch == (last["epoch"] if batch.index else last["epoch"] + 1)


def test_batches_out_of_order_are_in_the_state(layout):
    """The rank that saved them skips them; others cannot know theirs."""
    options = {**SMALL, "fanouts": [2], "memory": "tiers", "in_order": False}
    loader = layout.loader(**options, rank=0, world_size=2)
    state = {**loader.state_dict(), "batches": 1, "later": [2]}
    loader.load_state_dict(state)
    assert sorted(batch.index // 2 for batch in loader) == [1, 3]
    for rank, size in ((1, 2), (0, 3)):
        with pytest.raises(InputError, match=f"rank 0 of 2 processes delivered .* rank {rank} of {size} cannot skip"):
            layout.loader(**options, rank=rank, world_size=size).load_state_dict(state)
    layout.loader(**options, rank=1, world_size=2).load_state_dict({**state, "later": []})


@pytest.mark.parametrize("kind", ["pyg_loader", "pyg_link_loader", "dgl_loader", "dgl_link_loader", "link_loader"])
@pytest.mark.parametrize("graph", ["small_graph", "hetero_graph"])
def test_loaders_of_other_libraries_and_links(kit, build, kind, graph):
    pytest.importorskip({"p": "torch_geometric", "d": "dgl", "l": "torch"}[kind[0]])
    layout = build(getattr(kit, graph)(edge_ids=True, images=2))
    relation = layout.relations[0]
    links = {"pyg_link_loader": "edge_label_index", "dgl_link_loader": "indices", "link_loader": "relation"}.get(kind)
    chosen = {} if links is None else {links: {relation: np.arange(199)} if kind[0] == "d" else relation}
    options = {**SMALL, "batch_size": 24 if kind[-11:-7] != "link" else 90, **chosen}

    def make(**more: Any) -> Loader:
        return getattr(layout, kind)(**{**options, **more})

    contents = None if kind == "link_loader" else make()._batches.adapter.contents

    def look(batch: Any) -> Any:
        if kind == "link_loader":
            return bits(batch)
        return [seen(tensor) for tensor in tensors_in(batch, contents)]

    whole = [look(batch) for epoch in (3, 4) for batch in make().epoch(epoch)]
    assert len(whole) >= 6
    assert in_pieces(make, 3, (1, 1), look) == whole
    state = make().state_dict()
    with pytest.raises(InputError, match="load_state_dict: seed: the state has 7, this loader has 8"):
        make(seed=8).load_state_dict(state)


WRONG = [
    ("batch_size", {"batch_size": 8}), ("seed", {"seed": 1}), ("fanouts", {"fanouts": [2, 2]}),
    ("seeds", {"split": "val"}), ("seeds", {"seeds": np.arange(120)}), ("shuffle", {"shuffle": False}),
    ("drop_last", {"drop_last": True}), ("frontier", {"frontier": "new"}), ("sampler", {"sampler": "replacement"}),
    ("disjoint", {"disjoint": True}), ("subgraph_type", {"subgraph_type": "induced"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more"), WRONG, ids=str)
def test_states_of_loaders_of_other_batches(layout, name, more):
    options = {**SMALL, "fanouts": [3, 2]}
    state = layout.loader(**options).state_dict()
    loader = layout.loader(**{**options, **more})
    with pytest.raises(InputError, match=rf"load_state_dict: {name}: the state has .* make the loader"):
        loader.load_state_dict(state)
    assert next(iter(loader)).index == 0  # as if nothing had been loaded


def test_states_that_may_be_loaded_and_others(kit, build, layout):
    options = {**SMALL, "fanouts": [3, 2]}
    loader = layout.loader(**options)
    state = loader.state_dict()
    other = build(GRAPHS["one type"](kit, seed=1)).loader(**options)
    with pytest.raises(InputError, match="load_state_dict: layout: the state has the graph"):
        other.load_state_dict(state)
    more = {"workers": 1, "prefetch": 0, "features": None, "memory": "tiers", "dtype": "float16", "in_order": False}
    layout.loader(**{**options, **more, "fanouts": "3,2"}).load_state_dict(state)
    for wrong, found in (({}, "the keys "), (None, "None"), ({"epoch": 1}, "the keys epoch"), ([1], r"\[1\]")):
        with pytest.raises(InputError, match=f"expected the state_dict.* found {found}"):
            loader.load_state_dict(wrong)
    for wrong in ({"epoch": -1}, {"batches": 1.5}, {"world_size": 0}):
        with pytest.raises(InputError, match=f"load_state_dict: {next(iter(wrong))}: expected a whole number"):
            loader.load_state_dict({**state, **wrong})
    for start in (9, -1, 2.5, True):
        with pytest.raises(InputError, match="start: expected a whole number from 0 to 8, the batches of an epoch"):
            loader.epoch(0, start=start)


TRAIN = """
import os, signal, sys
from pathlib import Path
import torch, tiering
layout, folder, kill = tiering.open(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
torch.set_num_threads(1)
loader = layout.loader(fanouts=[3, 2], batch_size=16, seed=7, workers=2, prefetch=3)
model = torch.nn.Linear(layout.feature_dim(), 3)
parts = {"model": model, "loader": loader}
if (saved := folder / "checkpoint.pt").exists():
    for name, state in torch.load(saved, weights_only=True).items():
        parts[name].load_state_dict(state)
while loader.state_dict()["epoch"] < 3:
    for batch in loader:
        loss = torch.nn.functional.cross_entropy(model(batch.x[: len(batch.y)]), batch.y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():  # torch.optim would import its compiler, which takes long
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= 0.1 * gradient
        with open(folder / "losses", "a") as losses:
            losses.write(f"{batch.epoch} {batch.index} {loss.item()!r}\\n")
        state = loader.state_dict()
        if state["batches"] % 3 == 0:
            torch.save({name: part.state_dict() for name, part in parts.items()}, folder / "new")
            os.replace(folder / "new", saved)
        if batch.epoch * len(loader) + batch.index == kill:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_training_has_the_losses_of_unbroken_training(kit, build, tmp_path):
    """Killed twice, in the middle of an epoch, two batches after a checkpoint, and at its end, which is saved."""
    path, losses = build(kit.small_graph()).path, []
    for name, kills in (("unbroken", [-1]), ("killed", [7, 12, -1])):
        (folder := tmp_path / name).mkdir()
        for kill in kills:
            done = warm_processes.Interpreter(TRAIN, path, folder, kill).wait(120)
            assert done.returncode == (0 if kill < 0 else -9), done.stderr
        losses.append((folder / "losses").read_text().splitlines())
    unbroken, killed = losses
    assert len(unbroken) == 39 and set(killed) == set(unbroken) and len(killed) == 39 + 2
