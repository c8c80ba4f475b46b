"""``graphbolt``: a directory that `dgl.graphbolt.OnDiskDataset` reads.

``metadata.yaml`` is written as JSON, which YAML contains. Edges are pairs sorted by destination, so that the CSC that
GraphBolt makes of them has them in the same order, and values along the edges need no permutation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiering.artifacts.manifest import relation_key
from tiering.exports.contents import Contents, ExportedFile

SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}
"""What GraphBolt calls the splits."""


def documents(name: str, contents: Contents) -> dict[str, str]:
    """``metadata.yaml``."""
    return {"metadata.yaml": json.dumps(metadata(name, contents), indent=1) + "\n"}


def metadata(name: str, contents: Contents) -> dict[str, Any]:
    """The description of the dataset; of a homogeneous graph without types."""

    def of_type(word: str) -> dict[str, str]:
        return {} if contents.homogeneous else {"type": word}

    def feature(domain: str, word: str, key: str, file: ExportedFile, in_memory: bool) -> dict[str, Any]:
        return {"domain": domain, **of_type(word), "name": key, **_array(file), "in_memory": in_memory}

    nodes = [{**of_type(key), "num": entry.num_nodes} for key, entry in contents.nodes.items()]
    edges, features = [], list[dict[str, Any]]()
    for key, entry in contents.nodes.items():
        if entry.feat is not None:
            features.append(feature("node", key, "feat", entry.feat, in_memory=False))
    attributes = []
    for relation in contents.edges:
        key = relation_key(relation.relation)
        edges.append({**of_type(key), **_array(relation.structure["edge_index"])})
        for part, file in relation.data.items():
            features.append(feature("edge", key, part, file, in_memory=False))
            # Of several relations GraphBolt would not bring them into the order of its edges.
            if part == "weight" and contents.homogeneous:
                attributes.append(feature("edge", key, part, file, in_memory=True))
    sampled = {"feature_data": attributes} if attributes else {}
    return {
        "dataset_name": name,
        "graph": {"nodes": nodes, "edges": edges, **sampled},
        "feature_data": features,
        "tasks": _tasks(contents),
    }


def _tasks(contents: Contents) -> list[dict[str, Any]]:
    """One task: the splits of all types that have labels, or of all if none has: GraphBolt wants the sets of types to
    consist of the same arrays.
    """
    labelled = any(nodes.seed_labels for nodes in contents.nodes.values())
    sets: dict[str, list[dict[str, Any]]] = {}
    classes = 0
    for key, nodes in contents.nodes.items():
        typed = {} if contents.homogeneous else {"type": key}
        for split in SETS:
            if split not in nodes.splits or (labelled and split not in nodes.seed_labels):
                continue
            data = [{"name": "seeds", **_array(nodes.splits[split]), "in_memory": True}]
            if labelled:
                data.append({"name": "labels", **_array(nodes.seed_labels[split]), "in_memory": True})
                classes = max(classes, nodes.num_classes or 0)
            sets.setdefault(SETS[split], []).append({**typed, "data": data})
    if not sets:
        return []
    return [{"name": "node_classification", **({"num_classes": classes} if labelled else {}), **sets}]


def _array(file: ExportedFile) -> dict[str, str]:
    return {"format": "numpy", "path": file.path}


def lines(out: Path, contents: Contents) -> list[str]:
    """Python that reads the export; the first time, GraphBolt makes its own form of it."""
    given = ["import dgl.graphbolt as gb", f"dataset = gb.OnDiskDataset({str(out)!r}).load()"]
    given.append("graph, features, tasks = dataset.graph, dataset.feature, dataset.tasks")
    return given
