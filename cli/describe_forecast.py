"""What a dry run prints: steps of each stage with memory and disk, and its time; what does not fit is an error then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiering.units import format_bytes, format_seconds

from .output import print_fields, print_json, print_line, print_table

if TYPE_CHECKING:
    from tiering.plan import Forecast, StagePlan

COLUMNS = ("step", "how", "peak memory", "read", "written", "scratch", "left")


def print_forecast(forecast: Forecast, as_json: bool) -> None:
    """Print a forecast, one JSON document or a table per stage; raises `StorageError` then if a disk is too small."""
    from tiering.plan import DISK_RATE, EDGE_SECONDS

    if as_json:
        print_json(forecast.to_json())
    else:
        for plan in forecast.plans:
            print_table(f"{plan.stage} -> {plan.out}", COLUMNS, _rows(plan), left=2)
            if plan.steps:
                print_line(f"time: {_about(plan.seconds)}")
            for note in plan.notes:
                print_line(f"note: {note}")
        if len(forecast.plans) > 1:
            left = format_bytes(sum(plan.disk_left for plan in forecast.plans))
            print_fields({"time": _about(forecast.seconds), "peak memory": format_bytes(forecast.memory), "left": left})
        print_line("nothing was run; read counts what is not in the page cache, memory all that the process holds;")
        print_line(
            f"time is an order of magnitude: disks of {DISK_RATE / 1e9:g} GB/s and {1e9 * EDGE_SECONDS:g} ns for an "
            "edge and thread are assumed"
        )
    forecast.require_space()


def _rows(plan: StagePlan) -> list[tuple[str, ...]]:
    if not plan.steps:
        return [("all", "is there already", *(["-"] * 5))]

    def row(name: str, how: str, *sizes: int) -> tuple[str, ...]:
        return (name, how, *(format_bytes(size) if size else "-" for size in sizes))

    steps = [
        (*row(s.name, s.how, plan.held + s.memory, s.disk_read, s.disk_written, s.disk_scratch), "") for s in plan.steps
    ]
    total = row("total", "", plan.memory, plan.disk_read, plan.disk_written, plan.disk_scratch, plan.disk_left)
    return [*steps, total]


def _about(seconds: float) -> str:
    return f"about {format_seconds(seconds)}" if seconds >= 0.95 else "less than a second"
