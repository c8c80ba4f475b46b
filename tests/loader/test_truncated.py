"""Files that shrink under an open layout: an error of the package, no signal."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from child_process import in_child

from tiering.errors import FormatError, StorageError, TieringError

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


@pytest.mark.parametrize("left", [0, 1, 512, 3000])
def test_image(kit, build, engine, left):
    layout = build(kit.small_graph(page_bytes=512))
    table = layout.features(engine=engine)
    table.gather_numpy(np.arange(300))
    os.truncate(layout.artifact.images[0], left)

    def gather() -> str:
        with pytest.raises(StorageError) as caught:
            table.gather_numpy(np.arange(299, -1, -1))
        assert table.gather_numpy(np.arange(180)).shape == (180, 8)  # in memory
        return str(caught.value)

    assert "the file was truncated: make it again" in in_child(gather)


def mapped_files(layout) -> list[Path]:
    """Adjacency, labels, splits, the order: what a loader maps."""
    files = [*layout.path.glob("graph/relations/*/*"), *layout.path.glob("graph/nodes/*/label")]
    return [*files, *layout.path.glob("graph/order/nodes/*/new_to_old")]


@pytest.mark.parametrize("sampler", ["uniform", "weighted", "ladies", "pinsage"])
@pytest.mark.parametrize("name", ["indptr", "indices", "label", "new_to_old"])
def test_adjacency(kit, build, sampler, name):
    layout = build(kit.small_graph())
    loader = layout.loader(batch_size=16, fanouts=(5, 5), engine="threads", sampler=sampler, workers=1, prefetch=0)
    batches = loader.epoch(0)
    next(batches)
    batches.close()
    for file in mapped_files(layout):
        if file.name == name:
            os.truncate(file, 8)

    def run() -> str:
        with pytest.raises(TieringError) as caught:
            list(loader.epoch(1))
        assert isinstance(caught.value.__cause__, FormatError)
        return str(caught.value)

    message = in_child(run)
    assert f"{name}: truncated while it was in use: expected " in message
    assert "bytes, found 8; make the artifact again" in message
