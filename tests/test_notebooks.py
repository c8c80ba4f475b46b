"""Every notebook runs from top to bottom, and is kept with what its cells show; a kernel shows bars and artifacts."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from kept_notebooks import NOTEBOOKS, PNG, output_kinds, run_notebook

MAX_BYTES = 400_000  # of a notebook with its outputs: pages on the web show it
BAR = ("display_data", "", "text/plain")
quiet_kernel = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning"
)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.slow
@quiet_kernel
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_what_it_is_kept_with(path, tmp_path, monkeypatch):
    """A run on small graphs has the same kinds of outputs, cell by cell."""
    monkeypatch.setenv("TIERING_TOUR_NODES", "12000" if "scores" in path.stem else "3000")
    monkeypatch.setenv("TIERING_DATA", str(tmp_path / "none"))  # generated graphs take the place of real ones
    notebook = nbformat.read(path, as_version=4)
    if any("torch_geometric" in cell.source for cell in notebook.cells):
        pytest.importorskip("torch_geometric")
    kept = [output_kinds(cell) for cell in notebook.cells]
    run_notebook(notebook, tmp_path)
    assert [output_kinds(cell) for cell in notebook.cells] == kept, (
        "keep its outputs: python tests/support/kept_notebooks.py"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_as_a_reader_wants_it(path):
    """With tables and plots, small, bars in one line, and nothing of the machine that it ran on."""
    notebook = nbformat.read(path, as_version=4)
    assert path.stat().st_size < MAX_BYTES
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "not run from top to bottom"
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    texts = [output.get("text", "") + json.dumps(output.get("data", {})) for output in outputs]
    assert any("<table>" in text for text in texts) or any(" 10%" in text for text in texts)
    assert any(PNG in output.get("data", {}) for output in outputs) or any("<img alt=" in text for text in texts)
    assert all(output_kinds(cell).count(BAR) <= 1 for cell in code)
    for text in texts:
        assert not re.search(r"/(tmp|home|root|Users|work)/|\\r|\x1b|20\d\d-\d\d-\d\d", text)
    assert not any("execution" in cell.metadata for cell in code) and "version" not in notebook.metadata.language_info


_CELLS = (
    """
import tempfile, time, tiering
from tiering.text.progress import progress
place = tempfile.TemporaryDirectory()
data = tiering.generate_dataset(place.name + "/data", nodes=300, edges=2000, dim=4)
""",
    """
graph = tiering.import_graph(data, place.name + "/graph")
scores = tiering.score_graph(graph, place.name + "/scores", "degree")
graph
""",
    "scores",
    """
with progress(3, "counting", "sheep") as bar:
    for _ in range(3):
        time.sleep(0.11)
        bar.update()
""",
    """
import subprocess, sys
code = "from tiering.text.progress import progress\\nwith progress(3, 'redirected') as bar: bar.update(3)"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr or "quiet")
""",
)


@pytest.mark.slow
@quiet_kernel
def test_a_kernel_shows_bars_and_artifacts(tmp_path):
    """Stages show theirs, and so does a bar of one's own; a script that the kernel starts shows none."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in _CELLS])
    run_notebook(notebook, tmp_path)
    shown = [
        output.data for cell in notebook.cells for output in cell.outputs if output.output_type == "execute_result"
    ]
    assert all(data["text/html"].startswith("<div>") for data in shown)
    assert "<td" in shown[0]["text/html"] and "paper:cites:paper" in shown[0]["text/html"]
    assert "Scores by degree" in shown[1]["text/html"]
    assert shown[1]["text/plain"].startswith("<Scores ")
    for cell, name in ((0, "generating"), (1, "graph"), (3, "counting")):
        bars = [out for out in notebook.cells[cell].outputs if out.output_type == BAR[0]]
        assert len(bars) == 1 and re.match(rf"{name}: 100%\|█+\| ", bars[0].data["text/plain"])
    assert [output.text for output in notebook.cells[4].outputs] == ["quiet\n"]
