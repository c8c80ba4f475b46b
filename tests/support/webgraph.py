"""Writes graphs as BVGraph, slowly and plainly: bits are text of 0 and 1. The oracle of the decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path


def unary(number: int) -> str:
    return "0" * number + "1"


def gamma(number: int) -> str:
    binary = f"{number + 1:b}"
    return unary(len(binary) - 1) + binary[1:]


def delta(number: int) -> str:
    binary = f"{number + 1:b}"
    return gamma(len(binary) - 1) + binary[1:]


def zeta(number: int, k: int = 3) -> str:
    """The shell of 2^hk .. 2^(h+1)k - 1 in unary, then the place in it in minimal binary."""
    shell = (len(f"{number + 1:b}") - 1) // k
    first, size = 1 << shell * k, (1 << (shell + 1) * k) - (1 << shell * k)
    place, width = number + 1 - first, (size - 1).bit_length()
    short = (1 << width) - size  # so many places take a bit less
    number, width = (place, width - 1) if place < short else (place + short, width)
    return unary(shell) + (f"{number:0{width}b}" if width else "")


def nibble(number: int) -> str:
    groups = [f"{number >> shift & 7:03b}" for shift in range(0, max(1, number.bit_length()), 3)][::-1]
    return "".join(("1" if i == len(groups) - 1 else "0") + group for i, group in enumerate(groups))


CODES: dict[str, Callable[..., str]] = {"unary": unary, "gamma": gamma, "delta": delta, "zeta": zeta, "nibble": nibble}


def signed(number: int) -> int:
    """0, -1, 1, -2, 2... as 0, 1, 2, 3, 4..."""
    return 2 * number if number >= 0 else -2 * number - 1


def packed(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


@dataclass
class Encoder:
    """Each list refers to the one in its window that has most in common with it, or that makes it `shortest`."""

    window: int = 7
    max_chain: int = 3
    min_interval: int = 4
    zeta_k: int = 3
    codes: dict[str, str] = field(default_factory=dict)
    """OUTDEGREES, REFERENCES, BLOCK_COUNT, BLOCKS, RESIDUALS, OFFSETS -> name of a code other than the usual."""
    shortest: bool = False
    """As WebGraph chooses: of several the nearest, none first."""
    used: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("references", "intervals", "residuals"), 0))

    def _put(self, what: str, number: int) -> str:
        usual = {"REFERENCES": "unary", "RESIDUALS": "zeta"}.get(what, "gamma")
        name = self.codes.get(what, usual)
        return zeta(number, self.zeta_k) if name == "zeta" else CODES[name](number)

    def lists(self, lists: Sequence[Sequence[int]]) -> list[str]:
        """The bits of each list."""
        chains = [0] * len(lists)
        bits = []
        for node, ids in enumerate(lists):
            near = range(max(0, node - self.window), node)
            allowed = [other for other in near if chains[other] < self.max_chain and set(lists[other]) & set(ids)]
            copied = max(allowed, key=lambda other: len(set(lists[other]) & set(ids)), default=node)
            if self.shortest:
                trial = replace(self, used=dict(self.used))  # what is tried does not count
                sizes = {other: len(trial._list(node, ids, other, lists[other])) for other in (node, *allowed[::-1])}
                copied = min(sizes, key=lambda other: sizes[other])
            chains[node] = 0 if copied == node else chains[copied] + 1
            bits.append(self._list(node, ids, copied, lists[copied]))
        return bits

    def _list(self, node: int, ids: Sequence[int], copied: int, other: Sequence[int]) -> str:
        bits = self._put("OUTDEGREES", len(ids))
        if not ids:
            return bits
        rest = set(ids)
        if self.window:
            bits += self._put("REFERENCES", node - copied)
        if copied != node:
            self.used["references"] += 1
            rest -= set(other)
            runs: list[int] = []  # lengths of runs that are copied, left out, copied...
            copying = True
            runs.append(0)
            for one in other:
                if (one in ids) != copying:
                    copying = not copying
                    runs.append(0)
                runs[-1] += 1
            runs.pop()  # the last follows from the length of the list
            bits += self._put("BLOCK_COUNT", len(runs))
            bits += "".join(self._put("BLOCKS", length - (i > 0)) for i, length in enumerate(runs))
        if rest and self.min_interval:
            bits += self._intervals(node, rest)
        previous = None
        for one in sorted(rest):
            self.used["residuals"] += 1
            bits += self._put("RESIDUALS", signed(one - node) if previous is None else one - previous - 1)
            previous = one
        return bits

    def _intervals(self, node: int, rest: set[int]) -> str:
        """Takes the runs of consecutive ids out of `rest`."""
        runs: list[list[int]] = []
        for one in sorted(rest):
            if runs and runs[-1][-1] == one - 1:
                runs[-1].append(one)
            else:
                runs.append([one])
        runs = [run for run in runs if len(run) >= self.min_interval]
        bits, end = gamma(len(runs)), None
        for run in runs:
            self.used["intervals"] += 1
            bits += gamma(signed(run[0] - node) if end is None else run[0] - end - 1)
            bits += gamma(len(run) - self.min_interval)
            end = run[-1] + 1
            rest -= set(run)
        return bits

    def write(self, base: Path, lists: Sequence[Sequence[int]], *, offsets: bool = True) -> None:
        """``BASE.graph``, ``BASE.properties`` and ``BASE.offsets``."""
        bits = self.lists(lists)
        base.with_suffix(".graph").write_bytes(packed("".join(bits)))
        flags = " | ".join(f"{what}_{name.upper()}" for what, name in self.codes.items())
        base.with_suffix(".properties").write_text(
            "#BVGraph properties\n#Sun Nov 01 00:00:00 UTC 2026\ngraphclass=it.unimi.dsi.webgraph.BVGraph\nversion=0\n"
            f"nodes={len(lists)}\narcs={sum(map(len, lists))}\nwindowsize={self.window}\nmaxrefcount={self.max_chain}\n"
            f"minintervallength={self.min_interval}\nzetak={self.zeta_k}\ncompressionflags={flags}\n"
        )
        if offsets:
            base.with_suffix(".offsets").write_bytes(packed("".join(self._offsets(bits))))

    def _offsets(self, bits: Iterable[str]) -> Iterable[str]:
        yield self._put("OFFSETS", 0)
        for one in bits:
            yield self._put("OFFSETS", len(one))
