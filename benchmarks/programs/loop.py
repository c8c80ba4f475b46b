"""Takes turns until its input ends. Run with the programs here, by interpreters that need not have `tiering`."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any


def serve(make: Callable[..., tuple[str, Mapping[str, Callable[..., Any]]]]) -> None:
    """Answer requests, JSON lines ``[work, argument...]``, with their cost and result.

    `make` takes the program's arguments and returns the name of what runs here, and the works by name.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    name, works = make(*sys.argv[1:])
    print(json.dumps({"name": name, "works": list(works)}), file=answers, flush=True)
    for line in sys.stdin:
        work, *arguments = json.loads(line)
        cpu, wall = _cpu_seconds(), time.perf_counter()
        try:
            result = works[work](*arguments)
            answer = {"wall": time.perf_counter() - wall, "cpu": _cpu_seconds() - cpu, "result": result}
        except Exception as error:  # whatever it is, the other side says it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
