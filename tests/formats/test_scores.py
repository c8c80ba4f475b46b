"""The scores artifact: both columns, what readers refuse, and the version before."""

import json
import shutil
from pathlib import Path

import pytest
from sealed import edit_manifest

from tiering.errors import FormatError, MissingError
from tiering.formats.scores import Scores

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "data_specs" / "examples" / "scores"
OLD = HERE / "golden" / "scores-1.0"


def test_columns_of_the_example():
    scores = Scores.open(EXAMPLE)
    assert scores.manifest.version == (1, 2)
    assert scores.columns == ["feature", "adjacency"]
    assert scores.relations == [("author", "writes", "paper"), ("paper", "cites", "paper")]
    assert scores.values("paper").tolist() == [0.5, 0.25, 2.0, 0.0]
    for relation in ("cites", "paper:cites:paper", ("paper", "cites", "paper")):
        assert scores.adjacency(relation).tolist() == [1.0, 1.5, 0.0, 0.0]
    assert scores.summary()["relations"]["paper:cites:paper"]["sum"] == 2.5
    assert scores.counted_epochs(0) is None
    with pytest.raises(MissingError, match=r"no single relation None; relations: author:writes:paper, paper:cites"):
        scores.adjacency()
    with pytest.raises(MissingError, match="author, paper"):
        scores.values()
    with pytest.raises(MissingError, match="no column 'adjacency' per node type; columns: feature"):
        scores.values("paper", "adjacency")


def test_version_1_0_still_opens():
    scores = Scores.open(OLD)
    assert scores.manifest.version == (1, 0)
    assert scores.columns == ["feature"] and scores.relations == []
    assert scores.values("author").tolist() == [0.5, 0.75]
    assert scores.summary()["relations"] == {}
    with pytest.raises(MissingError, match="degree does not predict reads of adjacency; use method presample, vip"):
        scores.adjacency("cites")


def test_a_reader_of_1_0_understands_later_ones():
    """It sees no field that it does not know: what is new are files, and a field beside those that it knows."""
    old, new = (json.loads((path / "manifest.json").read_text()) for path in (OLD, EXAMPLE))
    assert set(new) - set(old) == {"checksum"} and set(old["body"]) == set(new["body"])
    assert new["requires"] == [] and new["body"]["columns"] == ["feature"]


@pytest.mark.parametrize(("old", "new", "message"), [
    ("paper__cites__paper", "paper__cites__venue", "names an unknown node type"),
    ("paper__cites__paper", "paper__cites__author", r"expected shape \(2,\), found \(4,\)"),
])  # fmt: skip
def test_adjacency_that_does_not_fit_the_types(tmp_path, old, new, message):
    shutil.copytree(EXAMPLE, tmp_path / "scores")
    before, after = (f"relations/{name}/adjacency" for name in (old, new))
    (tmp_path / "scores/relations" / old).rename(tmp_path / "scores/relations" / new)
    edit_manifest(tmp_path / "scores", lambda found: found["files"].update({after: found["files"].pop(before)}))
    with pytest.raises(FormatError, match=message):
        Scores.open(tmp_path / "scores")
