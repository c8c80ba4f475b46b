"""The stripe files of a layout, one for each directory of an SSD, written together with the layout.

In a directory outside the layout, file k of N is ``DIR/NAME.TOKEN/ssd-k-of-N``: written in
``DIR/.NAME.PLAN.partial``, and renamed right before the layout itself. PLAN is a digest of the plan, TOKEN one of
content and place: files of one name have the same bytes. The layout's journal lists the directories made there, which
are removed if the run is given up, and the blocks that are finished. A directory inside the layout is written and
renamed with it, and its files are recorded by their path in the layout.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from tiering import native
from tiering.artifacts import checksum
from tiering.artifacts.atomic import ExternalDirectories
from tiering.artifacts.checksum import DIGEST_BYTES, Verifier, combine_digests, digest_bytes, num_blocks
from tiering.artifacts.file_writer import FileWriter, block_key
from tiering.artifacts.manifest import External
from tiering.artifacts.reader import prefetch
from tiering.artifacts.storage import Bytes, fsync_directory, make_folders, missing_folders
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError
from tiering.formats.layout import SUM_BYTES, image_name

Reader = Callable[[int, int, Bytes], Bytes]  # returns bytes [begin, end) of a file, perhaps in the given memory
_PUBLISHING = "publishing images"
"""Key of the journal, with the token, once all stripe files are whole: from then on they are renamed."""
_OWN_FOLDERS = ("graph", "tiers", "pages", "codecs", "scratch")  # folders of a layout that hold other files


def folders_apart(out: Path, folders: Sequence[Path]) -> list[Path]:
    """Return directories of stripe files outside the layout `out`; refuse directories of its other files."""
    base, apart = Path(os.path.realpath(out)), list[Path]()
    for folder in folders:
        inside = folder.relative_to(base).parts if folder.is_relative_to(base) else None
        if inside is None:
            apart.append(folder)
        elif not inside or inside[0] in _OWN_FOLDERS:
            raise InputError(f"ssd: {folder} is a directory of the layout's own files; choose another: {out}/ssd")
    return apart


class StripeFiles(ExitStack):
    """A writer of the stripe files, a context manager that closes them; it resumes an earlier run.

    Unit u goes to file u mod N, offset (u div N) * unit_bytes. `writer` is the layout's, whose lock allows to remove
    the files of a killed run; `digest` are 12 hexadecimal digits that stand for the layout and its path.
    """

    def __init__(self, writer: ArtifactWriter, folders: Sequence[Path], sizes: Sequence[int], digest: str) -> None:
        super().__init__()
        out, base = writer.out, os.path.realpath(writer.out)
        self._out, self._digest, self._journal, self._folders, self._sizes = out, digest, writer.journal, folders, sizes
        self._inside = [Path(os.path.relpath(one, base)) if one.is_relative_to(base) else None for one in folders]
        self._partial = [
            folder / f".{out.name}.{digest}.partial" if inside is None else writer.path / inside
            for folder, inside in zip(folders, self._inside, strict=True)
        ]
        self._external = ExternalDirectories(writer.journal, out)
        self.files: list[FileWriter] = []
        for folder, inside in zip(folders, self._inside, strict=True):
            if inside is None:
                self._make_folder(folder)
        self.paths = [self._own_file(number) for number in range(len(folders))]

    def open(self) -> None:
        """Open the files, to write their missing parts."""
        for number, path in enumerate(self.paths):
            file = FileWriter(path, self._sizes[number], self._journal, self._key(number))
            self.files.append(self.enter_context(file))

    def _key(self, number: int) -> str:
        return f"image {self.paths[number].name}"

    def is_whole(self, number: int) -> bool:
        """Return whether a run has taken over a file by `take`, undamaged; called before `open`."""
        key, size, path = self._key(number), self._sizes[number], self.paths[number]
        if not path.is_file() or len(self._journal.keys(block_key(key))) < num_blocks(size):
            return False
        with FileWriter(path, size, self._journal, key) as file:
            return not file.missing()

    def take(self, number: int, at: str, digests: bytes) -> None:
        """Take over a file that a task wrote at the path `at` next to it; called before `open`."""
        path = self.paths[number]
        (path.parent / at).replace(path)
        fsync_directory(path.parent)
        for block in range(num_blocks(self._sizes[number])):
            digest = digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]
            self._journal.record(f"{block_key(self._key(number))}{block}", digest=digest.hex())

    def _make_folder(self, folder: Path) -> None:
        """Create an SSD directory; remove the files in it of a run whose journal is lost."""
        for missing in missing_folders(folder):
            self._external.record("parent", missing)
        make_folders(folder)
        for stale in folder.glob(f".{self._out.name}.*.partial"):
            if stale not in self._partial and self._external.owns(stale):
                shutil.rmtree(stale, ignore_errors=True)

    def _own_file(self, number: int) -> Path:
        """Return the path at which a file is or was written; own its directory."""
        folder, published = self._partial[number], self._journal.get(_PUBLISHING)
        name = f"ssd-{number}-of-{len(self._folders)}"
        if self._inside[number] is not None:
            folder.mkdir(parents=True, exist_ok=True)
            return folder / name
        home = folder if published is None else self._home(number, published["token"])
        if (home / name).exists() and not (folder / name).exists():
            folder = home
        else:
            self._external.record("make", folder)
            self._external.own(folder)
        return folder / name

    def _home(self, number: int, token: str) -> Path:
        """Return the directory in which a file gets its name."""
        return self._folders[number] / f"{self._out.name}.{token}"

    def publish(self) -> dict[str, External]:
        """Rename the files into place, where they replace equal ones; return their `External` entries by name."""
        digests = [file.digests() for file in self.files]
        content = [self._digest, *map(combine_digests, digests), *map(str, self._folders)]
        token = digest_bytes(os.fsencode("\n".join(content))).rpartition(":")[2][:12]
        if self.files:
            self._journal.record(_PUBLISHING, token=token)
        entries = {}
        for number, file in enumerate(self.files):
            home, path, inside = self._home(number, token), file.path, self._inside[number]
            if inside is not None:
                entries[image_name(number)] = External.of(inside / path.name, file.nbytes, digests[number])
                continue
            if path.parent != home:
                if not home.exists():
                    self._external.record("make", home)
                self._external.own(home)
                path.replace(home / path.name)
            fsync_directory(home)
            if self._partial[number].exists():
                shutil.rmtree(self._partial[number])
            fsync_directory(home.parent)
            entries[image_name(number)] = External.of(home / path.name, file.nbytes, digests[number])
        return entries


def restripe(
    sources: Sequence[tuple[Reader, Verifier]],
    units: int,
    unit_bytes: int,
    files: Sequence[FileWriter],
    sums: Sequence[FileWriter],
    page_bytes: int,
) -> Iterator[int]:
    """Copy units of stripe files to another number of files, front to back; yield the bytes of each piece.

    `files` are the new stripe files, `sums` the files of their pages' checksums; what an earlier run has written is not
    read again. Sources are compared with their checksums: `FormatError`. Cost: two pieces of about 64 MiB in memory.
    """
    old, new = len(sources), len(files)
    both, sum_bytes = math.lcm(old, new), unit_bytes // page_bytes * SUM_BYTES
    step = max(1, checksum.BLOCK_BYTES // unit_bytes // both) * both
    finished = [file.done // unit_bytes * new + number for number, file in enumerate(files)]
    finished += [file.done // sum_bytes * new + number for number, file in enumerate(sums)]
    # Sources are compared by whole blocks, so that reading begins where a block does in each.
    aligned = math.lcm(old * (math.lcm(checksum.BLOCK_BYTES, unit_bytes) // unit_bytes), both)
    start = min(*finished, units) // aligned * aligned

    def read(first: int) -> Bytes:
        piece = np.empty((min(step, units - first), unit_bytes), np.uint8)
        for number, (reader, verifier) in enumerate(sources):
            begin, count = first // old * unit_bytes, len(piece[number::old])
            data = reader(begin, begin + count * unit_bytes, np.empty(count * unit_bytes, np.uint8))
            verifier.update(begin, data.data)
            piece[number::old] = data.reshape(count, unit_bytes)
        return piece

    yield start * unit_bytes
    for first, piece in zip(range(start, units, step), prefetch(read, range(start, units, step)), strict=True):
        for number in range(new):
            own = np.ascontiguousarray(piece[number::new]).reshape(-1)
            files[number].append(own, first // new * unit_bytes)
            hashes = native.page_hashes(own, page_bytes).astype("<u4", copy=False)
            sums[number].append(hashes, first // new * sum_bytes)
        yield piece.size
