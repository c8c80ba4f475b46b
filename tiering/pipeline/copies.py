"""Copies of artifacts, with the files that they refer to, between directories and object stores."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar, cast

import xxhash

from tiering.artifacts import checksum
from tiering.artifacts.artifact import Artifact
from tiering.artifacts.atomic import OWNER
from tiering.artifacts.checksum import DIGEST_BYTES, PREFIX, Verifier, combine_digests, digest_bytes, num_blocks
from tiering.artifacts.document import MANIFEST
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import CHECKSUMS, MOVED, External, FileEntry, Manifest
from tiering.artifacts.overlap import refuse_overlap
from tiering.artifacts.reader import prefetch
from tiering.artifacts.remote import RemoteFolder, read_range
from tiering.artifacts.remote_directory import RemoteDirectory
from tiering.artifacts.storage import Bytes, OpenDirectory, aligned_bytes, fsync_directory, require_space, write_durably
from tiering.artifacts.writer import ArtifactWriter, copied_documents
from tiering.errors import ExistsError, FormatError, InputError, MissingError, StorageError
from tiering.formats.layout import UNITS, Layout, image_bytes, image_name, page_sums
from tiering.formats.registry import open_artifact
from tiering.layout.options import resolve_directories
from tiering.layout.stripe_files import Reader, StripeFiles, folders_apart, restripe
from tiering.memory import parse_memory
from tiering.pipeline.stage import Pathlike, Threads
from tiering.run.plan import Estimate, StageEstimate, StepEstimate, base_memory
from tiering.text.arguments import is_url
from tiering.text.options import choice
from tiering.text.progress import note, progress
from tiering.text.units import parse_threads

T = TypeVar("T")
COPYING = "copying.json"  # file of an unfinished copy in an object store: the artifact, and the names of its files
_THREADS = 8  # blocks under way at least: a store answers each after some time


@dataclass(frozen=True)
class CopiedFile:
    """A file of an artifact, or an external one, with its content as the manifest knows it."""

    path: Path  # for messages
    nbytes: int
    digest: str  # of all bytes, or sampled
    blocks: bytes | None  # digests of its blocks, where they are recorded
    reader: Reader
    piece_bytes: int  # bytes that are read at once

    @classmethod
    def of(cls, manifest: Manifest, name: str) -> CopiedFile:
        """Return the file `name` of a manifest, open."""
        entry = manifest.files.get(name) or manifest.external[name]
        path = manifest.path / name if isinstance(entry, FileEntry) else entry.path
        place = name if isinstance(entry, FileEntry) else str(path)
        directory = cast("OpenDirectory", manifest.held)
        if directory.open(place) is None:
            raise MissingError(f"{manifest.path}: refers to {place}, which does not exist; restore the file")
        reader, piece = directory.reader(place), directory.piece_bytes
        return cls(path, entry.bytes, entry.digest, manifest.blocks(name), reader, piece)

    def stream(self, blocks: range, buffers: Sequence[Bytes], digests: list[bytes]) -> Iterator[tuple[int, Bytes]]:
        """Yield offset and bytes of consecutive pieces of blocks, and append the digest of each block when it ends.

        With two buffers a piece is read while the one before is in use. `FormatError` if a block is not what was
        recorded.
        """
        begin, end = (min(self.nbytes, block * checksum.BLOCK_BYTES) for block in (blocks.start, blocks.stop))
        step = min(self.piece_bytes, checksum.BLOCK_BYTES)
        begins = range(begin, end, step)

        def read(number: int) -> Bytes:
            return self.reader(begins[number], min(end, begins[number] + step), buffers[number % len(buffers)])

        numbers, hasher = range(len(begins)), xxhash.xxh3_64()
        for at, data in zip(begins, map(read, numbers) if len(buffers) == 1 else prefetch(read, numbers), strict=True):
            hasher.update(data.data)
            yield at, data
            if (at + data.size) % checksum.BLOCK_BYTES == 0 or at + data.size == end:
                digest, block = hasher.digest(), at // checksum.BLOCK_BYTES
                if self.blocks is not None and digest != self.blocks[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]:
                    place = f"{self.path}: the block at byte {block * checksum.BLOCK_BYTES}"
                    raise FormatError(f"{place} is damaged (its checksum differs); restore the file")
                digests.append(digest)
                hasher = xxhash.xxh3_64()

    @property
    def whole(self) -> bool:
        """Whether the manifest's digest is of all bytes."""
        return self.digest.startswith(PREFIX)

    def check(self, digests: bytes, samples: str = "") -> None:
        """Raise `FormatError` if the digests of all blocks, or the sampled digest, differ from the manifest's."""
        found = combine_digests(digests) if self.whole else samples
        if found != self.digest:
            raise FormatError(f"{self.path}: expected checksum {self.digest}, found {found}; restore the file")

    def samples(self) -> str:
        """Return the sampled digest where the manifest has one: of 64 pieces of 64 KiB."""
        if self.whole:
            return ""
        memory = aligned_bytes(checksum.SAMPLE_BYTES)
        return checksum.digest_samples(lambda begin, end: self.reader(begin, end, memory).data, self.nbytes)


