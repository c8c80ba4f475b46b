"""The runs of the ledger: small datasets, the commands that make artifacts of them, and the ways to cut the work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Cli = Callable[..., Any]
CUTS = {
    "one part": [],
    "tiny memory": ["--memory"],
    "3 tasks": ["--executor", "local", "--shards", "3", "--workers", "2"],
    "7 tasks": ["--executor", "local", "--shards", "7", "--workers", "2"],
}
"""How the work is cut, by name: options of every command. After ``--memory`` comes the least that a command accepts."""
_NOT_COMPARED = {"provenance", "parts", "checksum", "graph_digest", "source"}
"""Keys of JSON documents: what was asked for and where, and digests of that."""


def write_odd_dataset(folder: Path) -> Path:
    """Parallel edges, self loops, a hub, isolated nodes, weights, 14-byte rows, NaN labels."""
    random, nodes, edges = np.random.default_rng(3), 700, 5000
    src = random.integers(0, nodes // 2, edges)
    dst = np.where(random.random(edges) < 0.3, 17, (random.random(edges) ** 3 * nodes).astype(np.int64))
    src[:50], dst[:50] = src[50:100], dst[50:100]
    dst[100:120] = src[100:120]
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.stack([src, dst]))
    np.save(folder / "edge_weight.npy", random.random(edges).astype(np.float32))
    np.save(folder / "edge_feat.npy", random.random((edges, 3)).astype(np.float16))
    np.save(folder / "node_feat.npy", random.random((nodes, 7)).astype(np.float16))
    labels = random.integers(0, 4, nodes).astype(np.float32)
    labels[::9] = np.nan
    np.save(folder / "node_label.npy", labels)
    for name, ids in zip(("train", "val", "test"), np.split(random.permutation(nodes)[:270], 3), strict=True):
        np.save(folder / f"{name}_idx.npy", ids)
    return folder


def write_types(folder: Path) -> Path:
    """Four node types, of which one has no features; seven relations."""
    from tiering import generate_dataset

    generate_dataset(folder, nodes=900, edges=9000, dim=5, hetero=True, featureless=["institute"])
    return folder


def write_names(folder: Path) -> Path:
    """Comma-separated text: names as ids, a header, weights, and nodes in their own file."""
    random, nodes, edges = np.random.default_rng(5), 300, 4000
    folder.mkdir()
    names = [f"node {i * 7919 % 1000}" for i in range(nodes)]
    pairs = (random.random((edges, 2)) ** 2 * nodes).astype(int)
    lines = [f'"{names[u]}",{names[v]},{w:.3f}' for (u, v), w in zip(pairs, random.random(edges), strict=True)]
    (folder / "edges.csv").write_text("\n".join(["src,dst,weight", *lines]) + "\n")
    return folder


def write_large(folder: Path) -> Path:
    """So many edges in one relation that the least memory cuts them."""
    random, nodes, edges = np.random.default_rng(7), 20_000, 300_000
    folder.mkdir()
    pairs = np.stack([random.random(edges) ** 2 * nodes, random.random(edges) ** 4 * nodes]).astype(np.int32)
    np.save(folder / "edge_index.npy", pairs)
    np.save(folder / "edge_weight.npy", random.random(edges).astype(np.float32))
    np.save(folder / "node_feat.npy", random.random((nodes, 12)).astype(np.float32))
    np.save(folder / "train_idx.npy", random.permutation(nodes)[:2000])
    return folder


DATASETS = {"odd": write_odd_dataset, "types": write_types, "names": write_names, "large": write_large}
_IMPORTS = {
    "odd": ["odd", "--edge-ids"],
    "types": ["types", "--split", "0.3,0.3,0.4"],
    "names": [
        "names/edges.csv", "--string-ids", "--header", "--delimiter", ",", "--weight-column", "weight",
        "--src-column", "src", "--dst-column", "dst", "--add-reverse", "--deduplicate", "--split", "0.4,0.3,0.3",
    ],
    "large": ["large", "--self-loops", "remove"],
}  # fmt: skip
_FANOUTS = ["--fanouts", "4,3", "--batch-size", "64"]
_SCORES = {
    "random": ["--method", "random", "--seed", "4"],
    "degree": ["--method", "degree"],
    "rpr": ["--method", "rpr", "--tolerance", "1e-2"],
    "wrpr": ["--method", "wrpr", "--teleport", "train"],
    "presample": ["--method", "presample", *_FANOUTS, "--epochs", "2"],
    "vip": ["--method", "vip", *_FANOUTS],
    "hybrid": ["--method", "hybrid", *_FANOUTS, "--sampler", "replacement"],
}
_TIERS = ["--gpu", "5%", "--peer", "2x4%", "--cpu", "30%", "--ssd", "ssd0", "--ssd", "ssd1", "--page", "512"]


def commands_of(dataset: str) -> list[list[str]]:
    """Commands in order; each writes the directory named behind ``--out``."""
    made = [["import", *_IMPORTS[dataset], "--out", "graph"]]
    made += [["score", "graph", "--out", f"scores-{name}", *options] for name, options in _SCORES.items()]
    made += [["reorder", "graph", "--scores", "scores-hybrid", "--out", "ranked"]]
    layout = ["layout", "ranked", "--out", "tiers"]
    if dataset == "names":
        return [*made, [*layout, "--gpu", "20KiB", "--adjacency-cache", "30%", "--scores", "scores-hybrid"]]
    made += [["reorder", "graph", "--scores", "scores-degree", "--out", "ranked-rows", "--features"]]
    made += [[*layout, *_TIERS], ["layout", "ranked-rows", "--out", "tiers-rows", "--cpu", "50%", "--ssd", "ssd2"]]
    made += [["layout", "ranked", "--out", "tiers-inner", "--cpu", "20%", "--ssd", "tiers-inner/ssd"]]
    return [*made, ["export", "ranked", "--out", "exported"]]


def run_all(cli: Cli, dataset: str, cut: str) -> dict[str, str]:
    """Run all commands in the working directory, which holds the dataset; digests of every file that they wrote."""
    for command in commands_of(dataset):
        if command[0] == "export" and "tasks" in cut:
            continue  # one process does it
        if cut == "tiny memory":
            run_in_least_memory(cli, command)
        else:
            cli(*command, *CUTS[cut]).ok()
    return digests(Path(), without=dataset)


def run_in_least_memory(cli: Cli, command: list[str]) -> None:
    """Run a command with the least power of two of memory that it accepts."""
    for exponent in range(16, 40):
        result = cli(*command, "--memory", str(1 << exponent))
        if result.code == 0:
            return
        assert "memory" in result.err, result.err
    raise AssertionError(f"no memory is enough for {command}")


def digests(folder: Path, without: str) -> dict[str, str]:
    """Digests of the files below a folder; a manifest counts without its provenance, and what follows from that."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        stripes = name.startswith("ssd")  # they lie in a folder that is named by the layout's digest, beside its path
        if not path.is_file() or name.split("/")[0] == without or (stripes and path.name == "layout"):
            continue
        content = path.read_bytes()
        if path.name in ("manifest.json", "export.json"):
            content = json.dumps(_plain(json.loads(content)), sort_keys=True).encode()
        found[_stable_name(name)] = hashlib.blake2b(content, digest_size=8).hexdigest()
    return found


def _stable_name(name: str) -> str:
    parts = name.split("/")
    return "/".join([parts[0], parts[1].split(".")[0], *parts[2:]]) if parts[0].startswith("ssd") else name


def _plain(value: Any) -> Any:
    """A JSON document without what is not compared, and without absolute paths."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in _NOT_COMPARED}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return "..." if isinstance(value, str) and value.startswith("/") else value
