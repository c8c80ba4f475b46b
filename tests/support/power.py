"""What a power cut leaves of a directory: a model of a disk that keeps what was synced, and of the rest what it likes.

Data of a file are on disk when the file was synced, an entry of a directory when that directory was. Of everything else
any part may be there: writes in pieces of a sector or a page, entries one without the other. An entry that builds on
another (the rename of a file that was just created) is not there without it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from calls import Change
from crash_injection import clear

UNITS = (512, 4096)


@dataclass
class File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)


@dataclass
class Folder:
    live: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = File | Folder


@dataclass
class Entry:
    """A change of entries that is not on disk yet."""

    home: Folder
    """Whose sync brings it there."""
    effects: list[tuple[Folder, str, Node | None]]
    nodes: list[Node]
    """What it needs to be in place."""
    empties: Folder | None = None

    def builds_on(self, earlier: Entry) -> bool:
        places = {(id(folder), name) for folder, name, _ in earlier.effects}
        return (
            any((id(folder), name) in places for folder, name, _ in self.effects)
            or any(node is other for node in self.nodes for other in earlier.nodes)
            or any(folder is self.empties for folder, _, _ in earlier.effects)
        )


class Disk:
    """A directory and all below it; what lies there at first is durable."""

    def __init__(self, root: Path) -> None:
        self.root, self.top = root, Folder()
        self.pending: list[Entry] = []
        for path in sorted(root.rglob("*")):
            folder, name = self._place(str(path))
            node: Node = Folder() if path.is_dir() else File(bytearray(path.read_bytes()))
            folder.live[name] = folder.durable[name] = node

    def _place(self, path: str) -> tuple[Folder, str]:
        *around, name = Path(path).relative_to(self.root).parts
        folder = self.top
        for each in around:
            below = folder.live[each]
            assert isinstance(below, Folder)
            folder = below
        return folder, name

    def _find(self, path: str) -> Node | None:
        """What lies at a path; ``None`` for a file without a name."""
        if path == str(self.root):
            return self.top
        try:
            folder, name = self._place(path)
        except KeyError:
            return None
        return folder.live.get(name)

    def apply(self, change: Change) -> None:
        """Take a change in."""
        if change.kind in "WTF":
            file = self._find(change.path)
            if isinstance(file, File):
                file.pending.append(change)
        elif change.kind == "S":
            self._sync(self._find(change.path))
        else:
            entry = self._entry(change)
            for folder, name, node in entry.effects:
                _set(folder.live, name, node)
            self.pending.append(entry)

    def _entry(self, change: Change) -> Entry:
        folder, name = self._place(change.path) if self._inside(change.path) else (Folder(), "")
        if change.kind in "CM":
            node: Node = File() if change.kind == "C" else Folder()
            return Entry(folder, [(folder, name, node)], [node])
        if change.kind in "UD":
            old = folder.live[name]
            return Entry(folder, [(folder, name, None)], [old], old if isinstance(old, Folder) else None)
        to, to_name = self._place(change.other)
        if change.kind == "L":
            linked = self._find(change.path) if self._inside(change.path) else None
            return Entry(to, [(to, to_name, linked or File(bytearray(Path(change.path).read_bytes())))], [])
        first = folder.live[name]
        if change.kind == "R":
            return Entry(to, [(folder, name, None), (to, to_name, first)], [first])
        second = to.live[to_name]
        return Entry(to, [(folder, name, second), (to, to_name, first)], [first, second])

    def _inside(self, path: str) -> bool:
        return path.startswith(f"{self.root}/")

    def _sync(self, node: Node | None) -> None:
        if isinstance(node, File):
            node.durable, node.pending = _content(node.durable, node.pending), []
        elif node is not None:
            wanted: list[Entry] = []
            for entry in reversed(self.pending):
                if entry.home is node or any(later.builds_on(entry) for later in wanted):
                    wanted.append(entry)
            for entry in reversed(wanted):
                for folder, name, found in entry.effects:
                    _set(folder.durable, name, found)
            kept = {id(entry) for entry in wanted}
            self.pending = [entry for entry in self.pending if id(entry) not in kept]

    def cut(self, luck: random.Random) -> None:
        """Put into the directory what a power cut may leave now."""
        keep_entries, keep_data = (luck.choice([0.0, 0.5, 0.9, 1.0]) for _ in range(2))
        entries: dict[int, dict[str, Node]] = {}
        dropped: list[Entry] = []
        for entry in self.pending:
            if luck.random() >= keep_entries or any(entry.builds_on(each) for each in dropped):
                dropped.append(entry)
                continue
            for folder, name, node in entry.effects:
                _set(entries.setdefault(id(folder), dict(folder.durable)), name, node)
        clear(self.root)
        self._put(self.top, self.root, entries, luck, keep_data)

    def _put(
        self, folder: Folder, path: Path, entries: dict[int, dict[str, Node]], luck: random.Random, keep: float
    ) -> None:
        for name, node in entries.get(id(folder), folder.durable).items():
            if isinstance(node, Folder):
                (path / name).mkdir()
                self._put(node, path / name, entries, luck, keep)
            else:
                (path / name).write_bytes(_content(node.durable, _torn(node.pending, luck, keep)))


def _set(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _content(before: bytearray, changes: Iterable[Change]) -> bytearray:
    data = bytearray(before)
    for change in changes:
        if change.kind == "T":
            del data[change.first :]
            data.extend(bytes(change.first - len(data)))
            continue
        end = change.first + (len(change.data) if change.kind == "W" else change.second)
        data.extend(bytes(max(0, end - len(data))))
        if change.kind == "W":
            data[change.first : end] = change.data
    return data


def _torn(changes: list[Change], luck: random.Random, keep: float) -> Iterable[Change]:
    """Some of the changes, and of some writes only pieces."""
    for change in changes:
        if luck.random() < keep:
            yield change
        elif change.kind == "W" and luck.random() < 0.5:
            unit = luck.choice(UNITS)
            if luck.random() < 0.5:  # the size came through
                yield Change("F", change.path, "", change.first, len(change.data), b"")
            begin = change.first
            while begin < change.first + len(change.data):
                end = min(begin // unit * unit + unit, change.first + len(change.data))
                if luck.random() < 0.5:
                    piece = change.data[begin - change.first : end - change.first]
                    yield Change("W", change.path, "", begin, 0, piece)
                begin = end
