"""Items come to their places as one who deals them out by hand would lay them, whoever moves them, in any memory."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toy_datasets import Leaves

from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter
from tiering.formats.features import FeatureTable
from tiering.reorder.arrays import PieceSizes
from tiering.reorder.table_reader import TableReader
from tiering.run import move, move_tasks
from tiering.run.files import whole_files
from tiering.run.grid import Grid
from tiering.run.job import Job
from tiering.run.move import Items, plan_moves
from tiering.run.move_tasks import TaskItems, move_steps, run_moves, task_files
from tiering.run.places import Lane, Places
from tiering.run.step import LocalExecutor
from tiering.run.store import Store

BLOCK = 64
LEFT = {"in order": 0, "gather": 0, "passes": 2.0, "pieces": 0.1}
"""How rows are read, and the memory for windows: multiples of all bytes."""


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "BLOCK_BYTES", BLOCK)
        yield


@st.composite
def places_of_rows(draw):
    """Rows of up to three lanes: one file, files by turns, units of several rows by turns, after units of others.

    Bytes of others come before.
    """
    row_bytes, counts = draw(st.integers(1, 90)), draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    first, lanes, sizes = 0, [], {}
    for kind, count in enumerate(counts):
        turns = draw(st.integers(1, 3)) if kind else 1
        files = range(len(sizes), len(sizes) + turns)
        base = draw(st.sampled_from([0, 0, 1, 30, 300]))
        lane = Lane(first, first + count, [*files], row_bytes, base=base)
        if kind == 2:
            stride, per_unit = row_bytes + draw(st.integers(0, 9)), draw(st.integers(1, 5))
            unit, begin = stride * per_unit + draw(st.integers(0, 20)), draw(st.integers(0, 7))
            lane = Lane(first, first + count, [*files], stride, per_unit, unit, begin, base)
        units = lane.first_unit - (-count // lane.per_unit)
        counts_of = {str(file): (units - turn + turns - 1) // turns for turn, file in enumerate(files)}
        sizes |= {file: own and base + own * lane.unit for file, own in counts_of.items()}
        first += count
        lanes.append(lane)
    kept = [file for file, nbytes in sizes.items() if nbytes]  # a file without rows is not there
    numbers = {int(file): number for number, file in enumerate(kept)}
    lanes = [Lane(**{**vars(lane), "files": [numbers.get(file, -1) for file in lane.files]}) for lane in lanes]
    return Places(row_bytes, lanes, {str(number): sizes[file] for number, file in enumerate(kept)})


def laid_by_hand(places: Places, rows: np.ndarray) -> dict[str, bytes]:
    """The content of each file; units before the first of a lane, which belong to other tables, are zeros."""
    files = {file: np.zeros(nbytes, np.uint8) for file, nbytes in places.sizes.items()}
    for lane in places.lanes:
        for rank in range(lane.first, lane.end):
            unit, slot = divmod(rank - lane.first, lane.per_unit)
            unit += lane.first_unit
            begin = lane.base + unit // len(lane.files) * lane.unit + slot * lane.stride
            files[str(lane.files[unit % len(lane.files)])][begin : begin + rows.shape[1]] = rows[rank]
    return {file: data.tobytes() for file, data in files.items()}


def make_rows(places: Places, seed: int):
    random, count = np.random.default_rng(seed), places.lanes[-1].end
    return random.integers(1, 256, (count, places.item_bytes), np.uint8), random.permutation(count)


@settings(max_examples=150, deadline=None)
@given(places=places_of_rows(), how=st.sampled_from([*LEFT]), threads=st.integers(1, 3), seed=st.integers(0, 99))
def test_in_this_process(places, how, threads, seed):
    assume(how not in ("in order", "gather") or not any(lane.base for lane in places.lanes))
    rows, old_to_new = make_rows(places, seed)
    expected = laid_by_hand(places, rows)
    new_to_old = np.argsort(old_to_new)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, count = Path(name), len(rows)
        (rows if how == "in order" else rows[old_to_new]).tofile(folder / "table")
        table = FeatureTable(folder / "table", count, places.item_bytes, "uint8")
        maps = None if how == "in order" else (new_to_old, old_to_new)
        reader = TableReader(table, maps, threads, PieceSizes(chunk=200, free=1 << 40 if how == "gather" else 0))
        items = Items(reader, places, threads)
        assert reader.reading.how == ("passes" if how == "pieces" else how)
        held = reader.reading.memory + 2 * places.item_bytes
        plan = plan_moves([(places, reader.reading)], Leaves(held + int(LEFT[how] * places.nbytes), "test"), "rows")
        if how == "pieces":
            assert plan.costs[0].cut == (places.nbytes > 3 * plan.group)
        files = [stack.enter_context(FileWriter(folder / file, nbytes)) for file, nbytes in places.sizes.items()]
        seen, before = [], 0
        for lane in places.lanes if reader.reading.ordered else ():  # other tables have written their units
            for turn, number in enumerate(lane.files):
                units = max(0, lane.first_unit - turn + len(lane.files) - 1) // len(lane.files)
                if number >= 0 and units:
                    files[number].append(np.zeros(units * lane.unit, np.uint8))
                    before += units * lane.unit
        if plan.chunk:  # a run was killed
            (folder / "scratch-0").mkdir()
            (folder / "scratch-0" / "0.shuffle").touch()
        move.move([items], files, plan, folder / "scratch", "rows", lambda number, begin, data: seen.append(data.size))
        found = {file: (folder / file).read_bytes() for file in places.sizes}
        assert sum(seen) + before == sum(places.sizes.values())
        assert {path.name for path in folder.iterdir()} == {"table", *places.sizes}
    assert found == expected


@settings(max_examples=40, deadline=None)
@given(places=places_of_rows(), parts=st.integers(1, 7), seed=st.integers(0, 99))
def test_by_tasks(places, parts, seed):
    rows, old_to_new = make_rows(places, seed)
    places = Places.from_json(json.loads(json.dumps(places.to_json())))
    expected = laid_by_hand(places, rows)

    def read(context, begin, end):
        return rows[old_to_new[begin:end]], old_to_new[begin:end], {"from": begin}

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(move_tasks, "resolve", lambda _: read)
        job = Job(Store(Path(name) / "store"), "job", LocalExecutor(2), grid=Grid(shards=parts))
        own = TaskItems("cut", places, len(rows), places.item_bytes, "here:read", {})
        sizes = {**places.sizes, "without items": 0}
        files = task_files([(file, name, "uint8", [nbytes]) for file, nbytes in sizes.items()], [own], job.grid)
        cuts, step = move_steps(job, "fill", [own], files, {})
        made = whole_files(run_moves(job, cuts, step, range(step.tasks)))
        found = {file.name: (Path(name) / file.at).read_bytes() for file in made}
    assert found == {**expected, "without items": b""}
