"""Copies of artifacts: equal bytes, other numbers of stripe files, moved layouts, killed and refused copies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from damage import flip
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_reader import read_rows
from toy_datasets import chain, toy_dataset, tree_bytes

import tiering
from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import MOVED
from tiering.artifacts.remote import RemoteFolder
from tiering.errors import ExistsError, FormatError, InputError, MissingError, StorageError
from tiering.formats.layout import Layout
from tiering.pipeline import copies
from tiering.pipeline.copies import COPYING

BLOCK = 131072


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Graph, scores, reordered graph, and layouts on two disks and inside themselves, in blocks of two units."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "BLOCK_BYTES", BLOCK)
        toy = toy_dataset(folder / "data", 9, max_nodes=900, min_nodes=800, featureless=0, dims=(140, 600))
        reordered = chain(toy, folder)[2]
        disks = [folder / "a", folder / "b"]
        tiering.write_layout(reordered, folder / "layout", gpu="10%", cpu="20%", ssd=disks)
        tiering.write_layout(reordered, folder / "inner", gpu="10%", cpu="20%", ssd=folder / "inner/nvme")
    return folder


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", BLOCK)


def all_rows(path):
    """Every row of every table, read by the words of the format's page."""
    return {name: read_rows(path, name).tobytes() for name in Layout.open(path).tables}


def stripes(path):
    return [place.read_bytes() for place in Layout.open(path).images]


def units_of(path):
    """The units of all stripe files, in their order."""
    files, unit = stripes(path), Layout.open(path).unit_bytes
    return [file[at : at + unit] for at in range(0, max(map(len, files)), unit) for file in files if at < len(file)]


@pytest.mark.parametrize("name", ["graph", "scores", "reordered", "layout", "inner"])
def test_a_copy_is_the_same_artifact(made, tmp_path, name):
    """Its digest stays, and it needs nothing of the original; it can be moved."""
    artifact = tiering.copy(made / name, tmp_path / "copy", features=True, verify="full")
    assert artifact.digest == tiering.open(made / name).digest
    (tmp_path / "copy").rename(tmp_path / "moved")
    assert tiering.check(tmp_path / "moved", "full") == []
    opened = copies.open_artifact(tmp_path / "moved")
    assert [path for path in opened.outside() if not path.is_relative_to(tmp_path / "moved")] == []
    if name in ("layout", "inner"):
        assert stripes(tmp_path / "moved") == stripes(made / name)


def test_copied_inputs_are_inputs(made, tmp_path):
    """Scores of the original fit the copied graph, whose rows a layout takes; no file of the copy is shared."""
    graph = tiering.copy(made / "graph", tmp_path / "graph")
    reordered = tiering.reorder_graph(graph, made / "scores", tmp_path / "reordered")
    layout = tiering.write_layout(reordered, tmp_path / "layout", gpu="10%", cpu="20%", ssd=tmp_path / "layout/nvme")
    assert tiering.check(tmp_path / "reordered", "full") == [] == tiering.check(tmp_path / "layout", "full")
    assert stripes(tmp_path / "layout") == stripes(made / "inner")
    assert not any(path.is_relative_to(made) for path in layout.artifact.outside())


def test_a_layout_leaves_the_dataset_out(made, tmp_path):
    tiering.copy(made / "layout", tmp_path / "copy")
    assert not (tmp_path / "copy/graph/features/external").exists()
    hidden = made.with_name("hidden")
    (made / "data").rename(hidden)
    try:
        assert tiering.check(tmp_path / "copy", "full") == [], "the tiers hold all rows"
        assert "author" in str(copies.open_artifact(tmp_path / "copy").describe())
        assert tiering.check(made / "reordered"), "the graph alone needs its tables"
    finally:
        hidden.rename(made / "data")
    whole = tiering.copy(made / "layout", tmp_path / "whole", features=True)
    assert (tmp_path / "whole/graph/features/external").is_dir()
    assert whole.digest == Layout.open(made / "layout").digest


