"""A command that is given too little memory names one figure, before it writes anything, and that figure suffices."""

from __future__ import annotations

import gzip
import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import peaks
import pytest
from fresh_process import in_warm_process

from tiering.cli.main import main

MIB = 1 << 20
COMMANDS = {
    "import": "import data",
    "import with edge ids": "import data --edge-ids",
    "import with changes": "import data --reverse-edges --deduplicate",
    "import of a text": "import edges.txt",
    "import of a packed text": "import edges.txt.gz",
    "import of weights": "import weighted.csv",
    "import of names": "import names.tsv --string-ids --no-header",
    "import of sparse ids": "import edges.txt --compact-ids",
    "import of a table": "import data --relation u:a:i=weighted.csv:src,dst",
    **{
        f"score by {method}": f"score graph --method {method} --fanouts 3,3"
        for method in ("wrpr", "presample", "hybrid")
    },
    "reorder": "reorder graph --scores scores",
    "reorder with features": "reorder graph --scores scores --features --first first.npy",
    "layout": "layout reordered --cpu 10% --ssd ssd",
    "layout over peers": "layout reordered --gpu 5% --peer 2x10% --cpu 10% --ssd ssd --ssd ssd1",
    "layout in rank order": "layout permuted --cpu 10% --ssd ssd",
    "export of a layout": "export layout",
    "export in original order": "export layout --original-order",
    "export of a graph": "export reordered",
    "evaluate": "evaluate graph --scores scores --fanouts 5,5",
}


def write_arrays(folder: Path, nodes: int, edges: int, dim: int) -> np.random.Generator:
    """Write edges and float32 rows of random numbers; return their generator."""
    random = np.random.default_rng(0)
    folder.mkdir()
    np.save(folder / "edge_index.npy", random.integers(0, nodes, (2, edges)))
    np.save(folder / "node_feat.npy", random.random((nodes, dim), np.float32))
    return random


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with 25 MB of rows, and what the stages make of it."""
    folder = tmp_path_factory.mktemp("chain")
    random = write_arrays(folder / "data", 25_000, 100_000, 250)
    np.save(folder / "data" / "train_idx.npy", np.arange(2000))
    np.save(folder / "first.npy", np.arange(100))
    ends = random.integers(0, 100_000, (2, 300_000)).tolist()
    for name, form, header in (
        ("edges.txt", "{} {}", "# FromNodeId ToNodeId"), ("weighted.csv", "{},{},0.25", "src,dst,weight"),
        ("names.tsv", "n{}x\tn{}x", "n0x\tn1x"),
    ):  # fmt: skip
        (folder / name).write_text("\n".join([header, *map(form.format, *ends)]) + "\n")
    (folder / "edges.txt.gz").write_bytes(gzip.compress((folder / "edges.txt").read_bytes(), 1))
    for name, line in {
        "graph": "import data",
        "scores": "score graph --method degree",
        "reordered": "reorder graph --scores scores",
        "permuted": "reorder graph --scores scores --features",
        "layout": f"layout reordered --cpu 10% --ssd {folder}/images",
    }.items():
        code, errors = run(folder, line, "--out", str(folder / name))
        assert code == 0, errors
    return folder


def run(folder: Path, line: str, *more: str) -> tuple[int, str]:
    """Exit code and standard error of a command; words of it that name files of `folder` are paths."""
    command, *words = line.split()
    paths = [str(folder / word) if (folder / word).exists() else word.replace("=", f"={folder}/") for word in words]
    errors = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(errors):
        code = main([command, *paths, *more])
    return code, errors.getvalue().strip()


def advised_and_taken(line: str, folder: str, out: str) -> list[Any]:
    """Messages of a command and of its dry run, given 1 MiB; how it ends with what they ask for, and what it takes."""
    ssd = [word for name in ("ssd", "ssd1") if f"--ssd {name}" in line for word in ("--ssd", f"{out}/{name}")]
    line, own = line.partition(" --ssd")[0], [*ssd, *([] if "evaluate" in line else ["--out", f"{out}/out"])]
    dry = [] if line.startswith("evaluate") else ["--dry-run"]
    said = [run(Path(folder), line, *own, *more, "--memory", "1MiB") for more in ([], dry)]
    left = sorted(path.name for path in Path(out).iterdir())
    memory = re.search(r"--memory (\d+MiB)", said[0][1])
    with peaks.peak_memory() as peak:
        code, errors = run(Path(folder), line, *own, "--memory", memory[1] if memory else "1MiB")
    return [said, left, code, errors, peak.bytes]


@pytest.mark.parametrize("name", COMMANDS)
def test_one_figure_suffices(chain: Path, tmp_path: Path, name: str) -> None:
    said, left, code, errors, peak = in_warm_process(advised_and_taken, COMMANDS[name], chain, tmp_path)
    figures = []
    for refused, message in said:
        assert refused == 1, message
        told = re.fullmatch(
            r"error: --memory: .* found 1MiB \(1 MiB\); give --memory (\d+)MiB or more", message.splitlines()[-1]
        )
        assert told is not None, message
        figures.append(int(told[1]))
    differ = 8 if "import of" in name else 2  # what pyarrow has loaded by the second run
    assert abs(figures[0] - figures[1]) <= differ, "a dry run asks for the same"
    assert left == [], "nothing is written before"
    assert code == 0, errors
    assert peak <= figures[0] * MIB


@pytest.fixture(scope="module")
def small_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of 300,000 nodes, whose arrays are smaller than the pieces of large ones, and rows for several units."""
    folder = tmp_path_factory.mktemp("small")
    write_arrays(folder / "data", 300_000, 1_000_000, 16)
    for name, line in {
        "graph": "import data", "scores": "score graph --method degree", "reordered": "reorder graph --scores scores",
    }.items():  # fmt: skip
        code, errors = run(folder, line, "--out", str(folder / name))
        assert code == 0, errors
    return folder


@pytest.mark.parametrize(("name", "most"), [("reorder", 20), ("layout", 37)])
def test_small_graphs_ask_for_little_more_than_they_take(
    small_graph: Path, tmp_path: Path, name: str, most: int
) -> None:
    """Of a process that the kernel sees take 41 MiB for the reorder and 62 MiB for the layout, less than 1.3 times."""
    said, _, code, errors, peak = in_warm_process(advised_and_taken, COMMANDS[name], small_graph, tmp_path)
    asked = re.search(r"need ([\d.]+) MiB in addition .* --memory (\d+)MiB", said[0][1])
    assert asked and code == 0, errors
    assert float(asked[1]) < most and peak <= int(asked[2]) * MIB
