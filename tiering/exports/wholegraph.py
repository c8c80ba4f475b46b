"""``wholegraph``: files without header, which WholeGraph and cuGraph-PyG load past the page cache."""

from __future__ import annotations

from pathlib import Path

from tiering.exports.contents import Contents, ExportedFile

DTYPES = frozenset({"float32", "float16", "float64", "bfloat16", "int8", "int16", "int32", "int64"})
"""Element types that WholeGraph knows."""


def lines(out: Path, contents: Contents) -> list[str]:
    """Python that loads the adjacency of a relation and the features of a type, once WholeGraph is initialized."""
    given = ["import torch", "from cugraph_pyg.tensor import DistEmbedding, DistTensor"]
    feat = next((nodes.feat for nodes in contents.nodes.values() if nodes.feat is not None), None)
    if feat is not None:
        given.append(f"features = DistEmbedding({_arguments(out, feat)})")
    for edges in contents.edges[:1]:
        given += [f"{part} = DistTensor({_arguments(out, file)})" for part, file in edges.structure.items()]
    return given


def _arguments(out: Path, file: ExportedFile) -> str:
    return f"[{str(out / file.path)!r}], shape={list(file.shape)}, dtype=torch.{file.dtype}"
