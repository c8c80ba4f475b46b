"""Fixtures of exports: datasets, and a function that exports them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exported import Prepared, prepare, several, single

import tiering


@pytest.fixture(scope="module")
def homogeneous(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("homogeneous")
    return prepare(single(folder / "data"), folder)


@pytest.fixture(scope="module")
def heterogeneous(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("heterogeneous")
    return prepare(several(folder / "data"), folder)


@pytest.fixture(params=["homogeneous", "heterogeneous"])
def prepared(request: pytest.FixtureRequest) -> Prepared:
    found: Prepared = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that exports something in an order."""

    def write(artifact: Any, original: bool = False, **options: Any) -> Any:
        out = tmp_path / f"exported-{original}"
        return tiering.export_layout(artifact, out, original_order=original, **options)

    return write
