"""Who sees a bar: people at a terminal or a notebook; not scripts whose standard error goes elsewhere."""

from __future__ import annotations

import io
import itertools
import multiprocessing
import sys
import time
from types import SimpleNamespace

import pytest

from tiering.text import progress as module
from tiering.text.progress import grouped_notes, in_notebook, note_at, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ZMQInteractiveShell:
    """Stands for ipykernel's shell, which is known by this name."""

    def __init__(self) -> None:
        self.execution_count = 1


class Colab(ZMQInteractiveShell):
    """Shells of hosted notebooks derive from it."""


def run_bar(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, watched: bool = True) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(10, "sorting", "edge", watched=watched) as bar:
        time.sleep(0.11)  # bars are drawn again after a tenth of a second
        bar.update(10)
    return stream.getvalue()


def in_shell(monkeypatch: pytest.MonkeyPatch, shell: object) -> list[list[str]]:
    """Stand for IPython, and return its outputs: the texts that each has shown, one after the other."""
    outputs: list[list[str]] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw and display_id
        texts = [data["text/plain"]]
        outputs.append(texts)
        return SimpleNamespace(update=lambda data, raw: texts.append(data["text/plain"]))

    names = SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=names))
    monkeypatch.setattr(module, "_LINE", module._CellLine())
    return outputs


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
def test_all_bars_of_a_cell_are_one_line(monkeypatch: pytest.MonkeyPatch, shell: ZMQInteractiveShell) -> None:
    outputs = in_shell(monkeypatch, shell)
    assert run_bar(monkeypatch, io.StringIO()) == ""
    with progress(2, "graph", "edge") as bar, progress(2, "scatter", "edge"):
        bar.update(2)
    assert [texts[-1][:11] for texts in outputs] == ["graph: 100%"]
    assert any("sorting: 100%" in text for text in outputs[0]) and any("scatter:" in text for text in outputs[0])
    shell.execution_count += 1
    run_bar(monkeypatch, io.StringIO())
    assert [texts[-1][:13] for texts in outputs[1:]] == ["sorting: 100%"]
    for text in itertools.chain(*outputs):
        assert text.isprintable() and 0 < len(text) <= 80
    run_bar(monkeypatch, io.StringIO(), watched=False)
    assert len(outputs) == 2


def test_a_worker_that_a_notebook_started_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    in_shell(monkeypatch, ZMQInteractiveShell())
    assert in_notebook()
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert not in_notebook()


def test_notes_of_one_kind_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the block ends with an error; each place is named once."""
    with pytest.raises(ValueError, match="end"), grouped_notes():
        for place in ("a", "b", "a", "c"):
            note_at(place, ": is odd")
        note_at("a", ": is even")
        assert capsys.readouterr().err == ""
        raise ValueError("end")
    assert capsys.readouterr().err == "note: a, b, c: is odd\nnote: a: is even\n"
    note_at("d", ": is odd")
    assert capsys.readouterr().err == "note: d: is odd\n"
