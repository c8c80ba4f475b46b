"""Layouts, tables and loaders in other processes: pickled as path and options, opened again there."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import torch

from tiering.errors import CapabilityError, FormatError, InputError, MissingError
from tiering.loader import TieredLayout
from tiering.loader.tables.gather import HostRows


def again(thing):
    return pickle.loads(pickle.dumps(thing))


def test_a_path_from_here(kit, build, monkeypatch):
    """The other process may work elsewhere."""
    layout = build(kit.small_graph())
    monkeypatch.chdir(layout.path.parent)
    from tiering.loader import open_layout

    data = pickle.dumps(open_layout(layout.path.name))
    monkeypatch.chdir("/")
    assert pickle.loads(data).digest == layout.digest


def test_a_table(kit, build, engine):
    table = build(kit.small_graph()).features(engine=engine, depth=7, direct="off", threads=1)
    copy = again(table)
    assert copy.engine == engine
    assert copy.reader.depth == 7
    assert not copy.reader.direct
    ids = np.arange(300)
    np.testing.assert_array_equal(copy.gather_numpy(ids), table.gather_numpy(ids))


@pytest.mark.parametrize("features", ["tiers", "memory", None, "a table"])
def test_a_loader(kit, build, features):
    layout = build(kit.small_graph())
    given = layout.features() if features == "a table" else features
    loader = layout.loader(batch_size=64, fanouts=(3, 2), seed=5, seeds=torch.arange(100), features=given, prefetch=1)
    list(loader)
    copy = again(loader)
    assert isinstance(copy.layout, TieredLayout) and copy.layout.digest == layout.digest
    pairs = list(zip(loader, copy, strict=True))
    assert len(pairs) == 2
    for mine, there in pairs:
        assert (mine.epoch, there.epoch) == (1, 1)
        assert torch.equal(mine.nodes["node"], there.nodes["node"])
        assert all(torch.equal(mine.features[t], there.features[t]) for t in mine.features)


def test_a_layout_that_was_replaced(kit, build):
    layout, other = build(kit.small_graph(0)), build(kit.small_graph(1))
    pickled = [pickle.dumps(each) for each in (layout, layout.features(), layout.loader(fanouts=(2,)))]
    shutil.rmtree(layout.path)
    for each in pickled:
        with pytest.raises(MissingError, match="layout-0"):
            pickle.loads(each)
    shutil.copytree(other.path, layout.path)
    for each in pickled:
        with pytest.raises(FormatError, match=r"layout-0: the layout was replaced after it was pickled: expected .*"):
            pickle.loads(each)


def test_what_is_not_pickled(kit, build):
    layout = build(kit.small_graph())
    table = layout.features()
    with pytest.raises(CapabilityError, match="HostRows belong to the memory of one process"):
        pickle.dumps(HostRows("here", layout.artifact.type_layout("node"), table.table, 1))
    table.close()
    with pytest.raises(InputError, match="closed"):
        pickle.dumps(table)
