"""A layout that was stopped goes on: only what is missing is written, the bytes are the same, nothing is left over."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from plain_reader import read_rows
from recorded_keys import recording
from toy_datasets import chain, toy_dataset, tree_bytes

import tiering
from tiering.artifacts import checksum
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, StorageError
from tiering.pipeline import layout as write_layout
from tiering.reorder.arrays import PieceSizes
from tiering.reorder.table_reader import TableReader

OPTIONS = {"gpu": "15%", "peer": "3x9%", "cpu": "20%"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 4096)
    monkeypatch.setattr("tiering.reorder.table_reader.SIZES", PieceSizes(chunk=5000))


@pytest.fixture
def reordered(tmp_path):
    toy = toy_dataset(tmp_path / "data", 9, max_nodes=120, min_nodes=100, featureless=0, dims=(17, 140, 600))
    return chain(toy, tmp_path)[2]


def make(reordered, folder, **options):
    disks = [folder / "disks" / name for name in ("a", "b")]
    write_layout(reordered, folder / "layout", **{**OPTIONS, "ssd": disks, **options})


def made(folder):
    """Every byte of the layout and its images, and the names of what else is there."""
    found = tree_bytes(folder)
    assert not [name for name in found if "/." in f"/{name}"], "something hidden was left"
    return found


def blocks_of(keys):
    return {key for key in keys if key.startswith("blocks ")}


@pytest.mark.parametrize(
    ("page", "stops"), [(512, 4), *(pytest.param(page, 1000, marks=pytest.mark.slow) for page in (512, 4096))]
)
def test_from_wherever_it_stopped(reordered, tmp_path, monkeypatch, page, stops):
    asked, read, folder = list[int](), TableReader.read, tmp_path / "run"

    def asking(self, begin, end, *multiple):
        asked.append(end - begin)
        return read(self, begin, end, *multiple)

    monkeypatch.setattr(TableReader, "read", asking)
    with recording() as all_keys:
        make(reordered, folder, page=page)
    expected, whole = made(folder), asked.copy()
    assert len(blocks_of(all_keys)) > 20
    for stop in range(2, len(all_keys), max(3, len(all_keys) // stops)):
        shutil.rmtree(folder)
        with recording(stop) as first, pytest.raises(StorageError, match="stopped here"):
            make(reordered, folder, page=page)
        assert not (folder / "layout").exists()
        asked.clear()
        with recording() as again:
            make(reordered, folder, page=page, threads=2)
        assert made(folder) == expected, f"stopped at {all_keys[stop]}"
        assert not blocks_of(first) & set(again), "a finished block was written again"
    assert sum(asked) < sum(whole), "of the last stop: rows that were written are not read again"


def test_other_options_leave_nothing_of_the_first(reordered, tmp_path):
    with recording() as keys:
        make(reordered, tmp_path / "counted")
    for stop in (len(keys) // 2, len(keys) - 1):  # before and after the images have their names
        folder = tmp_path / str(stop)
        with recording(stop), pytest.raises(StorageError):
            make(reordered, folder)
        (folder / "other").mkdir()
        make(reordered, folder, gpu="20%", ssd=[folder / "other"])
        made(folder)
        assert not (folder / "disks").exists()
        assert tiering.check(folder / "layout", "full") == []


def test_another_stage_in_its_place_leaves_nothing_of_it(reordered, tmp_path):
    with recording() as keys:
        make(reordered, tmp_path / "counted")
    folder = tmp_path / "run"
    with recording(len(keys) - 1), pytest.raises(StorageError):
        make(reordered, folder)
    assert (folder / "disks").exists()
    tiering.pipeline.score_graph(tmp_path / "graph", folder / "layout", "degree")
    assert [path.name for path in folder.iterdir()] == ["layout"]


@pytest.mark.slow
def test_replacing_is_stopped(reordered, tmp_path):
    """The layout that is replaced stays whole until the new one is; then it goes, whenever the run is stopped."""
    folder = tmp_path / "run"
    make(reordered, folder, cpu="30%")
    replaced = made(folder)
    make(reordered, folder, force=True)
    expected = made(folder)
    for options, before in (({"cpu": "30%"}, replaced), ({}, expected)):  # also by itself: the images' names are taken
        shutil.rmtree(folder)
        make(reordered, folder, **options)
        with recording() as keys:
            make(reordered, folder, force=True)
        for stop in range(len(keys) - 8, len(keys)):
            shutil.rmtree(folder)
            make(reordered, folder, **options)
            with recording(stop), pytest.raises(StorageError):
                make(reordered, folder, force=True)
            assert made_layout(folder) == {name: data for name, data in before.items() if name.startswith("layout/")}
            make(reordered, folder, force=True)
            assert made(folder) == expected


def test_the_same_again_with_the_disks_changed_over(reordered, tmp_path):
    folder = tmp_path / "run"
    make(reordered, folder)
    make(reordered, folder, ssd=[folder / "disks" / name for name in ("b", "a")], force=True)
    assert tiering.check(folder / "layout", "full") == []
    assert len(list((folder / "disks").rglob("ssd-*"))) == 2


def stop(*arguments, **options):
    raise StorageError(5, "stopped here")


@pytest.mark.slow
def test_other_rows_under_the_same_digest(tmp_path, monkeypatch):
    """A change that the sampled digest of a large table does not see: the old layout keeps its images."""
    toy = toy_dataset(
        tmp_path / "data", 9, types=1, max_nodes=2000, min_nodes=2000, featureless=0, dims=(1200,), dtypes=("float32",)
    )
    reordered, folder = chain(toy, tmp_path)[2], tmp_path / "run"
    make(reordered, folder)
    old = read_rows(folder / "layout", "author")
    table = np.memmap(tmp_path / "data" / "author.bin", np.uint8, "r+")
    for block in range(63):
        between = (table.size - 65536) * block // 63 + 100_000
        table[between : between + 10_000] ^= 1
    del table
    with monkeypatch.context() as patch, pytest.raises(StorageError):
        patch.setattr(ArtifactWriter, "commit", stop)
        make(reordered, folder, force=True)
    assert tiering.check(folder / "layout", "full") == []
    np.testing.assert_array_equal(read_rows(folder / "layout", "author"), old)
    make(reordered, folder, force=True)
    assert tiering.check(folder / "layout", "full") == []
    assert (read_rows(folder / "layout", "author") != old).any()
    assert len(list((folder / "disks").iterdir())) == 2
    assert all(len(list(disk.iterdir())) == 1 for disk in (folder / "disks").iterdir())


def made_layout(folder):
    return {name: data for name, data in tree_bytes(folder).items() if name.startswith("layout/")}


def test_given_up_when_it_would_have_replaced_itself(reordered, tmp_path):
    folder = tmp_path / "run"
    make(reordered, folder)
    with recording() as keys:
        make(reordered, folder, force=True)
    with recording(len(keys) - 1), pytest.raises(StorageError):
        make(reordered, folder, force=True)
    with pytest.raises(InputError), recording():
        make(reordered, folder, gpu="1", force=True)
    tiering.pipeline.reorder_graph(tmp_path / "graph", tmp_path / "scores", folder / "layout", force=True)
    assert tree_bytes(folder / "disks") == {}  # they go with the layout that was replaced


def test_a_feature_file_that_changed_in_between_is_named(reordered, tmp_path):
    folder = tmp_path / "run"
    with recording(40), pytest.raises(StorageError):
        make(reordered, folder)
    path = tmp_path / "data" / "paper.bin"
    path.touch()
    with pytest.raises(InputError, match=rf"{path}: changed since a run that left .*layout unfinished"):
        make(reordered, folder)
    make(reordered, folder, force=True)
    made(folder)
