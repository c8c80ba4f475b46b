"""Epochs of a loader whose reading was planned, in a process of its own: prints a JSON line, figures of each.

``python planned.py LAYOUT JSON``; without arguments the bytes of such a process's programs, which the kernel counts
too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

import tiering
from tiering.memory import Budget
from tiering.text.units import format_bytes


def main() -> None:
    """Run the epochs that the arguments ask for."""
    torch.zeros(1)
    if len(sys.argv) == 1:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(json.dumps({"programs": int(lines["RssFile"].split()[0]) * 1024}))
        return
    options = json.loads(sys.argv[2])
    epochs, memory, resident, _ = (options.pop(name) for name in ("epochs", "memory", "resident", "programs"))
    found = []
    with tiering.open(sys.argv[1]) as layout:
        loader = layout.loader(memory=Budget(memory, format_bytes(memory), resident), **options)
        for epoch in range(epochs):
            before = (
                loader.lookahead.buffer.counters()
                if epoch
                else dict.fromkeys(("reads", "read_bytes", "idle_seconds"), 0)
            )
            start = time.perf_counter()
            for _ in loader.epoch(epoch):
                pass
            seconds, after = time.perf_counter() - start, loader.lookahead.buffer.counters()
            spent = {name: after[name] - before[name] for name in before}
            found.append(
                {
                    "seconds": seconds - spent["idle_seconds"],
                    "wall": seconds,
                    "requests": spent["reads"],
                    "bytes": spent["read_bytes"],
                }
            )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
