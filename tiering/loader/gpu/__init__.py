"""Training on a GPU: tiers in its memory, rows and batches that arrive there.

Where to look: `device` (torch's side of a GPU), `memory` (pinned host memory, files on a GPU), `tiers` and `features`
(gather), `staging` (rows of the ssd tier), `peers` (processes that share memory), `adjacency`, `peer_adjacency` and
`sampler` (sampling by the GPU), `batches` (what the loader runs). Kernels: ``ext/cuda``.
"""
