"""`tiering transpose`: turn every edge round."""

from __future__ import annotations

from tiering.units import parse_threads

from .describe import print_artifact
from .options import ForceOption, GraphArgument, JsonOption, MemoryOption, NoVerifyOption, OutOption, ThreadsOption


def transpose_command(
    graph: GraphArgument,
    out: OutOption,
    memory: MemoryOption = "auto",
    threads: ThreadsOption = "auto",
    force: ForceOption = False,
    no_verify: NoVerifyOption = False,
    json: JsonOption = False,
) -> None:
    """Turn every edge round, to sample along out-edges: relation NAME becomes rev_NAME."""
    from tiering import pipeline

    turned = pipeline.transpose(
        graph, out, memory=memory, threads=parse_threads(threads), force=force, verify=not no_verify
    )
    print_artifact(turned, json)
