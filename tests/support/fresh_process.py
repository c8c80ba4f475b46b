"""Work in an interpreter of its own, whose memory nothing else has touched."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def in_fresh_process(work: Callable[..., Any], *arguments: Any, seconds: float = 300.0) -> Any:
    """What `work`, a function of a module's top level, returns there. Arguments and result go through JSON."""
    command = [sys.executable, __file__, work.__code__.co_filename, work.__name__, json.dumps(arguments, default=str)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def in_warm_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """The same in a process that has modules loaded, and no more memory than they take."""
    from warm_processes import interpret

    script = "import sys, fresh_process; fresh_process.main(*sys.argv[1:])"
    done = interpret(script, work.__code__.co_filename, work.__name__, json.dumps(arguments, default=str))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main(file: str, name: str, arguments: str) -> None:
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    spec = importlib.util.spec_from_file_location("work", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    print(json.dumps(getattr(module, name)(*json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
