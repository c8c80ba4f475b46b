"""Options of a layout: parsed once, and recorded as versions before did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_datasets import chain, toy_dataset

from tiering import pipeline
from tiering.errors import InputError
from tiering.layout import LayoutOptions, parse_capacities
from tiering.layout.cost_model import AccessCosts
from tiering.units import Size


@pytest.mark.parametrize("text", [None, "none", " None "])
def test_no_adjacency_cache(text: str | None) -> None:
    options = LayoutOptions.of(gpu="1GiB", adjacency_cache=text)
    assert options.cache is None
    assert options.capacities == parse_capacities("1GiB")
    assert options.recorded == {"gpu": "1GiB", "peer": None, "cpu": None, "ssd": [], "page_bytes": 4096}


def test_adjacency_caches_are_parsed() -> None:
    auto = LayoutOptions.of(adjacency_cache="auto")
    assert auto.cache == Size("auto") and auto.costs == AccessCosts()
    share = LayoutOptions.of(adjacency_cache="30%").cache
    assert share is not None and share.fraction == pytest.approx(0.3)
    for text in ("half", "2GiB", 30, "0.3", "130%", "-1%"):
        with pytest.raises(InputError, match=r"adjacency cache: expected none, auto, or the share of --gpu .*; found"):
            LayoutOptions.of(adjacency_cache=text)


def test_what_is_recorded_keeps_its_first_keys(tmp_path: Path) -> None:
    """A layout that version 0.1.0 made with `--split 30%` counts as made with `--adjacency-cache 30%`."""
    options = LayoutOptions.of(gpu=80, ssd=[tmp_path], page=512, adjacency_cache="30%")
    assert json.loads(json.dumps(options.recorded)) == {
        "gpu": 80,
        "peer": None,
        "cpu": None,
        "ssd": [str(tmp_path.resolve())],
        "page_bytes": 512,
        "split": "30%",
        "gpu_times": {
            "source": "assumed",
            "feature_seconds": {"base": 0.99 / (12.5e9 / 32), "per_byte": 0.99 / 25e9},
            "list_seconds": 0.99 / (12.5e9 / 32),
            "neighbour_seconds": 0.99 / (12.5e9 / 32),
            "peer_share": 0.9,
            "ssd_seconds": 1e-6,
        },
    }


def test_whole_or_one_by_one(tmp_path: Path) -> None:
    reordered = chain(toy_dataset(tmp_path / "data", 3), tmp_path)[2]
    one = pipeline.layout(reordered, tmp_path / "layout", gpu="20%")
    whole = pipeline.layout(reordered, tmp_path / "layout", LayoutOptions.of(gpu="20%"), force=True)
    assert one.digest == whole.digest
    with pytest.raises(TypeError, match="expected LayoutOptions or keywords, found both"):
        pipeline.layout(reordered, tmp_path / "layout", LayoutOptions.of(), gpu="20%", force=True)
