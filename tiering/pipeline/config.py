"""The configuration of a whole chain: a TOML file, read and checked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiering.arguments import check_names
from tiering.errors import InputError, MissingError
from tiering.memory import parse_memory

if TYPE_CHECKING:
    from tiering.layout import LayoutOptions

SECTIONS: dict[str, tuple[str, ...] | None] = {
    "dataset": None,
    "score": None,
    "reorder": ("first", "features"),
    "layout": ("gpu", "peer", "cpu", "ssd", "page", "adjacency_cache", "access_costs", "fit", "edge_features"),
    "output": ("dir",),
    "run": ("memory",),
}
"""Sections of the configuration and their keys.

``dataset`` takes path, format, edge_ids, checksum_features and the options of the source; ``score`` takes method, from
(a file, or a table of files by node type), train, seed and the options of the methods; ``first`` of ``reorder`` is as
from.
"""


@dataclass(frozen=True)
class ChainConfig:
    """A chain of stages to run; paths are absolute."""

    source: Path
    format: str
    edge_ids: bool
    dataset: dict[str, Any]
    """Further options of the source."""
    score: dict[str, Any]
    """Arguments of `tiering.pipeline.score_graph`."""
    first: Any
    """Nodes that come first: a file, or files by node type."""
    features: bool
    """Write the feature tables in rank order too."""
    layout: LayoutOptions
    """With an adjacency cache the layout needs the scores."""
    out: Path
    """Directory of the artifacts."""
    memory: str | int | None = None


def read_config(path: Path) -> ChainConfig:
    """Read a configuration; paths in it are relative to the file."""
    document, base = _sections(path), path.absolute().parent
    dataset, score, layout = document["dataset"], document["score"], document["layout"]
    if "from" in score:
        score["scores"] = _relative_files(score.pop("from"), base)
    if isinstance(score.get("train"), str):
        score["train"] = _relative_train(score["train"], base)
    return ChainConfig(
        source=base / str(dataset.pop("path")),
        format=str(dataset.pop("format", "auto")),
        edge_ids=bool(dataset.pop("edge_ids", False)),
        dataset=dataset,
        score=score,
        first=_relative_files(document["reorder"]["first"], base) if "first" in document["reorder"] else None,
        features=bool(document["reorder"].get("features", False)),
        layout=_layout_options(path, layout, score),
        out=base / str(document["output"].get("dir", ".")),
        memory=document["run"].get("memory"),
    )


def _sections(path: Path) -> dict[str, dict[str, Any]]:
    from tiering.scores.request import OPTIONS, check_options

    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    if not path.is_file():
        raise MissingError(f"{path}: no such file")
    try:
        document = toml.loads(path.read_text())
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from error
    _refuse_unknown(path, "section", document, tuple(SECTIONS))
    for name, section in document.items():
        if not isinstance(section, dict):
            raise InputError(f"{path}: {name}: expected a section [{name}], found {section!r}")
        _refuse_unknown(path, f"[{name}] key", section, SECTIONS[name] or _stage_keys(name))
        with _section(path, name):
            check_names(section)
    with _section(path, "score"):
        check_options({name: value for name, value in document.get("score", {}).items() if name in OPTIONS})
    with _section(path, "run"):
        parse_memory(document.get("run", {}).get("memory"))
    if "path" not in document.get("dataset", {}):
        raise InputError(f"{path}: [dataset] path: expected the path of the dataset, found none")
    return {name: dict(document.get(name, {})) for name in SECTIONS}


def _stage_keys(section: str) -> tuple[str, ...]:
    """Return the keys of a section that a stage defines."""
    if section == "score":
        from tiering.scores.request import OPTIONS

        return ("method", "from", "train", "seed", *OPTIONS)
    from tiering.datasets.options import ImportOptions
    from tiering.pipeline.commands import CHECKSUM_FEATURES

    return ("path", "format", "edge_ids", CHECKSUM_FEATURES, *(field.name for field in fields(ImportOptions)))


@contextmanager
def _section(path: Path, name: str) -> Iterator[None]:
    """Say in which section what is refused stands: now, not after the stages before."""
    try:
        yield
    except (InputError, MissingError) as error:
        raise type(error)(f"{path}: [{name}] {error}") from None


def _layout_options(path: Path, section: dict[str, Any], score: Mapping[str, Any]) -> LayoutOptions:
    from tiering.layout import LayoutOptions
    from tiering.scores.methods import AUTO, METHODS

    base, folders = path.absolute().parent, section.get("ssd", [])
    section["ssd"] = [base / str(folder) for folder in ([folders] if isinstance(folders, str) else folders)]
    if "access_costs" in section:
        section["access_costs"] = base / str(section["access_costs"])
    if section.get("fit", "auto") != "auto":
        section["fit"] = base / str(section["fit"])
    with _section(path, "layout"):
        options = LayoutOptions.of(**section)
    sampled = [name for name, method in METHODS.items() if "fanouts" in method.options]
    method = score.get("method", AUTO)
    knows = "scores" not in score and (method in sampled or (method == AUTO and "fanouts" in score))
    if options.cache is not None and not knows:
        raise InputError(
            f"{path}: [layout] adjacency_cache: needs scores that know the sampler; give [score] fanouts, such as "
            f"[10, 10], and method {', '.join(sampled)} or none"
        )
    return options


def _refuse_unknown(path: Path, what: str, section: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(set(section) - set(known))
    if unknown:
        raise InputError(f"{path}: unknown {what} {', '.join(unknown)}; known are {', '.join(known)}")


def _relative_files(value: Any, base: Path) -> Any:
    """Make a file, or files by node type, relative to the configuration."""
    if isinstance(value, Mapping):
        return {name: base / str(file) for name, file in value.items()}
    return base / str(value)


def _relative_train(train: str, base: Path) -> str:
    """Make the files in a training set's text relative to the configuration; shares and splits stay as they are."""
    parts = []
    for part in train.split(",") if "=" in train else [train]:
        name, sign, value = part.rpartition("=")
        file = base / value.strip()
        parts.append(f"{name}{sign}{file if file.exists() else value}")
    return ",".join(parts)
