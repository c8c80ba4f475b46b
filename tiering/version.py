"""The package's version, and the digest that tells builds of one version apart; importable from every layer."""

from functools import lru_cache

__version__ = "1.0.0rc1"


@lru_cache(maxsize=1)
def build() -> str:
    """Return the version and a digest of the Python sources and the compiled core, wherever they lie."""
    import hashlib  # here, since every command imports this module
    from importlib.util import find_spec
    from pathlib import Path

    root, core, digest = Path(__file__).parent, find_spec("tiering._native"), hashlib.sha256()
    sources = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    sources = {name: path for name, path in sources.items() if not name.startswith("cli/")}  # apart where it is edited
    if core is not None and core.origin is not None:
        sources["_native"] = Path(core.origin)
    for name, path in sorted(sources.items()):
        data = path.read_bytes()
        digest.update(f"{name} {len(data)} ".encode() + data)
    return f"{__version__} (build {digest.hexdigest()[:16]})"
