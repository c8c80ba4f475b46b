"""Benchmarks run tiny, so that none can rot; no figure is asserted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.__main__ import main


@pytest.fixture
def bench(tmp_path):
    """``bench("copy", ...)`` runs benchmarks; what they report. Nothing is left on the disk."""

    def run(*arguments: object) -> Any:
        out = tmp_path / "figures.json"
        assert main([*map(str, arguments), "--dir", str(tmp_path), "--json", str(out)]) == 0
        assert not list(tmp_path.glob("tiering-bench-*"))
        return json.loads(out.read_text())

    return run


@pytest.fixture
def gpu(monkeypatch):
    """A simulated GPU; what a benchmark leaves on it is a failure."""
    from simulated_gpu import lend

    yield from lend(monkeypatch)
