"""Jobs of tasks on threads of this process: what is skipped, tried again, made again, refused; crashes in a commit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cluster_jobs
import numpy as np
import pytest
from child_process import in_child
from cluster_jobs import MAPS, PARTS, run_job, stages
from damage import flip

from tiering.errors import InputError, StorageError
from tiering.run import job as running
from tiering.run import step as tasks_module
from tiering.run.job import Counters, Job, RetryOptions
from tiering.run.pieces import ShuffleFile, plan_key, read_record, record_key
from tiering.run.step import Call, ConflictError, LocalExecutor, Step, plan_digest, run_attempt
from tiering.run.store import ObjectWriter, Store

ALL = MAPS + PARTS + 1
QUICK = RetryOptions(poll=0.02)


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store"))


@pytest.fixture
def executor():
    local = LocalExecutor(2)
    yield local
    local.close()


@pytest.fixture
def plain(tmp_path, executor):
    """The digest of a run to which nothing happens."""
    return run_job(tmp_path / "plain", executor)


def shuffle_file(store: Store, stage: str, index: int) -> Path:
    manifest = read_record(store, "job", stage, index)
    assert manifest is not None
    return Path(store.url) / manifest["shuffle"]["key"]


def files(store: Store) -> set[str]:
    return {str(path.relative_to(store.url)) for path in Path(store.url).rglob("*") if path.is_file()}


def test_the_result_is_that_of_sorting_everything(store, executor):
    counters = Counters()
    run_job(store, executor, counters=counters)
    job = Job(store, "job", executor)
    for stage in stages():
        done = job.run(stage)
    for part, values in enumerate(cluster_jobs.expected()):
        assert job.read("order", part)["value"].tolist() == values
    assert done[0]["facts"]["sum"] == sum(map(sum, cluster_jobs.expected()))
    assert counters == Counters(run=ALL)


def test_what_is_done_is_skipped(store, executor, plain):
    first, second = Counters(), Counters()
    run_job(store, executor, counters=first)
    before = files(store)
    assert run_job(store, executor, counters=second) == plain
    assert (first.run, second.run, second.skipped) == (ALL, 0, ALL)
    assert files(store) == before


def test_what_this_run_has_done_is_not_from_an_earlier_one(store, executor, plain):
    counters = Counters()
    job = Job(store, "job", executor, counters=counters)
    for _ in range(2):
        for stage in stages():
            job.run(stage)
    assert counters == Counters(run=ALL)


def test_tasks_of_a_job_share_what_they_open(store, executor):
    first, other = (Job(store, name, executor) for name in ("job", "other"))
    made = [record["facts"]["made"] for record in first.run(Step("share", "cluster_jobs:share", 5, {"of": "a"}))]
    again = [record["facts"]["made"] for record in first.run(Step("again", "cluster_jobs:share", 5, {"of": "a"}))]
    theirs = [record["facts"]["made"] for record in other.run(Step("share", "cluster_jobs:share", 5, {"of": "a"}))]
    assert len({*made, *again}) == 1 == len({*theirs}) and made[0] != theirs[0]


def test_a_plan_that_differs_is_refused(store, executor):
    Job(store, "job", executor).run(Step("one", "cluster_jobs:nothing", 2))
    with pytest.raises(ConflictError, match=r"plans/one\.json is a different plan.*remove the job's folder"):
        Job(store, "job", executor).run(Step("one", "cluster_jobs:nothing", 3))


def test_failures_of_storage_are_tried_again(store, executor, tmp_path):
    counters = Counters()
    job = Job(store, "job", executor, retry=QUICK, counters=counters)
    job.run(Step("fail", "cluster_jobs:fail", 3, {"folder": str(tmp_path), "times": 2}))
    assert (counters.run, counters.retried) == (3, 6)
    assert all("the disk says no" in error for error in counters.errors)


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_task_that_always_fails_ends_the_job(store, executor, tmp_path, attempts, capfd):
    stage = Step("fail", "cluster_jobs:fail", 1, {"folder": str(tmp_path), "times": 100})
    with pytest.raises(StorageError, match="task 0: the disk says no"):
        Job(store, "job", executor, retry=RetryOptions(attempts, poll=0.02)).run(stage)
    assert len(list(tmp_path.glob("failed-0.*"))) == attempts
    assert ("failed 3 times" in capfd.readouterr().err) == (attempts == 3)


def test_errors_of_the_input_are_not_tried_again(store, executor, tmp_path):
    stage = Step("fail", "cluster_jobs:fail", 1, {"folder": str(tmp_path), "times": 100, "kind": "input"})
    with pytest.raises(InputError, match="expected another input"):
        Job(store, "job", executor, retry=QUICK).run(stage)
    assert len(list(tmp_path.glob("failed-0.*"))) == 1


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": lambda file: flip(file, 4 * file.stat().st_size),
    "cut short": lambda file: os.truncate(file, file.stat().st_size - 40),
    "empty": lambda file: os.truncate(file, 0),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_only_what_is_lost_is_made_again(store, executor, plain, damage):
    """Between two stages, while the job runs: nobody has looked at the segment since it was written."""
    counters = Counters()
    job = Job(store, "job", executor, retry=QUICK, counters=counters)
    cut, order, add = stages()
    first = job.run(cut)
    DAMAGES[damage](shuffle_file(store, "cut", 4))
    done = [job.run(order), job.run(add)]
    again = [read_record(store, "job", "cut", index) for index in range(MAPS)]
    assert [index for index in range(MAPS) if again[index] != first[index]] == [4]
    assert cluster_jobs.digest(job, [again, *done]) == plain
    assert (counters.recovered, counters.run, counters.retried >= 1) == (1, ALL + 1, True)
    assert any("task 4 of cut must run again" in error for error in counters.errors)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_nobody_reads_any_more_is_dropped(store, executor, plain, damaged):
    """It counts as done, and is made again if what was made of it is lost."""
    run_job(store, executor)
    cut, order, add = stages()
    counters = Counters()
    job = Job(store, "job", executor, retry=QUICK, counters=counters)
    job.run(order if (job.run(cut) and damaged) else cut)
    job.release(cut)
    assert not [name for name in files(store) if name.startswith("job/cut/") and name.endswith(".shuffle")]
    if damaged:
        DAMAGES["flipped"](shuffle_file(store, "order", 0))
        store.remove(record_key("job", "add", 0))
    again = Job(store, "job", executor, retry=QUICK, counters=counters)
    done = [again.run(stage) for stage in (cut, order, add)]
    assert (counters.run, counters.recovered) == ((MAPS + 2, 2) if damaged else (0, 0))
    if damaged:
        whole = [
            [read_record(store, "job", name, i) for i in range(n)] for name, n in (("cut", MAPS), ("order", PARTS))
        ]
        assert cluster_jobs.digest(again, [*whole, done[2]]) == plain


@pytest.mark.parametrize("damage", ["cut short", "removed"])
def test_a_run_after_sees_what_is_gone(store, executor, plain, damage):
    run_job(store, executor)
    DAMAGES[damage](shuffle_file(store, "order", 1))
    counters = Counters()
    assert run_job(store, executor, counters=counters) == plain
    assert (counters.run, counters.skipped) == (1, ALL - 1)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_is_made_again(store, executor, plain, damage):
    run_job(store, executor)
    DAMAGES[damage](Path(store.url) / record_key("job", "cut", 2))
    counters = Counters()
    assert run_job(store, executor, counters=counters) == plain
    assert (counters.run, counters.skipped) == (1, ALL - 1)
    assert len(list(Path(store.url).glob("job/cut/*.json"))) == MAPS


@pytest.mark.parametrize("torn", [b"", b"\0" * 40, b'{"fun'])
def test_a_plan_that_a_power_cut_has_torn_is_written_again(store, executor, plain, torn):
    run_job(store, executor)
    (Path(store.url) / plan_key("job", "order")).write_bytes(torn)
    counters = Counters()
    assert run_job(store, executor, counters=counters) == plain
    assert (counters.run, counters.skipped) == (0, ALL)


def test_two_runs_of_other_bytes_are_a_conflict(store):
    stage = Step("differ", "cluster_jobs:differ", 1)
    first = run_attempt(Call(store.url, "job", stage, 0, plan_digest(stage)))
    with pytest.raises(ConflictError, match="task 0 of differ ran twice and wrote different bytes"):
        run_attempt(Call(store.url, "job", stage, 0, plan_digest(stage)))
    assert read_record(store, "job", "differ", 0) == first
    assert len([name for name in files(store) if name.endswith(".shuffle")]) == 1


def test_a_second_run_of_the_same_bytes_leaves_nothing(store):
    first = run_attempt(Call(store.url, "job", stages()[0], 0, plan_digest(stages()[0])))
    before = files(store)
    assert run_attempt(Call(store.url, "job", stages()[0], 0, plan_digest(stages()[0]))) == first
    assert files(store) == before


# --- crashes in a commit -------------------------------------------------------------------------------------------


def die(*arguments: Any, **options: Any) -> Any:
    os._exit(7)


def half(writer: ObjectWriter, data: Any) -> None:
    os.write(writer._fd, np.ascontiguousarray(data).tobytes()[:100])
    os._exit(7)


def after(plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        plain(*arguments, **options)
        os._exit(7)

    return call


CRASHES: dict[str, tuple[Any, str, Any, int]] = {
    "before writing": (ObjectWriter, "write", die, 0),
    "half written": (ObjectWriter, "write", half, 0),
    "written, not synced": (ObjectWriter, "__exit__", die, 0),
    "after the segment": (tasks_module, "_commit", die, 0),
    "before the claim's link": (os, "link", die, 0),
    "after the claim's link": (os, "link", after(os.link), 1),
    "after the manifest": (Store, "put_if_absent", after(Store.put_if_absent), 1),
}
"""What is replaced in the child that dies, by what, and how many manifests it leaves."""


@pytest.mark.parametrize("place", CRASHES)
def test_a_crash_anywhere_in_a_commit(store, executor, plain, place):
    owner, name, deed, left = CRASHES[place]

    def work() -> None:
        setattr(owner, name, deed)
        run_attempt(Call(store.url, "job", stages()[0], 3, plan_digest(stages()[0])))

    with pytest.raises(AssertionError, match="ended with 7"):
        in_child(work)
    found = read_record(store, "job", "cut", 3)
    assert (found is not None) == bool(left)
    counters = Counters()
    assert run_job(store, executor, counters=counters) == plain
    assert (counters.run, counters.skipped) == (ALL - left, left)


# --- stragglers ----------------------------------------------------------------------------------------------------


def test_a_copy_is_sent_after_a_straggler(store, executor, plain, tmp_path):
    counters = Counters()
    hold = cluster_jobs.hold(tmp_path / "held", "cut-2", copied=True)
    assert run_job(store, executor, hold, retry=replace(QUICK, straggler_floor=0.2), counters=counters) == plain
    assert counters.copies >= 1 and (counters.run, counters.retried) == (ALL, 0)
    assert (tmp_path / "held" / "cut-2.go").exists()


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_stages_are_told_of_in_logs(store, executor, capfd, monkeypatch, seconds):
    """Each once when it has ended, and while it runs from time to time; what an earlier run has done is counted."""
    monkeypatch.setattr(running, "REPORT_SECONDS", seconds)
    run_job(store, executor)
    for index in (1, 4):
        store.remove(record_key("job", "cut", index))
    job = Job(store, "job", executor, retry=QUICK)
    job.expect(3)
    job.broadcast("given", {"value": np.arange(3)})
    capfd.readouterr()
    for stage in stages():
        job.run(stage)
    said = capfd.readouterr().err.splitlines()
    ends = [f"cut: step 1 of 3, {MAPS} of {MAPS} tasks", f"order: step 2 of 3, {PARTS} of {PARTS} tasks"]
    assert [line for line in said if line in ends] == ends or seconds == 0.0
    assert said[-1] == "add: step 3 of 3, 1 of 1 tasks"
    assert len(said) == 3 if seconds else len(said) > 3  # one more at least, while the two tasks run


def test_a_finished_job_is_removed(store, executor):
    job = Job(store, "job", executor)
    for stage in stages():
        job.run(stage)
    segment = ShuffleFile(**job.run(stages()[0])[0]["shuffle"])
    assert store.size(segment.key) == segment.nbytes
    job.remove()
    assert not Path(store.url).exists()


class Together:
    """Counts tasks that run side by side; each waits for another."""

    lock, pair = threading.Lock(), threading.Barrier(2)
    running = most = 0

    @classmethod
    def task(cls, context):
        with cls.lock:
            cls.running += 1
            cls.most = max(cls.most, cls.running)
        cls.pair.wait(60)
        with cls.lock:
            cls.running -= 1


def together(context):
    Together.task(context)


@pytest.mark.parametrize(("memory", "slots"), [(5 << 20, 2), (1 << 20, 1), (None, 4)])
def test_no_more_tasks_run_than_memory_has_room_for(store, memory, slots, capfd):
    """What a step's tasks take bounds how many run side by side; one always does."""
    local = LocalExecutor(4, memory)
    Together.pair, Together.most = threading.Barrier(min(2, slots)), 0
    Job(store, "job", local).run(Step("move", f"{__name__}:together", 8, memory=2 << 20))
    assert 1 <= Together.most <= slots == local.slots
    said = capfd.readouterr().err
    assert (f"note: move: {slots} of 4 workers run at a time: a task takes up to 2 MiB" in said) == (slots < 4)
    Job(store, "next", local).run(Step("small", "cluster_jobs:nothing", 2))
    assert local.slots == 4, "the next step may have more"
    local.close()
