"""What accesses cost: the arithmetic of the defaults, and measured figures from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tiering.errors import InputError, MissingError
from tiering.layout.cost_model import AccessCosts, read_access_costs

MEASURED: dict[str, Any] = {
    "device": "a GPU",
    "feature_seconds": {"base": 2e-9, "per_byte": 4e-11},
    "list_seconds": 3e-9,
    "neighbour_seconds": 0,
}


def test_the_arithmetic_of_the_defaults() -> None:
    costs = AccessCosts()
    sector = 0.99 * 32 / 12.5e9
    assert costs.list_seconds == costs.neighbour_seconds == costs.feature_base == pytest.approx(sector)
    assert costs.feature(512) == pytest.approx(sector + 0.99 * 512 / 25e9)
    assert costs.source == "assumed"


def test_measured_figures(tmp_path: Path) -> None:
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
        (
            {"list_seconds": -1e-9},
            "list_seconds: expected seconds per access, .* number of 0 or more, found -1e-09",
        ),
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
def test_files_that_do_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({**MEASURED, **change}))
    with pytest.raises(InputError, match=rf"access costs: .*costs\.json: {message}"):
        read_access_costs(file)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"access costs: .*none.json: no such file; leave --access-costs out"):
        read_access_costs(tmp_path / "none.json")
    for content in (b"{", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(InputError, match=r"bad.json: not valid JSON"):
            read_access_costs(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match=r"list.json: expected an object"):
        read_access_costs(tmp_path / "list.json")