@settings(max_examples=8)
@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
def test_any_number_of_stripe_files(made, tmp_path_factory, counts, data):
    """Units are dealt out anew, as a layout of so many directories has them; back and forth gives the same bytes."""
    folder, before = tmp_path_factory.mktemp("striped"), made / "layout"
    for turn, count in enumerate([*counts, 2]):
        inside = data.draw(st.booleans())
        base = folder / (f"layout-{turn}" if inside else "disks")
        tiering.copy(before, folder / f"layout-{turn}", ssd=[base / f"{turn}-{number}" for number in range(count)])
        before = folder / f"layout-{turn}"
        assert len(stripes(before)) == count
        assert units_of(before) == units_of(made / "layout")
        assert tiering.check(before, "full") == []
    assert stripes(before) == stripes(made / "layout")
    assert (before / "pages/ssd-1").read_bytes() == (made / "layout/pages/ssd-1").read_bytes()
    assert all_rows(before) == all_rows(made / "layout")


class Killed(KeyboardInterrupt):
    """Stands for the end of the process."""


@pytest.mark.parametrize("count", [2, 3])
def test_a_stopped_copy_goes_on(made, tmp_path, monkeypatch, count):
    """From any block on; the destination never opens before it is whole, and nothing is left beside it."""
    disks = [tmp_path / f"disk{number}" for number in range(count)]
    tiering.copy(made / "layout", tmp_path / "whole" / "layout", ssd=disks)
    expected = tree_bytes(tmp_path / "whole" / "layout"), sorted(len(s) for s in stripes(tmp_path / "whole/layout"))
    put, stops = FileWriter.put, 0
    for disk in disks:
        shutil.rmtree(disk)
    while True:
        left = [7]

        def failing(self, data, offset, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            put(self, data, offset)

        monkeypatch.setattr(FileWriter, "put", failing)
        try:
            tiering.copy(made / "layout", tmp_path / "out" / "layout", ssd=disks)
            break
        except Killed:
            stops += 1
            with pytest.raises(MissingError):
                tiering.open(tmp_path / "out" / "layout")
    monkeypatch.undo()
    monkeypatch.setattr(checksum, "BLOCK_BYTES", BLOCK)
    assert stops >= 3
    assert tiering.check(tmp_path / "out" / "layout", "full") == []
    tree = tree_bytes(tmp_path / "out" / "layout")
    assert {n: b for n, b in tree.items() if n not in ("manifest.json", MOVED)} == {
        n: b for n, b in expected[0].items() if n not in ("manifest.json", MOVED)
    }
    assert sorted(len(s) for s in stripes(tmp_path / "out/layout")) == expected[1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["layout"]
    assert not [path for disk in disks for path in disk.glob(".*")]


@pytest.mark.parametrize("place", ["tiers/paper/cpu", "pages/ssd-0", "graph/order/nodes/author/score", "ssd"])
@pytest.mark.parametrize("count", [2, 3])
def test_damage_is_not_copied(made, tmp_path, place, count):
    shutil.copytree(made / "layout", tmp_path / "layout")
    file = Layout.open(made / "layout").images[1] if place == "ssd" else tmp_path / "layout" / place
    kept = file.read_bytes()
    flip(file, 8 * len(kept) - 3)
    try:
        restriped = count == 3 and place == "pages/ssd-0"
        if restriped:  # made anew from the pages
            tiering.copy(tmp_path / "layout", tmp_path / "out", ssd=[tmp_path / str(number) for number in range(count)])
            assert tiering.check(tmp_path / "out", "full") == []
        else:
            with pytest.raises(FormatError, match=file.name):
                tiering.copy(tmp_path / "layout", tmp_path / "out", ssd=[tmp_path / str(n) for n in range(count)])
            assert not (tmp_path / "out").exists()
    finally:
        file.write_bytes(kept)


def test_moved_stripe_files_are_linked_again(made, tmp_path, tiering_cli):
    disks = [tmp_path / "x", tmp_path / "y"]
    tiering.copy(made / "layout", tmp_path / "layout", ssd=disks)
    digest = Layout.open(tmp_path / "layout").digest
    (tmp_path / "x").rename(tmp_path / "z")
    refused = tiering_cli("info", tmp_path / "layout").refused("if it was moved", "tiering copy --relink")
    assert "ssd-0" in refused
    tiering_cli("copy", "--relink", tmp_path / "layout", "--ssd", tmp_path / "y").refused("ssd-0-of-2", "found none")
    found = tiering_cli("copy", "--relink", tmp_path / "layout", "--ssd", tmp_path / "z", "--ssd", tmp_path / "y")
    assert found.code == 0, found.err
    assert tiering.check(tmp_path / "layout", "full") == []
    assert Layout.open(tmp_path / "layout").digest == digest
    image = Layout.open(tmp_path / "layout").images[0]
    assert image.is_relative_to(tmp_path / "z")
    flip(image, 99)
    tiering_cli("copy", "--relink", tmp_path / "layout", "--ssd", tmp_path / "z", "--ssd", tmp_path / "y").refused(
        "checksum differs"
    )
    shutil.rmtree(image.parent)
    (tmp_path / "z/ssd-0-of-2").write_bytes(b"short")
    tiering_cli("copy", "--relink", tmp_path / "layout", "--ssd", tmp_path / "z", "--ssd", tmp_path / "y").refused(
        "expected a file of", "has 5"
    )
    tiering_cli("copy", "--relink", tmp_path / "layout").refused("--relink LAYOUT --ssd DIR")


def test_stripe_files_in_the_layout(made, tmp_path):
    """They are part of it, are replaced with it, and may not lie where its other files do."""
    inner = Layout.open(made / "inner")
    recorded = json.loads((made / "inner/manifest.json").read_text())["external"]
    assert [entry["path"] for entry in recorded.values()] == ["nvme/ssd-0-of-1"]
    assert inner.images == [made / "inner/nvme/ssd-0-of-1"]
    for folder in ("", "graph", "tiers/x", "pages"):
        with pytest.raises(InputError, match="directory of the layout's own files"):
            tiering.copy(made / "layout", tmp_path / "out", ssd=tmp_path / "out" / folder)
    tiering.copy(made / "inner", tmp_path / "out", ssd=tmp_path / "outside")
    tiering.copy(made / "inner", tmp_path / "out", force=True)
    assert tiering.check(tmp_path / "out", "full") == []
    assert not list((tmp_path / "outside").rglob("ssd-*")), "stripe files of what was replaced go with it"


@pytest.mark.parametrize("text", ["{", "[]", '{"ssd-0": 3}', '{"ssd-0": "../x"}', '{"other": "x"}'])
def test_new_paths_that_are_none(made, tmp_path, text):
    tiering.copy(made / "layout", tmp_path / "copy")
    (tmp_path / "copy" / MOVED).write_text(text)
    with pytest.raises(FormatError, match=r"external\.json: expected the paths"):
        tiering.open(tmp_path / "copy")


def test_what_cannot_be_copied(made, tmp_path, tiering_cli):
    layout = made / "layout"
    tiering_cli("copy", layout).refused("source and a destination")
    tiering_cli("copy", made / "graph", tmp_path / "x", "--ssd", tmp_path / "y").refused("no stripe files")
    many = [word for number in range(99) for word in ("--ssd", tmp_path / f"y{number}")]
    tiering_cli("copy", layout, tmp_path / "x", *many).refused("expected at most", "directories")
    tiering_cli("copy", layout, layout / "x").refused("apart from")
    tiering_cli("copy", layout, tmp_path / "x", "--verify", "some").refused("verify")
    tiering_cli("copy", layout, tmp_path / "x", "--ssd", layout / "y").refused("lies in")
    tiering_cli("copy", layout, "s3://user:secret@bucket/x").refused("has credentials")
    tiering_cli("copy", layout, "nowhere://bucket/x").refused("scheme")
    tiering_cli("copy", tmp_path / "none", tmp_path / "x").refused("no such file")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("mine")
    tiering_cli("copy", layout, tmp_path / "mine").refused("already exists")
    tiering_cli("copy", layout, tmp_path / "mine", "--force").refused("did not write")
    dry = tiering_cli("copy", layout, tmp_path / "x", "--ssd", tmp_path / "y", "--dry-run", "--json")
    assert sum(json.loads(dry.out)["stages"][0]["left"].values()) == Layout.open(layout).total_bytes()
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()


# Object stores


@pytest.mark.parametrize("name", ["graph", "scores", "layout", "inner"])
def test_there_and_back(made, tmp_path, s3, name, tiering_cli):
    original = tiering.open(made / name)
    sent = tiering.copy(made / name, f"{s3}/some/{name}", verify="full")
    assert sent.digest == original.digest
    assert COPYING not in RemoteFolder(f"{s3}/some/{name}").files()
    assert tiering_cli("check", f"{s3}/some/{name}").code == 0
    tiering_cli("check", f"{s3}/some/{name}", "--full").refused("while they are copied")
    if name != "scores":
        shown, local = tiering_cli("info", f"{s3}/some/{name}"), tiering_cli("info", made / name)
        assert shown.code == 0
        assert len(shown.out.splitlines()) == len(local.out.splitlines())
    back = tiering.copy(f"{s3}/some/{name}", tmp_path / "back")
    assert back.digest == original.digest
    assert tiering.check(tmp_path / "back", "full") == []
    tiering.copy(f"{s3}/some/{name}", f"{s3}/other/{name}")
    assert RemoteFolder(f"{s3}/other/{name}").files() == RemoteFolder(f"{s3}/some/{name}").files()
    if "ssd" in str(RemoteFolder(f"{s3}/some/{name}").files()):
        tiering.copy(f"{s3}/some/{name}", tmp_path / "three", ssd=[tmp_path / f"d{number}" for number in range(3)])
        assert all_rows(tmp_path / "three") == all_rows(made / name)


def test_a_stopped_copy_to_a_store_goes_on(made, s3, monkeypatch):
    """What is stored is not sent again, a partial copy never opens, and no other artifact takes its place."""
    write, sent = RemoteFolder.write, []
    target = f"{s3}/layout"
    while True:
        left = [9]

        def failing(self, name, pieces, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            sent.append(name)
            write(self, name, pieces)

        monkeypatch.setattr(RemoteFolder, "write", failing)
        try:
            tiering.copy(made / "layout", target)
            break
        except Killed:
            with pytest.raises(MissingError):
                copies.open_artifact(target)
            with pytest.raises(ExistsError, match="unfinished copy of another"):
                tiering.copy(made / "graph", target)
    files = [name for name in sent if not name.endswith((".json", "unread_files"))]
    assert len(files) == len(set(files)), "each is sent once"
    assert copies.open_artifact(target).digest == Layout.open(made / "layout").digest


def test_destinations_that_hold_something(made, s3):
    folder = RemoteFolder(f"{s3}/x")
    folder.write("notes.txt", [b"mine"])
    for force in (False, True):
        with pytest.raises(ExistsError, match=r"notes\.txt, which no copy wrote"):
            tiering.copy(made / "scores", f"{s3}/x", force=force)
    folder.remove("notes.txt")
    tiering.copy(made / "graph", f"{s3}/x")
    with pytest.raises(ExistsError, match="contains an artifact"):
        tiering.copy(made / "scores", f"{s3}/x")
    tiering.copy(made / "scores", f"{s3}/x", force=True)
    expected = {name: len(data) for name, data in tree_bytes(made / "scores").items()}
    assert folder.files() == expected
    with pytest.raises(MissingError, match="there is no bucket s3://bucket-none"):
        tiering.copy(made / "scores", "s3://bucket-none/x")
    with pytest.raises(InputError, match="omit `ssd`"):
        tiering.copy(made / "layout", f"{s3}/y", ssd="z")


def test_what_a_store_gives_back(made, tmp_path, s3, monkeypatch):
    """Other bytes than were sent, a file that was cut, and one that is gone are noticed, and nothing is left."""
    tiering.copy(made / "layout", f"{s3}/layout")
    folder = RemoteFolder(f"{s3}/layout")
    data = folder.read("tiers/paper/cpu").copy()
    data[5] ^= 1
    folder.write("tiers/paper/cpu", [data])
    with pytest.raises(FormatError, match="tiers/paper/cpu"):
        tiering.copy(f"{s3}/layout", tmp_path / "back")
    folder.write("tiers/paper/cpu", [data[:-1]])
    assert "expected" in str(tiering.check(f"{s3}/layout")[0])
    with pytest.raises(FormatError, match="tiers/paper/cpu"):
        tiering.copy(f"{s3}/layout", tmp_path / "back")
    folder.remove("tiers/paper/cpu")
    with pytest.raises(FormatError, match="does not exist"):
        tiering.copy(f"{s3}/layout", tmp_path / "back")
    assert not list(tmp_path.iterdir())
    write = RemoteFolder.write

    def altering(self, name, pieces):
        write(self, name, [np.zeros_like(piece) if name.endswith("cpu") else piece for piece in pieces])

    def cutting(self, name, pieces):
        write(self, name, [piece[:-1] if name.endswith("cpu") else piece for piece in pieces])

    monkeypatch.setattr(RemoteFolder, "write", cutting)
    with pytest.raises(StorageError, match=r"tiers/paper/cpu: expected \d+ bytes, found \d+"):
        tiering.copy(made / "layout", f"{s3}/other")
    monkeypatch.setattr(RemoteFolder, "write", altering)
    with pytest.raises(StorageError, match="returns other bytes"):
        tiering.copy(made / "layout", f"{s3}/other", verify="full")


def test_no_credentials_are_recorded(made, tmp_path, s3):
    tiering.copy(made / "graph", f"{s3}/graph?region=us-east-1")
    tiering.copy(f"{s3}/graph?region=us-east-1", tmp_path / "graph")
    assert not [name for name, data in tree_bytes(tmp_path / "graph").items() if b"region" in data or b"s3:" in data]


def test_a_store_that_ends_in_the_middle(made, tmp_path, monkeypatch):
    """The copy says so, and the same command goes on once the store is back."""
    from object_store import ObjectStore

    store = ObjectStore()
    try:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        bucket = store.make_bucket()
        tiering.copy(made / "layout", f"{bucket}/layout")
        put, left = FileWriter.put, [20]

        def ending(self, data, offset):
            left[0] -= 1
            if left[0] == 0:
                store.stop()
            put(self, data, offset)

        monkeypatch.setattr(FileWriter, "put", ending)
        with pytest.raises(StorageError, match="run the same command again"):
            tiering.copy(f"{bucket}/layout", tmp_path / "back")
        assert (tmp_path / ".back.partial").is_dir()
        assert not (tmp_path / "back").exists()
    finally:
        store.stop()


def test_a_store_that_refuses(made, tmp_path, monkeypatch, tiering_cli):
    """The message names the store and says where credentials come from; a busy store is worth another try."""
    from refusing_store import refusing_store

    for code, words in ((403, "the store refuses access"), (503, "run the same command again")):
        with refusing_store(code) as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            tiering_cli("info", "s3://bucket/x").refused("s3://bucket/x", words)
            tiering_cli("copy", made / "scores", "s3://bucket/x").refused("s3://bucket/x", words)
            tiering_cli("copy", "s3://bucket/x", tmp_path / "x").refused("s3://bucket/x", words)
    assert not list(tmp_path.iterdir())


GOLDEN = Path(__file__).parents[1] / "formats/golden"


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_every_version_is_copied(tmp_path, monkeypatch, name):
    """Artifacts of earlier versions keep their manifests."""
    monkeypatch.undo()
    copied = tiering.copy(GOLDEN / name, tmp_path / name, features=False)
    assert (tmp_path / name / "manifest.json").read_bytes() == (GOLDEN / name / "manifest.json").read_bytes()
    assert copied.problems("full") == []


def test_what_an_earlier_run_stored_is_compared_if_asked(made, s3, monkeypatch):
    write, target = RemoteFolder.write, f"{s3}/layout"

    def failing(self, name, pieces):
        if name.endswith("manifest.json"):
            raise Killed
        write(self, name, pieces)

    monkeypatch.setattr(RemoteFolder, "write", failing)
    with pytest.raises(Killed):
        tiering.copy(made / "layout", target)
    monkeypatch.setattr(RemoteFolder, "write", write)
    folder = RemoteFolder(target)
    original = folder.read("tiers/paper/cpu").copy()
    folder.write("tiers/paper/cpu", [original[::-1].copy()])
    tiering.copy(made / "layout", target, verify="full")
    assert np.array_equal(folder.read("tiers/paper/cpu"), original)
