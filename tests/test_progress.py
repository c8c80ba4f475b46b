"""Who sees a bar: people at a terminal or a notebook; not scripts whose standard error goes elsewhere."""

from __future__ import annotations

import io
import multiprocessing
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tqdm import tqdm

from tiering import progress as module
from tiering.progress import in_notebook, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ZMQInteractiveShell:
    """Stands for ipykernel's shell, which is known by this name."""


class Colab(ZMQInteractiveShell):
    """Shells of hosted notebooks derive from it."""


def run_bar(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, watched: bool = True) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(10, "sorting", "edge", watched=watched) as bar:
        time.sleep(0.11)  # bars are drawn again after a tenth of a second
        bar.update(10)
    return stream.getvalue()


def in_shell(monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_a_script_whose_standard_error_is_no_terminal_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert run_bar(monkeypatch, io.StringIO()) == ""


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_a_script_that_imports_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
    in_shell(monkeypatch, shell)
    assert run_bar(monkeypatch, io.StringIO()) == ""


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sorting: 100%" in run_bar(monkeypatch, Terminal())
    assert run_bar(monkeypatch, Terminal(), watched=False) == ""


@pytest.mark.parametrize("shell", [ZMQInteractiveShell(), Colab()])
def test_a_notebook_shows_a_text_bar_where_there_are_no_widgets(monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
    in_shell(monkeypatch, shell)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    text = run_bar(monkeypatch, io.StringIO())
    assert "sorting: 100%" in text and max(map(len, text.split("\r"))) <= 80
    assert run_bar(monkeypatch, io.StringIO(), watched=False) == ""


def test_a_notebook_shows_a_widget_where_ipywidgets_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ipywidgets.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    kind, options = module._bar(terminal=False, notebook=True)
    assert kind.__module__ == "tqdm.notebook" and issubclass(kind, tqdm) and not options.get("disable")
    assert module._bar(terminal=False, notebook=False) == (tqdm, {"dynamic_ncols": True, "disable": True})


def test_a_worker_that_a_notebook_started_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    in_shell(monkeypatch, ZMQInteractiveShell())
    assert in_notebook()
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert not in_notebook()
