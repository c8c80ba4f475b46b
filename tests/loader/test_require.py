"""PyG or DGL that is missing, too old, or made for another torch: one error that says so."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from tiering.errors import CapabilityError

PYG, DGL = ("torch_geometric", "pyg"), ("dgl", "dgl")


@pytest.mark.parametrize(("installed", "words"), [
    (None, r"expected {package} .* or later: pip install 'tiering\[{extra}\]'; it is not installed"),
    ("0.9.1", "expected {package} .* or later: .*; found 0.9.1"),
    ("99.0+cu130", "{package} 99.0.cu130 is installed, but cannot be imported .no such library."),
])  # fmt: skip
@pytest.mark.parametrize(
    ("method", "of"),
    [("pyg_loader", PYG), ("pyg_link_loader", PYG), ("pyg_stores", PYG), ("pyg_sampler", PYG), ("dgl_loader", DGL)],
)
def test_what_is_missing_is_said(kit, build, monkeypatch, method, of, installed, words):
    package, extra = of

    def version(asked: str) -> str:
        assert asked == package
        if installed is None:
            raise PackageNotFoundError(package)
        return installed

    def import_module(asked: str) -> None:
        raise OSError("no such library")

    layout = build(kit.small_graph())
    monkeypatch.setattr("tiering.loader.adapters.version", version)
    monkeypatch.setattr("tiering.loader.adapters.import_module", import_module)
    with pytest.raises(CapabilityError, match=words.format(package=package, extra=extra)):
        getattr(layout, method)()
