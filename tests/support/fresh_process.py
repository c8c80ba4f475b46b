"""Work in a process that has modules loaded, and no more memory than they take."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warm_processes import interpret


def in_warm_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work`, a function of a module's top level, returns there. Arguments and result go through JSON."""
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
