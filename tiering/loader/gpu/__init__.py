"""Training on a GPU: tiers in its memory, rows and batches that arrive there.

Where to look: `device` (torch's side of a GPU, memory that it reads), `peer_memory` (of other processes' GPUs), `tiers`
(where the rows of each tier are, rows of the ssd tier on their way), `gather`, `adjacency` (lists to sample from),
`batches` (what the loader runs: sampler and gathering). Kernels: ``ext/cuda``.
"""
