"""Commands that read a graph with hostile numbers in it: each ends well or says in one line what is wrong."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign import Campaign
from crash_injection import CrashInjection, clear
from trials import done, error_lines

SAMPLERS = ("uniform", "replacement", "weighted", "full", "pinsage", "ladies")
FANOUTS = "--fanouts 3,3 --batch-size 64 --threads 2"
SAMPLED = [f"--sampler {name} {FANOUTS}".replace("3,3", "-1,-1" if name == "full" else "3,3") for name in SAMPLERS]
COMMANDS = {
    "graph": [
        "score {}/graph --out @/out --method degree",
        "score {}/graph --out @/out --method rpr",
        "score {}/graph --out @/out --method wrpr --threads 2",
        f"score {{}}/graph --out @/out --method vip {FANOUTS}",
        f"score {{}}/graph --out @/out --method vip --frontier new --sampler replacement {FANOUTS}",
        f"score {{}}/graph --out @/out --method hybrid {FANOUTS}",
        *(f"score {{}}/graph --out @/out --method presample {how}" for how in SAMPLED),
        *(f"evaluate {{}}/graph --resamples 0 {how}" for how in SAMPLED),
        f"evaluate {{}}/graph --scores {{}}/scores --gpu 10% --cpu 20% --ssd {FANOUTS}",
        "reorder {}/graph --scores {}/scores --out @/out",
        "reorder {}/graph --scores {}/scores --out @/out --features --threads 2",
        "info {}/graph",
    ],
    "scores": [
        "reorder {}/graph --scores {}/scores --out @/out",
        f"evaluate {{}}/graph --scores {{}}/scores {FANOUTS}",
    ],
    "reordered": [
        *(f"evaluate {{}}/reordered --resamples 0 {how}" for how in SAMPLED),
        "layout {}/reordered --out @/out --gpu 10% --cpu 40% --ssd @/ssd",
        "layout {}/reordered --out @/out --gpu 10% --adjacency-cache 30% --scores {}/scores",
        "layout {}/reordered --out @/out --gpu 10% --adjacency-cache auto --scores {}/scores",
    ],
    "layout": [f"train {name}" for name in SAMPLERS] + ["info {}/layout"],
}
VARIANTS = {"reorder": ["plain", "windows", "passes"]}
"""What is made small, besides nothing: then work is done out of core."""
BESIDES = ("cpu", "gpu", "ssd", "manifest.json")
"""Files of an artifact that hold no graph."""


@dataclass(frozen=True)
class Damage:
    """Numbers of an array on disk, replaced; and what stood there."""

    path: Path
    before: bytes

    @classmethod
    def strike(cls, path: Path, dtype: str, luck: random.Random) -> Damage:
        """Damage an array somewhere."""
        damage = cls(path, path.read_bytes())
        values = np.frombuffer(damage.before, dtype).copy()
        at, other = luck.randrange(values.size), luck.randrange(values.size)
        kind = luck.randrange(4)
        if kind == 0:
            values[[at, other]] = values[[other, at]]
        elif kind == 1:
            values[at : at + luck.randrange(1, 40)] = hostile(values, luck)
        else:
            values[luck.choice([at, values.size - 1, 0])] = hostile(values, luck)
        path.write_bytes(values.tobytes())
        return damage

    def undo(self) -> None:
        """Put back what stood there."""
        self.path.write_bytes(self.before)


def hostile(values: np.ndarray[Any, Any], luck: random.Random) -> Any:
    """A number that no graph holds there, or seldom."""
    if values.dtype.kind == "f":
        return luck.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300 if values.itemsize == 8 else 3e38])
    bounds, size = np.iinfo(values.dtype), values.size
    numbers = [0, 1, -1, bounds.min, bounds.min + 1, bounds.max, bounds.max - 1, 2**31, 2**31 - 1, -(2**31), 2**62]
    numbers += [-(2**62), size, size + 1, size - 1, 2 * size, luck.randrange(size)]
    return luck.choice([number for number in numbers if bounds.min <= number <= bounds.max])


class DamagedGraphs:
    """Trials on a graph with weights, and on what is made of it."""

    def __init__(self, crash_injection: CrashInjection, folder: Path) -> None:
        self._crashes, self.folder, self.out = crash_injection, folder, folder / "made"
        done(
            crash_injection.run(
                *f"generate {folder}/data --nodes 400 --edges 3000 --dim 12 --classes 2 --hetero".split()
            )
        )
        for edges in folder.glob("data/processed/*/edge_index.npy"):
            count = max(np.load(edges).shape)
            np.save(edges.parent / "edge_weight.npy", np.random.default_rng(1).random(count, np.float32) + 0.1)
        clear(self.out)
        for command in (
            "import {}/data --out {}/graph --edge-ids",
            "score {}/graph --out {}/scores --method hybrid --fanouts 3,3",
            "reorder {}/graph --scores {}/scores --out {}/reordered",
            "layout {}/reordered --out {}/layout --cpu 40% --ssd {}/ssd",
        ):
            done(self.run(command))
        self._unverified = {
            name for name in ("score", "evaluate", "reorder", "layout", "info")
            if "--no-verify" in crash_injection.run(name, "--help")["out"]
        }  # fmt: skip
        self._arrays = {name: self._find(folder / name) for name in COMMANDS}

    def _find(self, artifact: Path) -> list[tuple[Path, str]]:
        """Arrays of an artifact and of its parts, with their dtypes."""
        found = []
        for manifest in sorted(artifact.rglob("manifest.json")):
            files = json.loads(manifest.read_text())["files"]
            for name, entry in files.items():
                if entry["bytes"] and (manifest.parent / name).name not in BESIDES:
                    found.append((manifest.parent / name, entry["dtype"]))
        return found

    def run(self, command: str, variant: str = "plain") -> dict[str, Any]:
        """Run a command, past the checksums where that can be asked for."""
        name, *rest = command.replace("{}", str(self.folder)).replace("@", str(self.out)).split()
        if name == "train":
            options = {
                "fanouts": [-1, -1] if rest == ["full"] else [3, 3],
                "batch_size": 64,
                "sampler": rest[0],
                "prefetch": 1,
            }
            return self._crashes.run(self.folder / "layout", json.dumps(options), program="train")
        more = ["--no-verify"] if name in getattr(self, "_unverified", ()) else []
        return self._crashes.run(name, *rest, *more, variant=variant)

    def trial(self, luck: random.Random) -> str:
        """Damage an artifact, run a command that reads it, judge how it ends: ``undamaged``, ``refused`` or
        ``finished``.

        One artifact in eight is not damaged, and must not be refused.
        """
        kind = luck.choices(list(COMMANDS), [6, 1, 4, 3])[0]
        command = luck.choice(COMMANDS[kind])
        variant = luck.choice(VARIANTS.get(command.split()[0], ["plain"]))
        struck = [] if luck.random() < 0.125 else [self._choose(kind, luck) for _ in range(luck.randrange(1, 3))]
        damages = [Damage.strike(*each, luck) for each in struck]
        clear(self.out)
        try:
            answer = self.run(command, variant)
        finally:
            for damage in reversed(damages):
                damage.undo()
        where = ", ".join(str(path.relative_to(self.folder)) for path, _ in struck)
        story = f"{command} ({variant}) after damage to {where}: {answer['code']}: {answer['err'][-3000:]}"
        lines = error_lines(answer)
        assert answer["code"] in ((0, 1) if struck else (0,)), story
        assert answer["code"] == 0 or (len(lines) == 1 and lines[0].startswith("error: ")), story
        assert "internal error" not in answer["err"] and "Traceback" not in answer["err"], story
        return "refused" if answer["code"] else "finished" if struck else "undamaged"

    def _choose(self, kind: str, luck: random.Random) -> tuple[Path, str]:
        """An array to damage: those of one name are as likely as those of another, adjacency is likelier."""
        names = sorted({path.name for path, _ in self._arrays[kind]})
        name = luck.choices(names, [4 if each in ("indptr", "indices") else 1 for each in names])[0]
        return luck.choice([entry for entry in self._arrays[kind] if entry[0].name == name])


@pytest.mark.slow
def test_damaged_adjacency(crash_injection, tmp_path):
    graphs = DamagedGraphs(crash_injection, tmp_path)
    ends = [graphs.trial(random.Random(f"1 {number}")) for number in range(12)]
    assert "refused" in ends, ends


@pytest.mark.long
def test_damaged_graphs(crash_injection, tmp_path):
    Campaign("graphs").run(DamagedGraphs(crash_injection, tmp_path).trial)
