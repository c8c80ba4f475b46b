"""`tiering transpose`: turn every edge round."""

from __future__ import annotations

from . import options as opts
from .describe import print_artifact


def transpose_command(
    graph: opts.GraphArgument,
    out: opts.OutOption,
    memory: opts.MemoryOption = "auto",
    threads: opts.ThreadsOption = "auto",
    force: opts.ForceOption = False,
    no_verify: opts.NoVerifyOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Turn every edge round, to sample along out-edges: relation NAME becomes rev_NAME."""
    from tiering import pipeline

    turned = pipeline.transpose(graph, out, memory=memory, threads=threads, force=force, verify=not no_verify)
    print_artifact(turned, json)
