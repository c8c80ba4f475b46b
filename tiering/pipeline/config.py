"""The configuration of a whole chain: a TOML file, read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiering.artifacts.storage import require_file
from tiering.datasets.options import ImportOptions
from tiering.errors import InputError, MissingError, spell_options
from tiering.layout.options import BATCHES, LayoutOptions
from tiering.memory import parse_memory
from tiering.pipeline.sources import CHECKSUM_FEATURES
from tiering.readahead.disks import read_toml
from tiering.scores.options import AUTO, OPTIONS, SAMPLING
from tiering.scores.plan import METHODS
from tiering.scores.request import check_options
from tiering.text.arguments import check_names, is_url, require_local
from tiering.text.options import accept_spelling, options_of


@dataclass(frozen=True)
class ChainConfig:
    """A chain of stages to run, as arguments of their functions; paths are absolute, `out` holds the artifacts."""

    path: Path  # of the file
    source: Path | str  # text: a URL
    dataset: dict[str, Any]
    score: dict[str, Any]
    reorder: dict[str, Any]
    layout: LayoutOptions
    out: Path
    memory: str | int | None = None


def read_config(path: Path) -> ChainConfig:
    """Read a configuration; paths in it are relative to the file."""
    document, base = _sections(path), path.absolute().parent
    dataset, score, reorder = document["dataset"], document["score"], document["reorder"]
    if "from" in score:
        score["scores"] = _relative_files(score.pop("from"), base)
    if "first" in reorder:
        reorder["first"] = _relative_files(reorder["first"], base)
    if "cache" in dataset:
        dataset["cache"] = base / str(dataset["cache"])
    for name in ("train", "seed_time"):
        value = score.get(name)
        if isinstance(value, Mapping):
            value = ",".join(f"{kind}={one}" for kind, one in value.items())
        elif isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = ",".join(value)
        if isinstance(value, str):
            score[name] = _relative_train(value, base)
    return ChainConfig(
        path=path,
        source=source if is_url(source := str(dataset.pop("path"))) else base / source,
        dataset=dataset,
        score=score,
        reorder=reorder,
        layout=_layout_options(path, document["layout"], score),
        out=base / str(document["output"].get("dir", ".")),
        memory=document["run"].get("memory"),
    )


def _sections(path: Path) -> dict[str, dict[str, Any]]:
    document, known = read_toml(require_file(path, "a TOML file that describes a chain")), known_keys()
    accept_spelling(document.get("dataset"), "num_labeled", "num_labelled")
    _refuse_unknown(path, "section", document, tuple(known))
    for name, section in document.items():
        if not isinstance(section, dict):
            raise InputError(f"{path}: {name}: expected a section [{name}], found {section!r}")
        _refuse_unknown(path, f"[{name}] key", section, known[name])
        with in_section(path, name):
            check_names(section)
            require_local(**({**section, "path": ""} if name == "dataset" else section))
    with in_section(path, "dataset"):
        own = {name: value for name, value in document.get("dataset", {}).items() if name in options_of(ImportOptions)}
        ImportOptions.parse(own)
    with in_section(path, "score"):
        check_options({name: value for name, value in document.get("score", {}).items() if name in OPTIONS})
    with in_section(path, "run"):
        parse_memory(document.get("run", {}).get("memory"))
    if "path" not in document.get("dataset", {}):
        raise InputError(f"{path}: [dataset] path: is missing; add the path of the dataset")
    return {name: dict(document.get(name, {})) for name in known}


def known_keys() -> dict[str, tuple[str, ...]]:
    """Return the keys of each section."""
    return {
        "dataset": ("path", "format", "edge_ids", CHECKSUM_FEATURES, *options_of(ImportOptions), "work_dir"),
        "score": ("method", "from", "train", "seed", *OPTIONS, "seed_time"),
        "reorder": ("first", "features"),
        "layout": (*options_of(LayoutOptions), *BATCHES),
        "output": ("dir",),
        "run": ("memory",),
    }


@contextmanager
def in_section(path: Path, name: str) -> Iterator[None]:
    """Raise what is refused with the file, and with the section and key that it names."""
    try:
        yield
    except (InputError, MissingError) as error:
        text = spell_options(str(error.args[0]), name, known_keys()[name]).removeprefix(f"{path}: ")
        raise type(error)(f"{path}: {text}" if text.startswith("[") else f"{path}: [{name}] {text}") from None


def _layout_options(path: Path, section: dict[str, Any], score: Mapping[str, Any]) -> LayoutOptions:
    base, folders = path.absolute().parent, section.get("ssd", [])
    section["ssd"] = [base / str(folder) for folder in ([folders] if isinstance(folders, str) else folders)]
    for name in ("access_costs", "fit"):
        if section.get(name, "auto") != "auto":
            section[name] = base / str(section[name])
    with in_section(path, "layout"):
        options = LayoutOptions.of({name: score[name] for name in SAMPLING if name in score}, **section)
    sampled = [name for name, method in METHODS.items() if "fanouts" in method.options]
    method = score.get("method", AUTO)
    knows = "scores" not in score and (method in sampled or (method == AUTO and "fanouts" in score))
    if options.cache is not None and not knows:
        raise InputError(
            f"{path}: [layout] adjacency_cache: needs scores that know the sampler; add [score] fanouts, such as "
            f"[10, 10], and set [score] method to {', '.join(sampled)}, or remove it"
        )
    return options


def _refuse_unknown(path: Path, what: str, section: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(set(section) - set(known))
    if unknown:
        raise InputError(f"{path}: unknown {what} {', '.join(unknown)}; known: {', '.join(known)}")


def _relative_files(value: Any, base: Path) -> Any:
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
