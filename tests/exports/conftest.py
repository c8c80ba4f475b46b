"""Fixtures of exports: datasets, and a function that exports them."""

from __future__ import annotations

import pytest
from exported import prepare, several, single

import tiering


@pytest.fixture(scope="module")
def homogeneous(tmp_path_factory):
    folder = tmp_path_factory.mktemp("homogeneous")
    return prepare(single(folder / "data"), folder)


@pytest.fixture(scope="module")
def heterogeneous(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heterogeneous")
    return prepare(several(folder / "data"), folder)


@pytest.fixture(params=["homogeneous", "heterogeneous"])
def prepared(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def export(tmp_path):
    """Return a function that exports something in an order."""

    def write(artifact, original=False, **options):
        out = tmp_path / f"exported-{original}"
        return tiering.export_layout(artifact, out, original_order=original, **options)

    return write
