"""``python3 see_packages.py PYTHON``: makes a new environment see the packages that python3 sees, wherever they lie.

`--system-site-packages` would show those of the interpreter alone, and not those of an environment that python3 is of.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(environment: str) -> None:
    """Write a line for each folder of packages; files of paths in them count, too."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(
        subprocess.run([environment, "-c", program], check=True, capture_output=True, text=True).stdout[:-1]
    )
    seen = [folder for folder in sys.path if folder.endswith("-packages")]
    lines = [f"import site; site.addsitedir({folder!r})" for folder in seen]
    (packages / "packages_of_python3.pth").write_text("\n".join(lines) + "\n")
    print(", ".join(seen) or "python3 has no packages")


if __name__ == "__main__":
    main(sys.argv[1])
