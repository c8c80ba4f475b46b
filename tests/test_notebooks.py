"""Every notebook runs from top to bottom, and is kept without outputs; a kernel shows bars and artifacts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("TIERING_TOUR_NODES", "5000")
    monkeypatch.setenv("TIERING_DATA", str(REPOSITORY.parent / "shared" / "data"))  # need not be there
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert list(tmp_path.iterdir()) == []


_CELLS = (
    """
import tempfile, time, tiering
from tiering.progress import progress
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
code = "from tiering.progress import progress\\nwith progress(3, 'redirected') as bar: bar.update(3)"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr or "quiet")
""",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
def test_a_kernel_shows_bars_and_artifacts(tmp_path, monkeypatch):
    """Stages show theirs, and so does a bar of one's own; a script that the kernel starts shows none."""
    from nbclient import NotebookClient

    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    cells = [nbformat.v4.new_code_cell(source) for source in _CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [
        output.data for cell in notebook.cells for output in cell.outputs if output.output_type == "execute_result"
    ]
    assert all(data["text/html"].startswith("<div>") for data in shown)
    assert "<td" in shown[0]["text/html"] and "paper:cites:paper" in shown[0]["text/html"]
    assert "Scores by degree" in shown[1]["text/html"]
    assert shown[1]["text/plain"].startswith("<Scores ")
    widgets = find_spec("ipywidgets") is not None
    for cell, name in ((1, "graph"), (3, "counting")):
        texts = [output.get("text", "") for output in notebook.cells[cell].outputs]
        views = [output.get("data", {}) for output in notebook.cells[cell].outputs]
        bar = "application/vnd.jupyter.widget-view+json"
        assert any(bar in view for view in views) if widgets else any(f"{name}:" in text for text in texts)
    assert [output.text for output in notebook.cells[4].outputs] == ["quiet\n"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
