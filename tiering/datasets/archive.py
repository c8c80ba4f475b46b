"""Archives of arrays (.npz): recognised and refused, because arrays in them cannot be mapped where they lie."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

from tiering.artifacts.regular import is_there
from tiering.errors import InputError

_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_STEMS = {"edge_index", "edge_weight", "edge_type", "edge_id", "node_feat", "node_label", "node_labels", "num_nodes"}
_STEMS |= {f"{split}_idx" for split in ("train", "val", "valid", "test")}
"""Names that the formats of numpy files give to what they read."""


def refuse_archive(path: Path) -> None:
    """Raise `InputError` if the file is a zip archive: says what is in it and how to save that as plain arrays."""
    with path.open("rb") as file:
        if file.read(4) not in _MAGIC:
            return
    try:
        with zipfile.ZipFile(path) as archive:
            members = {Path(each.filename).stem: each for each in archive.infolist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path}: expected a numpy file, found a damaged zip archive ({error})") from error
    if {"format", "shape", "data"} <= set(members):
        kind = "a scipy sparse matrix (save_npz)"
        advice = f"a = scipy.sparse.load_npz('{path.name}').tocoo(); numpy.save('edge_index.npy', [a.row, a.col])"
    else:
        packed = any(each.compress_type != zipfile.ZIP_STORED for each in members.values())
        names = ", ".join(sorted(members)[:6]) or "nothing"
        kind = f"{'a compressed' if packed else 'an'} archive (npz) of {names}"
        advice = f"numpy.save('NAME.npy', numpy.load('{path.name}')['{next(iter(sorted(members)), 'NAME')}'])"
    raise InputError(
        f"{path}: expected a numpy file (.npy), found {kind}; what is in an archive cannot be mapped where it lies: "
        f"save it as plain arrays, such as {advice}"
    )


def refuse_archives(paths: Iterable[Path]) -> None:
    """The same for those files that bear the name of something the formats of numpy files read."""
    for path in sorted(paths):
        if path.suffix == ".npz" and path.stem in _STEMS and is_there(path, "an archive"):
            refuse_archive(path)
