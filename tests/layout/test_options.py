"""Options of a layout: parsed once, recorded as versions before did; costs of accesses, assumed or from a file."""

from __future__ import annotations

import json

import pytest
from toy_datasets import chain, toy_dataset

from tiering import pipeline
from tiering.errors import InputError, MissingError
from tiering.layout import LayoutOptions, parse_capacities
from tiering.layout.cost_model import AccessCosts, read_access_costs
from tiering.units import Size

MEASURED = {
    "device": "a GPU",
    "feature_seconds": {"base": 2e-9, "per_byte": 4e-11},
    "list_seconds": 3e-9,
    "neighbour_seconds": 0,
}


@pytest.mark.parametrize("text", [None, "none", " None "])
def test_no_adjacency_cache(text):
    options = LayoutOptions(gpu="1GiB", adjacency_cache=text)
    assert options.cache is None
    assert options.capacities == parse_capacities("1GiB")
    assert options.recorded == {"gpu": "1GiB", "peer": None, "cpu": None, "ssd": [], "page_bytes": 4096}


def test_adjacency_caches_are_parsed():
    auto = LayoutOptions(adjacency_cache="auto")
    assert auto.cache == Size("auto") and auto.costs == AccessCosts()
    share = LayoutOptions(adjacency_cache="30%").cache
    assert share.fraction == pytest.approx(0.3)
    for text in ("half", "2GiB", 30, "0.3", "130%", "-1%"):
        with pytest.raises(InputError, match=r"adjacency cache: expected none, auto, or the share of --gpu .*; found"):
            LayoutOptions(adjacency_cache=text)


def test_what_is_recorded_keeps_its_first_keys(tmp_path):
    """A layout that version 0.1.0 made with `--split 30%` counts as made with `--adjacency-cache 30%`."""
    options = LayoutOptions(gpu=80, ssd=[tmp_path], page=512, adjacency_cache="30%")
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


def test_whole_or_one_by_one(tmp_path):
    reordered = chain(toy_dataset(tmp_path / "data", 3), tmp_path)[2]
    one = pipeline.layout(reordered, tmp_path / "layout", gpu="20%")
    whole = pipeline.layout(reordered, tmp_path / "layout", LayoutOptions(gpu="20%"), force=True)
    assert one.digest == whole.digest
    with pytest.raises(TypeError, match="expected LayoutOptions or keywords, found both"):
        pipeline.layout(reordered, tmp_path / "layout", LayoutOptions(), gpu="20%", force=True)


def test_measured_figures(tmp_path):
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(MEASURED))
    costs = read_access_costs(file)
    assert costs == AccessCosts(2e-9, 4e-11, 3e-9, 0.0, source="measured on a GPU")
    recorded = costs.to_json()
    assert recorded.pop("source") == "measured on a GPU"
    assert {"device": "a GPU", **recorded} == {**MEASURED, "peer_share": 0.9, "ssd_seconds": 1e-6}
    file.write_text(json.dumps({**MEASURED, "peer_share": 0.5, "ssd_seconds": 2e-6}))
    more = read_access_costs(file)
    assert (more.peer_share, more.ssd_seconds, more.list_seconds) == (0.5, 2e-6, 3e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": 3}, "device: expected the name of the device measured, found 3"),
        ({"list_seconds": -1e-9}, "list_seconds: expected seconds per access, .* number of 0 or more, found -1e-09"),
        ({"list_seconds": float("nan")}, "list_seconds: expected seconds per access"),
        ({"neighbour_seconds": True}, "neighbour_seconds: expected seconds per access, .* found True"),
        ({"neighbour_seconds": 2.5}, "neighbour_seconds: .* at most 1, found 2.5; are these nanoseconds"),
        ({"feature_seconds": 3}, r"feature_seconds: expected an object .*, found 3"),
        ({"feature_seconds": {"base": 0}}, "feature_seconds: expected base, per_byte, found no per_byte; the form is"),
        ({"peer_share": 1.5}, "peer_share: expected a fraction, at most 1, found 1.5"),
        ({"warp": 1}, "expected device, feature_seconds, .*, found unknown warp; the form is"),
        (
            {"feature_seconds": {"base": 0, "per_byte": 0}, "list_seconds": 0},
            "expected seconds above 0 .*, found 0 for all; measure again",
        ),
    ],
)
def test_files_that_do_not_fit(tmp_path, change, message):
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({**MEASURED, **change}))
    with pytest.raises(InputError, match=rf"access costs: .*costs\.json: {message}"):
        read_access_costs(file)


def test_files_that_are_none(tmp_path):
    with pytest.raises(MissingError, match=r"access costs: .*none.json: no such file; leave --access-costs out"):
        read_access_costs(tmp_path / "none.json")
    for content in (b"{", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(InputError, match=r"bad.json: not valid JSON"):
            read_access_costs(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match=r"list.json: expected an object"):
        read_access_costs(tmp_path / "list.json")
