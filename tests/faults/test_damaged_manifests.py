"""Manifests with a flipped bit never open; manifests that are changed and sealed again never end in a foreign error.

The second are what no disk makes, only a hand or a bug: they may open where nothing contradicts them, but whatever is
asked of them then is answered, or refused by an error of `tiering.errors`.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from campaign import Campaign
from damage import flip
from sealed import edit_manifest

import tiering
from tiering.artifacts.artifact import Artifact
from tiering.errors import TieringError

EXAMPLES = Path(__file__).resolve().parents[2] / "data_specs" / "examples"
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10.0, 0.5, 1e300, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 10**40,
    -(2**63), "", "paper", "author", "a\x1b[2Jb\nsound", "../..", "/", "\x00", "0" * 5000, "float32", "int64", "uint8",
    "xxh3-64-b64m:0123456789abcdef", "xxh3-128:" + "0" * 32, [], {}, [0], [0, 0], [1, 0], [-1, 2**62], {"a": {}},
]  # fmt: skip


@pytest.fixture
def examples(tmp_path):
    """Copies of the examples."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return sorted((tmp_path / "examples").iterdir())


def manifests(folder: Path) -> list[Path]:
    return sorted(folder.rglob("manifest.json"))


def opened(folder: Path) -> Artifact:
    found = tiering.open(folder)
    return getattr(found, "artifact", found)


@contextmanager
def restored(folder: Path) -> Iterator[None]:
    """Manifests are as they were, afterwards."""
    before = {manifest: manifest.read_bytes() for manifest in manifests(folder)}
    try:
        yield
    finally:
        for manifest, data in before.items():
            manifest.write_bytes(data)


