"""``metadata.yaml``, by which `dgl.graphbolt.OnDiskDataset` opens an export.

It is written as JSON, which YAML contains. Edges are pairs sorted by destination, so the CSC that GraphBolt makes of
them keeps their order, and values along the edges need no permutation.
"""

from __future__ import annotations

from typing import Any

from tiering.artifacts.manifest import relation_key

SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}
"""Names of the splits in GraphBolt."""


def metadata(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the dataset's description, from an ``export.json``; homogeneous graphs have no types in GraphBolt."""
    homogeneous, features, attributes = document["homogeneous"], [], []

    def of_type(key: str) -> dict[str, str]:
        return {} if homogeneous else {"type": key}

    def feature(domain: str, key: str, feature_name: str, file: dict[str, Any], in_memory: bool) -> dict[str, Any]:
        return {"domain": domain, **of_type(key), "name": feature_name, **_array(file), "in_memory": in_memory}

    nodes = [{**of_type(key), "num": entry["num_nodes"]} for key, entry in document["node_types"].items()]
    for key, entry in document["node_types"].items():
        if entry["feat"] is not None:
            features.append(feature("node", key, "feat", entry["feat"], in_memory=False))
    edges = []
    for relation in document["relations"]:
        key = relation_key((relation["src"], relation["name"], relation["dst"]))
        edges.append({**of_type(key), **_array(relation["edge_index"])})
        for part, file in relation["data"].items():
            features.append(feature("edge", key, part, file, in_memory=False))
            # With several relations GraphBolt would not bring attributes into the order of its edges.
            if part == "weight" and homogeneous:
                attributes.append(feature("edge", key, part, file, in_memory=True))
    graph = {"nodes": nodes, "edges": edges, **({"feature_data": attributes} if attributes else {})}
    return {"dataset_name": name, "graph": graph, "feature_data": features, "tasks": _tasks(document)}


def _tasks(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one task with the splits of all types that have labels, or of all types if none has.

    GraphBolt wants the sets of all types to consist of the same arrays.
    """
    types = document["node_types"]
    labelled = any(nodes["seed_labels"] for nodes in types.values())
    sets: dict[str, list[dict[str, Any]]] = {}
    classes = 0
    for key, nodes in types.items():
        for split in SETS:
            if split not in nodes["seed_labels" if labelled else "splits"]:
                continue
            data = [{"name": "seeds", **_array(nodes["splits"][split]), "in_memory": True}]
            if labelled:
                data.append({"name": "labels", **_array(nodes["seed_labels"][split]), "in_memory": True})
                classes = max(classes, nodes["num_classes"] or 0)
            typed = {} if document["homogeneous"] else {"type": key}
            sets.setdefault(SETS[split], []).append({**typed, "data": data})
    if not sets:
        return []
    return [{"name": "node_classification", **({"num_classes": classes} if labelled else {}), **sets}]


def _array(file: dict[str, Any]) -> dict[str, str]:
    return {"format": "numpy", "path": file["path"]}
