"""What a dry run prints: steps of each stage with memory and disk, and its time; what does not fit is an error then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiering.units import format_bytes, format_seconds

from .output import print_fields, print_json, print_line, print_table

if TYPE_CHECKING:
    from tiering.plan import Forecast, StagePlan, Step

COLUMNS = ("step", "how", "peak memory", "read", "written", "scratch", "left")


def print_forecast(forecast: Forecast, as_json: bool) -> None:
    """Print a forecast: one JSON document, or a table per stage.

    Raises
    ------
    StorageError
        After printing, if a disk is too small.
    """
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
            print_fields(
                {
                    "time": _about(forecast.seconds),
                    "peak memory": format_bytes(forecast.memory),
                    "left": format_bytes(sum(plan.disk_left for plan in forecast.plans)),
                }
            )
        print_line("nothing was run; read counts what is not in the page cache, memory all that the process holds;")
        print_line(f"time is an order of magnitude: {_assumed()} are assumed")
    forecast.require_space()


def _rows(plan: StagePlan) -> list[tuple[str, ...]]:
    if not plan.steps:
        return [("all", "is there already", *(["-"] * 5))]
    return [*(_step(step, plan.held) for step in plan.steps), _total(plan)]


def _step(step: Step, held: int) -> tuple[str, ...]:
    sizes = (held + step.memory, step.disk_read, step.disk_written, step.disk_scratch)
    return (step.name, step.how, *map(_bytes, sizes), "")


def _total(plan: StagePlan) -> tuple[str, ...]:
    sizes = (plan.memory, plan.disk_read, plan.disk_written, plan.disk_scratch, plan.disk_left)
    return ("total", "", *map(_bytes, sizes))


def _bytes(count: int) -> str:
    return format_bytes(count) if count else "-"


def _about(seconds: float) -> str:
    return f"about {format_seconds(seconds)}" if seconds >= 0.95 else "less than a second"


def _assumed() -> str:
    from tiering.plan import DISK_RATE, EDGE_SECONDS

    return f"disks of {DISK_RATE / 1e9:g} GB/s and {1e9 * EDGE_SECONDS:g} ns for an edge and thread"
