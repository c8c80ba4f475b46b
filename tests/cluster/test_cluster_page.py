"""The tables of docs/cluster.md are what the plan says."""

from __future__ import annotations

import re
from pathlib import Path

from tiering.cluster.session import ClusterOptions
from tiering.pipeline import predict_run
from tiering.plan import Forecast
from tiering.task_steps import TaskSums
from tiering.units import format_bytes, format_seconds

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def rows(forecast: Forecast) -> list[str]:
    """Lines of the page: each step, and what all of them take."""
    lines = []
    for plan in forecast.plans:
        sums = TaskSums(plan.tasks)
        columns = (sum(getattr(step, key) for step in plan.tasks) for key in ("read", "taken", "left", "written"))
        sizes = " | ".join(map(format_bytes, (sums.memory, *columns)))
        lines.append(f"| {plan.stage} | {sums.tasks:,} | {sizes} |")
    found = forecast.tasks
    assert found is not None
    moved, store = format_bytes(found.moved), format_bytes(forecast.store)
    time, machines = format_seconds(found.seconds), found.machines
    return [
        *lines,
        f"In all, {moved} are moved, {time} at the least on {machines}; the store holds {store} at its fullest.",
    ]


def test_tables(tmp_path, monkeypatch):
    page = PAGE.read_text()
    for name, text in re.findall(r'```toml title="([a-z.-]+)"\n(.*?)```', page, re.DOTALL):
        (tmp_path / name).write_text(text)
    chain = (tmp_path / "chain.toml").read_text()
    (tmp_path / "big.toml").write_text(chain.replace('"igb-full"', '"ten-billion.toml"'))
    monkeypatch.chdir(tmp_path)
    asked = {"chain.toml": ("8x64GiB", "8GiB"), "big.toml": ("64x256GiB", "32GiB")}
    for name, (machines, memory) in asked.items():
        cluster = ClusterOptions("ray", workers=machines, task_memory=memory)
        for line in rows(predict_run(name, cluster=cluster)):
            assert line in page.splitlines(), line
        assert f"--workers {machines} --task-memory {memory}" in page
    many = ", ".join(f'"ssd{number}"' for number in range(64))
    (tmp_path / "big.toml").write_text(re.sub(r"(?m)^ssd = .*", f"ssd = [{many}]", (tmp_path / "big.toml").read_text()))
    found = predict_run("big.toml", cluster=cluster).tasks
    assert found is not None and f"with 64 directories of `--ssd` it is {format_seconds(found.seconds)}." in page