class _Blocks(ExitStack):
    """Threads that copy blocks, each in memory of its own, and the bar of their progress; a context manager."""

    def __init__(self, nbytes: int, threads: Threads) -> None:
        super().__init__()
        self._bar = self.enter_context(progress(nbytes, "copy", "B", scale=True))
        self._pool = self.enter_context(ThreadPoolExecutor(max(parse_threads(threads), _THREADS)))
        self._own = threading.local()

    def map(self, work: Callable[[T], int | None], items: Iterable[T]) -> None:
        """Do work that returns the bytes it has copied, if any; the first error ends it."""
        for nbytes in self._pool.map(work, items):
            self.add(nbytes or 0)

    def add(self, nbytes: int) -> None:
        """Show that so many bytes are copied."""
        self._bar.update(nbytes)

    @property
    def memory(self) -> Bytes:
        """Memory for a piece, of the thread that asks."""
        if not hasattr(self._own, "memory"):
            self._own.memory = aligned_bytes(OpenDirectory.piece_bytes)
        return cast("Bytes", self._own.memory)

    def fill(self, pairs: Sequence[tuple[CopiedFile, FileWriter]], again: bool) -> None:
        """Copy the missing blocks of several files side by side, and compare them; read them `again` for that."""

        def copy(place: tuple[int, int]) -> int:
            (source, file), block, digests = pairs[place[0]], place[1], list[bytes]()
            for at, data in source.stream(range(block, block + 1), [self.memory], digests):
                file.put(data, at)
            file.seal({block: digests[0]})
            return file.span(block)[1] - file.span(block)[0]

        missing = [[(number, block) for block in file.missing()] for number, (_, file) in enumerate(pairs)]
        blocks = [place for turn in zip_longest(*missing) for place in turn if place is not None]
        spans = (pairs[number][1].span(block) for number, block in blocks)
        self.add(sum(file.nbytes for _, file in pairs) - sum(end - begin for begin, end in spans))
        self.map(copy, blocks)
        for source, file in pairs:
            digests = checksum.file_digests(file.path, _THREADS) if again else file.digests()
            source.check(digests, "" if source.whole else checksum.sampled_digest(file.path))


