"""Runs campaigns by name, each in a process of its own that ends within 45 minutes; without names all of them.

``python tests/campaigns.py kills flips``. ``others`` are the tests marked ``long`` that are no campaigns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from campaign import CAMPAIGNS, LIMIT_SECONDS  # noqa: E402

OTHERS = "others"


def main(names: list[str]) -> int:
    """Run campaigns; return the exit code."""
    known = [*CAMPAIGNS, OTHERS]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"error: campaign {unknown[0]!r} is not known; expected some of: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = [name for name in names or known if not passes(name)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def passes(name: str) -> bool:
    """Run one campaign, or the others; return whether nothing was wrong."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "long"]
    if name == OTHERS:
        skipped = [argument for plan in CAMPAIGNS.values() for argument in ("--deselect", plan.test)]
        return subprocess.run([*command, *skipped], cwd=ROOT).returncode == 0
    process = subprocess.Popen([*command, CAMPAIGNS[name].test], cwd=ROOT, start_new_session=True)
    try:
        return process.wait(LIMIT_SECONDS) == 0
    except subprocess.TimeoutExpired:
        print(f"error: campaign {name!r} did not end within {LIMIT_SECONDS // 60} minutes", file=sys.stderr)
        return False
    finally:
        if process.returncode is None:  # it hangs, or this program was interrupted
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
