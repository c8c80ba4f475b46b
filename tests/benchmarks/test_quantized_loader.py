"""What the benchmark of quantized rows makes of the loader's measurements."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.harness import Sizes
from benchmarks.quantized import loader

WAITED = {"float32": 4.0, "float16": 1.0, "int8": 0.5, "float8_e4m3": 0.0}


@pytest.fixture
def asked(monkeypatch) -> list[Any]:
    """What programs were asked; each layout waits so many seconds for 10 batches, but float8, all of whose rows fit."""
    programs: list[Any] = []

    def run_program(work: str, layout: Any, options: Any, memory: str = "auto") -> dict[str, Any]:
        programs.append((work, layout.name, options, memory))
        if work == "fit":
            too_little = options["rows"] == 100
            return {"note": "a batch does not fit"} if too_little else {"extra": 7, "limit": 1000, "fixed": 3}
        stored = layout.name.rpartition("-")[0]
        stats = {"seconds": {"disk": WAITED[stored]}, "reads": 20, "read_bytes": 40960, "rows": {"ssd": 60, "read": 40}}
        buffer = {} if stored == "float8_e4m3" else {"slots": 750, "rows": 3000}
        return {"loader": 0.5, "batches": 10, "stats": stats, **buffer}

    monkeypatch.setattr(loader, "run_program", run_program)
    layouts = lambda sizes, folder, nodes, dim: {s: folder / f"{s}-{dim}" for s in WAITED}  # noqa: E731
    monkeypatch.setattr(loader, "_write_layouts", layouts)
    return programs


def test_all_layouts_get_the_memory_of_float32_rows(asked, tmp_path):
    table = loader.loader(Sizes(folder=tmp_path, stage_nodes=3000, repeats=1, seconds=2.0))
    rows = {tuple(row[:3]): dict(zip(table.heads, row, strict=True)) for row in table.rows}
    int8 = rows["128 x float32", "1/10", "int8"]
    assert (int8["waiting for reads, ms a batch"], int8["float32 / it"], int8["aim"]) == (50.0, 8.0, 8.0)
    assert (int8["rows in memory"], int8["loader, ms a batch"], int8["reads a batch"]) == ("25%", 500.0, 2.0)
    assert (int8["KiB read a batch"], int8["rows a batch"]) == (4.0, 10.0)
    float8 = rows["1024 x float32", "1/10", "float8_e4m3"]
    assert (float8["float32 / it"], float8["rows in memory"]) == ("waits for none", "100%")
    assert ("128 x float32", "1/30", "a batch does not fit") in rows and ("128 x float32", "1/30", "int8") not in rows
    measured = [(options["extra"], memory) for work, _, options, memory in asked if work == "measure"]
    assert measured == [(7, "1000B")] * 12
    assert {name for work, name, *_ in asked if work == "fit"} == {"float32-128", "float32-1024"}
