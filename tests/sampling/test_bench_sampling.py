"""The sampling benchmark runs at toy size, with or without DGL."""

from __future__ import annotations

import sys

import pytest

from tiering.bench.sampling import sampling
from tiering.errors import InputError

SMALL = {"scale": 8, "num_edges": 2000, "batch_size": 16, "batches": 3, "repeats": 2}


@pytest.mark.filterwarnings("ignore")
def test_beside_dgl() -> None:
    pytest.importorskip("dgl")
    found = sampling(**SMALL).to_json()  # type: ignore[arg-type]
    assert found["amount"] > 0 and len(found["peers"]) == 2
    assert all(len(peer["seconds"]) == 2 and peer["ratio"] > 0 for peer in found["peers"])


def test_without_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    found = sampling(**SMALL).to_json()  # type: ignore[arg-type]
    assert found["rate"] > 0 and "not installed" in found["peers"][0]["note"]
    with pytest.raises(InputError, match="batches: expected at most 16 of 16, found 17"):
        sampling(**{**SMALL, "batches": 17})  # type: ignore[arg-type]