@dataclass(frozen=True)
class _Copy:
    """One copy of an artifact: where its stripe files go, whether files outside come too, how it is compared."""

    artifact: Artifact
    folders: tuple[Path, ...] = ()
    features: bool | None = None
    again: bool = False  # all that was written is read again

    def external(self, artifact: Artifact) -> dict[str, str]:
        """Return the path in the copy of each file outside that an artifact refers to and that comes with it."""
        wanted = artifact.needs_outside if self.features is None else self.features
        if not (wanted or isinstance(artifact, Layout)):
            return {}
        folder, known = "ssd" if isinstance(artifact, Layout) else "external", artifact.manifest.external
        return {name: _inside(artifact, one.path) or f"{folder}/{_file(name, one)}" for name, one in known.items()}

    def files(self, artifact: Artifact | None = None, prefix: str = "") -> Iterator[tuple[str, Manifest, str]]:
        """Yield the files by their path in a copy of as many stripe files, with manifest and name."""
        artifact = artifact or self.artifact
        named = {**{name: name for name in artifact.manifest.files}, **self.external(artifact)}
        yield from ((f"{prefix}{place}", artifact.manifest, name) for name, place in named.items())
        for name, part in artifact.parts().items():
            yield from self.files(part, f"{prefix}{name}/")

    def documents(self, artifact: Artifact | None = None, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the documents of the artifact and of nested ones, its manifest last."""
        artifact = artifact or self.artifact
        for name, part in artifact.parts().items():
            yield from self.documents(part, f"{prefix}{name}/")
        external, known = self.external(artifact), artifact.manifest.external
        moved = {name: replace(known[name], path=Path(place)) for name, place in external.items()}
        own = copied_documents(artifact, moved)
        yield from ((f"{prefix}{name}", own[name]) for name in (*(own.keys() - {MANIFEST}), MANIFEST))

    @cached_property
    def bytes(self) -> dict[str, int]:
        """Bytes of the files by their path in the copy."""
        return {place: _entry(manifest, name).bytes for place, manifest, name in self.files()}

    @property
    def restriped(self) -> bool:
        """Whether the copy has another number of stripe files."""
        layout = self.artifact
        return isinstance(layout, Layout) and bool(self.folders) and len(self.folders) != layout.num_images

    def places(self, out: Path) -> dict[Path, int]:
        """Return the bytes to write by directory."""
        layout, own = self.artifact, sum(self.bytes.values())
        if not isinstance(layout, Layout) or not self.folders:
            return {out: own}
        striped = sum(one.bytes for one in layout.manifest.external.values())
        return {out: own - striped, **{folder: -(-striped // len(self.folders)) for folder in self.folders}}

    def estimate(self, out: Path, places: Mapping[Path, int]) -> Estimate:
        """Return what the copy would take."""
        total = sum(self.bytes.values())
        memory = min(total, _THREADS * checksum.BLOCK_BYTES)
        step = StepEstimate("copy", "blocks", memory, total * (2 if self.again else 1), total)
        return Estimate((StageEstimate("copy", out, (step,), places, held=base_memory(parse_memory(None))),))

    def write(self, out: Path, threads: Threads, force: bool) -> None:
        """Write the copy to a directory."""
        read = [] if _is_remote(self.artifact) else [self.artifact]
        options = {"ssd": list(map(str, self.folders)), "features": self.features}
        identity = {"stage": "copy", "options": options, "inputs": {"artifact": self.artifact.digest}}
        with ArtifactWriter(out, self.artifact.kind, force=force, identity=identity, reads=read) as writer:
            if not writer.journal.done:
                require_space(self.places(writer.path))
            with _Blocks(sum(self.bytes.values()), threads) as blocks:
                self._write(self.artifact, writer, blocks)

    def _write(self, artifact: Artifact, writer: ArtifactWriter, blocks: _Blocks) -> None:
        manifest, restriped = artifact.manifest, artifact is self.artifact and self.restriped
        for name, part in artifact.parts().items():
            self._write(part, writer.part(name, part.kind), blocks)
        left_out = (CHECKSUMS, *map(page_sums, range(artifact.num_images))) if restriped else ()  # type: ignore[attr-defined]
        with ExitStack() as stack:
            pairs = []
            for name, entry in manifest.files.items():
                if name in left_out or writer.has(name):
                    blocks.add(entry.bytes)
                else:
                    file = stack.enter_context(writer.file(name, entry.dtype, entry.shape))
                    pairs.append((CopiedFile.of(manifest, name), file))
            for name, place in () if isinstance(artifact, Layout) else self.external(artifact).items():
                outside, key = manifest.external[name], f"external {writer.prefix}{name}"
                file = stack.enter_context(FileWriter(writer.path / place, outside.bytes, writer.journal, key))
                pairs.append((CopiedFile.of(manifest, name), file))
                writer.external[name] = replace(outside, path=Path(place))
            blocks.fill(pairs, self.again)
        if isinstance(artifact, Layout):
            body = self._write_stripes(artifact, writer, blocks)
        if restriped:
            writer.commit(body, {**manifest.provenance}, manifest.requires)
        else:
            writer.commit_copy(artifact)

    def _write_stripes(self, layout: Layout, writer: ArtifactWriter, blocks: _Blocks) -> dict[str, Any]:
        """Write the stripe files; return the body of the layout with their number."""
        manifest, names = layout.manifest, [image_name(number) for number in range(layout.num_images)]
        folders = self.folders or [writer.out / Path(place).parent for place in self.external(layout).values()]
        folders = [Path(os.path.realpath(folder)) for folder in folders]
        sources, unit = [CopiedFile.of(manifest, name) for name in names], layout.unit_bytes
        units = sum(source.nbytes for source in sources) // unit
        sizes = [image_bytes(units, number, len(folders), unit) for number in range(len(folders))]
        goal = "\n".join([layout.digest, str(writer.out), *map(str, folders)])
        digest = digest_bytes(os.fsencode(goal)).rpartition(":")[2][:12]
        with StripeFiles(writer, folders, sizes, digest) as stripes:
            stripes.open()
            if not self.restriped:
                blocks.fill(list(zip(sources, stripes.files, strict=True)), self.again)
            else:
                pages = [writer.file(page_sums(k), "uint32", (n // layout.page_bytes,)) for k, n in enumerate(sizes)]
                read = [(one.reader, Verifier(one.path, "", one.nbytes, one.digest, one.blocks)) for one in sources]
                with ExitStack() as stack:
                    sums = [stack.enter_context(file) for file in pages]
                    for nbytes in restripe(read, units, unit, stripes.files, sums, layout.page_bytes):
                        blocks.add(nbytes)
                if self.again and any(map(_differs, stripes.files)):
                    raise FormatError(f"{writer.out}: the stripe files read back differ from what was written")
            writer.external.update(stripes.publish())
        return {**manifest.body, "num_images": len(folders)}

    def upload(self, folder: RemoteFolder, threads: Threads, force: bool) -> None:
        """Write the copy to a remote folder, its manifest last."""
        there = self._prepare(folder, force)
        sources = {place: (manifest, name) for place, manifest, name in self.files()}

        def send(place: str) -> int:
            source = CopiedFile.of(*sources[place])
            if there.get(place) != source.nbytes or (self.again and not _matches(folder, place, source)):
                _send(folder, place, source)
                if self.again and not _matches(folder, place, source):
                    raise StorageError(errno.EIO, f"{folder.join(place)}: the store returns other bytes than were sent")
            return source.nbytes

        with _Blocks(sum(self.bytes.values()), threads) as blocks:
            blocks.map(send, sources)
            stored = folder.files()
            for place, nbytes in self.bytes.items():
                if stored.get(place) != nbytes:
                    message = f"{folder.join(place)}: expected {nbytes} bytes, found {stored.get(place)}"
                    raise StorageError(errno.EIO, f"{message}; run the same command again")
            *inner, manifest = self.documents()
            blocks.map(lambda document: folder.write(document[0], [document[1]]), inner)
        folder.write(manifest[0], [manifest[1]])
        folder.remove(COPYING)

    def _prepare(self, folder: RemoteFolder, force: bool) -> dict[str, int]:
        """Return the sizes of files that an earlier run of the same copy has stored; refuse other files there."""
        stored = folder.files()
        known = {COPYING, *(place for place, _ in self.documents()), *self.bytes}
        mark = json.dumps({"artifact": self.artifact.digest, "files": sorted(known)}).encode()
        unfinished = COPYING in stored and MANIFEST not in stored
        if unfinished and folder.read(COPYING).tobytes() == mark:
            note(f"note: {folder.url}: resuming an earlier copy, whose files are kept")
            return stored
        own = _own_names(folder, stored)
        if foreign := sorted(stored.keys() - own):
            raise ExistsError(f"{folder.url}: contains {foreign[0]}, which no copy wrote; choose another destination")
        if stored and not force:
            what = "an unfinished copy of another artifact" if unfinished else "an artifact"
            raise ExistsError(f"{folder.url}: contains {what}; give --force to replace it, or another destination")
        if stored:
            folder.remove(MANIFEST)  # without it nothing opens
            folder.clear()
        folder.write(COPYING, [mark])
        return {}


def _is_remote(artifact: Artifact) -> bool:
    return isinstance(artifact.manifest.held, RemoteDirectory)


def _inside(artifact: Artifact, path: Path) -> str:
    """Return the path of a file in an artifact; empty where it lies outside."""
    return str(path.relative_to(artifact.path)) if path.is_relative_to(artifact.path) else ""


def _file(name: str, external: External) -> str:
    """Return the name that a file from outside gets in a copy."""
    own = external.path.name
    return own if own.startswith("ssd-") else f"{name.replace(':', '__')}{external.path.suffix}"


def _entry(manifest: Manifest, name: str) -> FileEntry | External:
    return manifest.files.get(name) or manifest.external[name]


def _differs(file: FileWriter) -> bool:
    return checksum.file_digests(file.path, _THREADS) != file.digests()


def _send(folder: RemoteFolder, place: str, source: CopiedFile) -> None:
    """Store a file, which is compared on its way."""
    digests, buffers = list[bytes](), [aligned_bytes(min(source.nbytes, source.piece_bytes)) for _ in range(2)]
    stream = source.stream(range(num_blocks(source.nbytes)), buffers, digests)
    folder.write(place, (data for _, data in stream))
    source.check(b"".join(digests), source.samples())


def _matches(folder: RemoteFolder, place: str, source: CopiedFile) -> bool:
    """Return whether a stored file has the content of its source. Cost: it is read."""
    with folder.open(place) as file:
        name, nbytes = folder.join(place), source.nbytes
        spans = range(0, nbytes, checksum.BLOCK_BYTES) if source.whole else ()
        pieces = (read_range(file, name, begin, min(nbytes, begin + checksum.BLOCK_BYTES)) for begin in spans)
        digests = b"".join(xxhash.xxh3_64(piece.data).digest() for piece in pieces)
        samples = "" if source.whole else checksum.digest_samples(partial(read_range, file, name), nbytes)
    return (combine_digests(digests) if source.whole else samples) == source.digest


def _own_names(folder: RemoteFolder, stored: Mapping[str, int]) -> set[str]:
    """Return the names of files in a remote folder that copies wrote: of its artifact, or an unfinished one."""
    names = {COPYING}
    with suppress(ValueError, KeyError, TypeError, FormatError, MissingError):
        if COPYING in stored:
            names |= set(json.loads(folder.read(COPYING).tobytes())["files"])
    with suppress(FormatError, MissingError):
        if MANIFEST in stored:
            copied = _Copy(Artifact.open(folder.address, outside=False), features=True)
            names |= {*(place for place, _ in copied.documents()), *copied.bytes}
    return names


def copy(
    source: Artifact | Pathlike, destination: Pathlike, *, ssd: Pathlike | Sequence[Pathlike] = (),
    features: bool | None = None, verify: str = "sizes", force: bool = False, threads: Threads = None,
    dry_run: bool = False,
) -> Any:  # fmt: skip
    """Copy an artifact, with the files that it refers to, between directories and object stores; return the copy, open.

    The copy has the digest of the original unless the number of stripe files changes, so that scores, orders and
    layouts fit the copied graph. The manifest is written last: a partial copy never opens.

    Parameters
    ----------
    source, destination
        An artifact, opened or by path, and the copy's path. Paths are directories, or URLs that pyarrow opens:
        ``s3://bucket/folder``, ``gs://..``, ``abfs://..``. Credentials are those that the cloud's own clients find;
        none is recorded.
    ssd
        Directories for the stripe files of a layout, one for each SSD of this machine; their number may differ from the
        layout's. By default they lie in the copy, in ``ssd``.
    features
        Copy the feature tables that a graph refers to, too; by default all except the tables of a layout's graph,
        whose rows the layout has.
    verify
        ``sizes``: what is read is compared with its checksums, and the sizes of what was stored; ``full``: all that was
        written is read once more and compared as well.
    force
        Replace an artifact at `destination`, if tiering wrote everything there.
    threads
        At least 8 blocks of 64 MiB are in transit, whatever the number.

    Raises
    ------
    FormatError
        A file is damaged.
    ExistsError
        The destination is not empty.
    StorageError
        A disk or a store fails, or refuses access; the same command resumes.
    """
    choice("sizes", "full")(verify, "verify")
    folders = tuple(resolve_directories(ssd))
    artifact = source if isinstance(source, Artifact) else open_artifact(source)
    work = _Copy(artifact, folders, features, verify == "full")
    _check_folders(work)
    if is_url(destination):
        if folders:
            raise InputError("ssd: stripe files in an object store are part of the copy; omit --ssd")
        folder = RemoteFolder(str(destination))
        if dry_run:
            return work.estimate(Path(folder.url), {})
        work.upload(folder, threads, force)
        return open_artifact(destination)
    out = Path(destination).absolute()
    refuse_overlap(out, [] if _is_remote(artifact) else [artifact], folders_apart(out, folders))
    if dry_run:
        return work.estimate(out, work.places(out))
    work.write(out, threads, force)
    return open_artifact(out)


def _check_folders(work: _Copy) -> None:
    """Refuse directories for stripe files that the artifact does not have, or has too few units for."""
    layout, count = work.artifact, len(work.folders)
    if count and not (isinstance(layout, Layout) and layout.num_images):
        raise InputError(f"ssd: {layout.path} has no stripe files; omit --ssd")
    if not isinstance(layout, Layout) or not work.restriped:
        return
    units = sum(layout.type_layout(table).ssd_rows.num_units for table in layout.tables)
    if count > units:
        raise InputError(f"ssd: expected at most {units} directories, as the layout has {units} units, found {count}")
    places = [layout.type_layout(table).ssd_rows for table in layout.tables]
    if UNITS not in layout.manifest.requires or not all(one.rows_per_unit for one in places if one.num_units):
        raise InputError(
            f"ssd: {layout.path} was made by an earlier version, whose stripe files cannot be redistributed; give "
            f"{layout.num_images} directories, or make the layout again"
        )


def relink(layout: Pathlike, ssd: Pathlike | Sequence[Pathlike]) -> Layout:
    """Point a layout at its stripe files, which were moved to other directories; return it, open.

    Each file is looked for by its name, ``ssd-k-of-N``, in the directories `ssd` and those inside them, and compared
    with its checksum. Raises `MissingError` if one is not there, `FormatError` if its content differs. Cost: the files
    are read once.
    """
    opened = Layout.open(layout, outside=False)
    manifest, moved = opened.manifest, dict[str, External]()
    for number in range(opened.num_images):
        name = image_name(number)
        entry = manifest.external[name]
        places = [
            place
            for folder in resolve_directories(ssd)
            for pattern in ("", "*/")
            for place in sorted(folder.glob(f"{pattern}{entry.path.name}"))
        ]
        sized = [place for place in places if place.stat().st_size == entry.bytes]
        if not sized:
            other = f", {places[0]} has {places[0].stat().st_size}" if places else ""
            expected = f"{entry.path.name}: expected a file of {entry.bytes} bytes in --ssd"
            raise MissingError(f"{expected}, found none{other}; give the directory that contains it")
        equal = [place for place in sized if checksum.checksum_file(place, _THREADS) == entry.digest]
        if not equal:
            message = f"{sized[0]}: is not the stripe file of {opened.path} (its checksum differs)"
            raise FormatError(f"{message}; give another --ssd")
        moved[name] = replace(entry, path=Path(_inside(opened, equal[0]) or equal[0]))
    document = copied_documents(opened, moved).get(MOVED, b"{}")
    write_durably(new := opened.path / f".{MOVED}", document)
    new.replace(opened.path / MOVED)
    fsync_directory(opened.path)
    for entry in moved.values():  # a layout that replaces this one removes what belongs to it
        owner = entry.path.parent / OWNER
        if owner.is_file():
            write_durably(owner, os.fsencode(f"{opened.path.absolute()}\n"))
    return Layout.open(layout)
