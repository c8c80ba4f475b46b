"""What is imported: beside the sources, which have no compiled core of their own, and of other packages."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import tiering

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = Path(tiering.__file__).parent


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory like a clone's: the sources, nothing compiled."""
    (tmp_path / "clone" / "tiering").mkdir(parents=True)
    for name in ("__init__.py", "errors.py", "native.py", "version.py"):
        shutil.copy(PACKAGE / name, tmp_path / "clone" / "tiering")
    return tmp_path / "clone"


def run(code: str, where: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a directory, as `python -c` does, with folders after it on the path, and without this environment."""
    code = f"import sys; sys.path += {[str(folder) for folder in path]!r}; {code}"
    return subprocess.run([sys.executable, "-S", "-c", code], cwd=where, capture_output=True, text=True, check=False)


def test_the_installed_package_serves_in_the_clone(clone: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site" / "tiering"
    shutil.copytree(clone / "tiering", installed)
    (installed / "version.py").write_text('__version__ = "of what is installed"')
    (installed / "native.py").write_text("from tiering import _native")
    (installed / "_native.py").touch()
    done = run("import tiering, tiering.native as n; print(tiering.__version__, n.__file__)", clone, installed.parent)
    assert done.stdout.split("of what is installed ")[1].strip() == str(installed / "native.py"), done.stderr


def test_with_nothing_installed_one_sentence_says_what_to_do(clone: Path) -> None:
    assert run("import tiering; print(tiering.__version__)", clone).stdout.strip() == tiering.__version__
    done = run("import tiering.native", clone)
    assert done.returncode == 1
    assert "CapabilityError" in done.stderr.splitlines()[-1]
    assert "pip install --no-build-isolation -e ." in done.stderr.splitlines()[-1]


def test_only_what_the_package_depends_on_is_imported() -> None:
    """By the package, the command line and the examples, anywhere in their code."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    required = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[^\w-]", entry)[0].lower().replace("-", "_") for entry in chain(*required)}
    own = {"tiering", "_native", *(path.stem for path in (root / "examples").glob("*.py"))}
    others = {"yaml", "IPython", "typing_extensions", "faiss"}  # pyyaml; notebooks; type checkers; faiss-cpu
    known = names | own | others | set(sys.stdlib_module_names)
    assert "pyyaml" in names and "rich" not in names
    for path in chain(*((root / folder).rglob("*.py") for folder in ("tiering", "cli", "examples"))):
        for node in ast.walk(ast.parse(path.read_text())):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module] if isinstance(node, ast.ImportFrom) and not node.level and node.module else []
            assert {name.split(".")[0] for name in found} <= known, f"{path.relative_to(root)}:{found}"