def flip_some(luck: random.Random, trials: int, examples: list[Path]) -> None:
    for trial in range(trials):
        folder = luck.choice(examples)
        manifest = luck.choice(manifests(folder))
        with restored(folder):
            bit = luck.randrange(8 * manifest.stat().st_size)
            flip(manifest, bit)
            around = manifest.read_bytes()[max(0, bit // 8 - 20) : bit // 8 + 20]
            story = f"trial {trial}: bit {bit} of {manifest}: {around!r}"
            with pytest.raises(TieringError):
                opened(folder)
                pytest.fail(f"{story} opened")
            assert tiering.check(folder), story


def test_a_flipped_bit_is_refused(examples):
    flip_some(random.Random("a flipped bit"), 200, examples)


def places(document: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        yield (*prefix, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*prefix, key))


def mutate(document: dict[str, Any], luck: random.Random) -> str:
    """Change one place of a document."""
    where = luck.choice(list(places(document)))
    owner = document
    for key in where[:-1]:
        owner = owner[key]
    key, value = where[-1], owner[where[-1]]
    kind = luck.choice(["value", "value", "near", "drop", "rename", "copy", "swap"])
    if kind == "near" and isinstance(value, int):
        owner[key] = value + luck.choice([-8, -2, -1, 1, 2, 8, 64, 4096])
    elif kind == "drop":
        del owner[key]
    elif kind == "rename" and isinstance(owner, dict):
        owner[str(luck.choice(["", "x", "paper", "cites", "../x", f"{key}\n", f"{key}0", 7]))] = owner.pop(key)
    elif kind == "copy" and isinstance(owner, dict):
        owner[f"{key}x"] = copy.deepcopy(value)
    elif kind == "swap":
        other = luck.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
        owner[key], owner[other] = owner[other], owner[key]
    else:
        owner[key] = copy.deepcopy(luck.choice(VALUES))
    return f"{kind} at {where}"


def use(folder: Path) -> None:
    """Ask of an artifact all that there is to ask."""
    artifact = opened(folder)
    json.dumps(artifact.summary())
    problems = artifact.problems("full")
    if problems or artifact.kind != "layout":
        return
    with tiering.open(folder) as layout:
        for node_type in layout.feature_types:
            rows = layout.features(node_type, engine="threads", depth=2)
            rows.gather_numpy(list(range(rows.shape[0])))


def mutate_and_use(luck: random.Random, examples: list[Path]) -> str:
    """Mutate a manifest, seal it again and use the artifact; return how that ended."""
    folder, stories = luck.choice(examples), list[str]()
    manifest = luck.choice(manifests(folder))

    def change(document: dict[str, Any]) -> None:
        stories.extend(mutate(document, luck) for _ in range(luck.choice([1, 1, 2, 5])))

    with restored(folder):
        edit_manifest(manifest.parent, change)
        try:
            use(folder)
        except TieringError:
            return "refused"
        except Exception as error:
            raise AssertionError(f"{manifest}: {stories}: {type(error).__name__}: {error}") from error
    return "not contradicted by anything"


@pytest.mark.slow
def test_a_mutated_manifest_is_refused_in_our_words(examples):
    luck = random.Random("a mutated manifest")
    for _ in range(300):
        mutate_and_use(luck, examples)


@pytest.mark.long
def test_manifests(examples):
    def trial(luck: random.Random) -> str:
        if luck.random() < 0.8:
            return mutate_and_use(luck, examples)
        flip_some(luck, 1, examples)
        return "flipped and refused"

    Campaign("manifests").run(trial)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": "tiering.graph", "format": "tiering.graph"}', "key 'format' occurs twice"),
        ("[" * 990 + "]" * 990, "not valid JSON|expected a JSON object"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"format": "tiering.graph", "version": "1' + "0" * 5000 + '.0"}', "expected a version such as 1.0"),
        ('{"format": "tiering.graph", "version": "1.' + "0" * 5000 + '"}', "expected a version such as 1.0"),
        ("9" * 5000, "not valid JSON"),
        (" " * (4 << 20) + "{}", "expected at most 4194304 bytes, found 4194306"),
        ('{"format": "tiering.graph", "version": "1.1"}', "expected a `checksum` of the manifest, found none"),
        ("\ufeff{}", "not valid JSON"),
        ('"\\ud800"', "expected a JSON object"),
    ],
)
def test_what_is_no_manifest_is_refused_at_once(tmp_path, text, words):
    (tmp_path / "manifest.json").write_bytes(text.encode())
    with pytest.raises(TieringError, match=words):
        tiering.open(tmp_path)


@pytest.mark.slow
def test_many_entries_are_read_within_seconds(tmp_path):
    """As many files as fit: what opening costs is bounded by the size of a manifest. None of the files is there."""
    shutil.copytree(EXAMPLES / "graph", tmp_path / "graph")
    entry = {"bytes": 0, "checksum": "xxh3-64-b64m:2d06800538d394c2", "dtype": "int64", "shape": [0]}
    edit_manifest(tmp_path / "graph", lambda found: found["files"].update({f"f{k}": entry for k in range(20_000)}))
    with pytest.raises(TieringError, match=r"does not exist .* \(and \d+ more\)"):
        tiering.open(tmp_path / "graph")


def test_ten_is_not_ten_point_nought(tmp_path):
    shutil.copytree(EXAMPLES / "graph", tmp_path / "graph")
    edit_manifest(tmp_path / "graph", lambda found: found["body"]["node_types"]["paper"].update(num_nodes=4.0))
    with pytest.raises(TieringError, match=r"body.node_types.paper.num_nodes: 4.0 is not of type 'integer'"):
        tiering.open(tmp_path / "graph")


def test_the_first_unit_is_derived(tmp_path):
    """One wrong number there, and every row would be another's."""
    shutil.copytree(EXAMPLES / "layout", tmp_path / "layout")
    edit_manifest(
        tmp_path / "layout", lambda found: found["body"]["node_types"]["paper"]["ssd_rows"].update(first_unit=8)
    )
    with pytest.raises(TieringError, match=r"ssd_rows: expected SsdRows\(first_unit=0.*found SsdRows\(first_unit=8"):
        tiering.open(tmp_path / "layout")
