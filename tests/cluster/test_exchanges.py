"""What is decided of exchanges without a cluster: what is refused, what counts as there, how a task hands on a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiering.cluster.exchanges import Left
from tiering.cluster.exchanges import ray as through_ray
from tiering.cluster.exchanges.ray import RayExchange, RayTaskExchange
from tiering.cluster.manifests import LostError
from tiering.cluster.segments import SegmentWriter, part_digest
from tiering.cluster.session import Cluster, ClusterOptions
from tiering.cluster.stores import open_store
from tiering.errors import InputError, InternalError, StorageError


def manifest(index: int, parts: int, key: str = "key") -> dict[str, Any]:
    return {"stage": "cut", "index": index, "segment": {"key": key, "parts": parts}}


def test_options() -> None:
    assert ClusterOptions("ray", exchange="ray").exchange == "ray"
    assert ClusterOptions("ray").exchange == "store"
    with pytest.raises(InputError, match="exchange: expected store or ray, found 'plasma'"):
        ClusterOptions("ray", exchange="plasma")
    with pytest.raises(InputError, match="exchange ray: only with executor ray"):
        ClusterOptions("local", exchange="ray")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--exchange", "ray"], "--exchange: has no effect without --executor"),
        (["--exchange", "ray", "--executor", "local"], "exchange ray: only with executor ray"),
    ],
)
def test_options_of_commands(
    tiering_cli: Any, tiny_dataset: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    assert words in tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph", *options).err
    assert not (tmp_path / "graph").exists()


def test_a_cluster_started_here_has_room_for_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("tiering.cluster.session.RayExecutor", lambda *each, **more: asked.append(more))
    Cluster(ClusterOptions("ray", workers=3, exchange="ray"))._begun()
    assert asked == [{"workers": 3, "threads": 1, "memory": None}]


def test_too_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(through_ray, "MOST_PARTS", 20)
    exchange = RayExchange()
    exchange.keep(4, manifest(2, 5), Left([object()] * 5))
    exchange.clear()
    words = "expected 20 parts at the most, found 5 tasks of cut with 5 each beside 0 .*--exchange store.*--task-memory"
    with pytest.raises(InputError, match=words):
        exchange.keep(5, manifest(2, 5), Left([object()] * 5))


def test_what_counts_as_there() -> None:
    exchange = RayExchange()
    assert not exchange.there(manifest(0, 2))
    assert exchange.there(manifest(0, 0))  # a task that has written a file and hands on nothing
    exchange.keep(2, manifest(0, 2), Left([object()] * 2))
    assert exchange.there(manifest(0, 2))
    assert not exchange.there(manifest(1, 2))
    exchange.clear()
    assert not exchange.there(manifest(0, 2))
    with pytest.raises(LostError, match=r"task 0 of cut has to be run again: .* held by a process that has ended"):
        exchange.part("cut", 0, 1)


def test_a_task_finds_parts_by_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of Ray's are here what they lead to."""
    monkeypatch.setattr(through_ray, "_get", lambda stage, index, what, key, reference: reference)
    parts = {(task, part): {"value": np.array([task, part])} for task in (0, 2) for part in (0, 1)}
    whole = {where: (part_digest(columns), columns) for where, columns in parts.items()}
    columns = [[whole[0, part], None, whole[2, part]] for part in (0, 1)]
    exchange: RayTaskExchange[str] = RayTaskExchange({"cut": (["a", "", "c"], columns)})
    for (task, part), expected in parts.items():
        assert exchange.part("cut", task, part)["value"].tolist() == expected["value"].tolist()
    for task in (1, 3):
        with pytest.raises(LostError, match=f"task {task} of cut has to be run again"):
            exchange.part("cut", task, 0)
    with pytest.raises(InternalError, match="reads order, which its stage does not name"):
        exchange.part("order", 0, 0)
    parts[2, 1]["value"][0] ^= 1
    with pytest.raises(LostError, match=r"task 2 of cut .*part 1 is not what was written \(checksum\)") as raised:
        exchange.part("cut", 2, 1)
    assert raised.value.key == "c"


def handed_on(exchange: RayTaskExchange[str], found: list[Any]) -> str:
    """What a task does that fills the same memory again for every part."""
    memory = np.empty(4, np.int32)
    with exchange.writer("key", 0) as writer:
        for number in range(3):
            memory[:] = number
            writer.add({"value": memory[: number + 1], "wide": np.full((number + 1, 2), number, np.float32)})
        found.append(writer.finish())
    return "done"


def test_parts_are_handed_on_one_by_one(tmp_path: Path) -> None:
    """The manifest is that of a segment in a store, and a part is taken before its memory is used again."""
    exchange: RayTaskExchange[str] = RayTaskExchange({})
    found: list[Any] = []
    taken = []
    for said in exchange.run(lambda: handed_on(exchange, found)):
        if isinstance(said, tuple):
            said = said[0], {name: column.copy() for name, column in said[1].items()}
        taken.append(said)
    assert taken.pop() == "done"
    assert [columns["value"].tolist() for _, columns in taken] == [[0], [1, 1], [2, 2, 2]]
    assert [digest for digest, _ in taken] == [part_digest(columns) for _, columns in taken]
    with open_store(str(tmp_path)).writer("key", 0) as out:
        writer = SegmentWriter("key", out)
        for _, columns in taken:
            writer.add(columns)
        assert found == [writer.finish()]


def test_a_task_whose_parts_nobody_takes_ends() -> None:
    exchange: RayTaskExchange[str] = RayTaskExchange({})
    ended: list[str] = []

    def make() -> str:
        with pytest.raises(StorageError, match="Ray does not take"):
            handed_on(exchange, [])
        ended.append("ended")
        return ""

    handing = exchange.run(make)
    next(handing)
    handing.close()
    exchange._parts.get(timeout=10)
    assert ended == ["ended"]
