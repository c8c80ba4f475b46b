"""An artifact that is replaced while it is opened is the old one or the new one, or one line says what goes on."""

import os
import select
import time

import pytest

import tiering
from tiering import pipeline
from tiering.artifacts.storage import OpenDirectory
from tiering.errors import BusyError, FormatError, MissingError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.scores import Scores


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("chain")
    tiering.generate_dataset(tmp_path / "data", nodes=200, edges=500, dim=8)
    pipeline.import_graph(tmp_path / "data", tmp_path / "graph")
    pipeline.score_graph(tmp_path / "graph", tmp_path / "scores", "degree")
    pipeline.reorder_graph(tmp_path / "graph", tmp_path / "scores", tmp_path / "reordered")
    place(tmp_path)
    return tmp_path


def place(folder, cpu="10%"):
    return pipeline.layout(folder / "reordered", folder / "layout", cpu=cpu, ssd=[folder / "ssd"], force=True)


READS = {
    "graph": (Graph.open, "graph"),
    "any graph": (tiering.open, "graph"),
    "scores": (Scores.open, "scores"),
    "layout": (tiering.open, "layout"),
    "layout itself": (Layout.open, "layout"),
    "layout, in a part": (tiering.open, "layout"),
    "check, in a part": (tiering.check, "layout"),
    "check": (tiering.check, "layout"),
    "full check": (lambda path: tiering.check(path, "full"), "layout"),
}


def make(folder, name, turn):
    """Replace an artifact by another one."""
    if name == "graph":
        pipeline.import_graph(folder / "data", folder / "graph", edge_ids=bool(turn % 2), force=True)
    elif name == "scores":
        pipeline.score_graph(folder / "graph", folder / "scores", "random", seed=turn, force=True)
    else:
        place(folder, f"{10 + turn % 5}%")


@pytest.fixture
def replacing(chain, monkeypatch):
    """``replacing(name, times, part)``: an artifact is replaced whenever its manifest, or a part's, was read."""
    state = {"name": "", "left": 0, "part": ""}
    read = OpenDirectory.read

    def replaced(self, name):
        data = read(self, name)
        if state["left"] and self.path == chain / state["name"] / state["part"]:
            left, state["left"] = state["left"] - 1, 0  # what replaces it reads artifacts, too
            make(chain, state["name"], left)
            state["left"] = left
        return data

    monkeypatch.setattr(OpenDirectory, "read", replaced)
    yield lambda name, times, part="": state.update(name=name, left=times, part=part)


@pytest.mark.parametrize("name", READS)
def test_replaced_once(chain, replacing, name):
    read, which = READS[name]
    replacing(which, 1, "graph" if "part" in name else "")
    found = read(chain / which)
    if "check" in name:
        assert found == []
    else:
        assert found.digest == tiering.open(chain / which).digest
        assert found.problems("structure") == []


@pytest.mark.parametrize("name", READS)
def test_replaced_again_and_again(chain, replacing, name):
    read, which = READS[name]
    replacing(which, 1000, "graph" if "part" in name else "")
    with pytest.raises(BusyError, match=rf"/{which}: is being replaced; open it again when the run"):
        read(chain / which)


def test_damage_is_no_replacement(chain):
    pipeline.layout(chain / "reordered", chain / "damaged", cpu="auto")
    (chain / "damaged" / "graph" / "manifest.json").unlink()
    with pytest.raises(FormatError, match="not a valid artifact"):
        tiering.open(chain / "damaged")
    with pytest.raises(MissingError, match="no such file"):
        tiering.open(chain / "none")


@pytest.mark.parametrize("seconds", [1.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_readers_of_a_layout_that_is_replaced_in_a_loop(chain, seconds):
    """Rows are those of the graph, whichever layout is open."""
    rows = tiering.open(chain / "layout").features().gather([0, 199]).tolist()
    here, there = os.pipe()
    if (writer := os.fork()) == 0:
        os.close(there)
        turn = 0
        while not select.select([here], [], [], 0)[0]:  # until the reader has closed its end
            place(chain, f"{10 + (turn := turn + 1) % 5}%")
        os._exit(0)
    opens, end = 0, time.monotonic() + seconds
    while opens < 5 or time.monotonic() < end:
        try:
            with tiering.open(chain / "layout") as layout:
                assert layout.features().gather([0, 199]).tolist() == rows
            assert tiering.check(chain / "layout") == []
        except BusyError:
            continue
        opens += 1
    os.close(there)
    assert os.waitpid(writer, 0)[1] == 0
    os.close(here)
    print(f"campaign replaced layouts: {opens} opens, 0 wrong")
