"""Training on a GPU: tiers in its memory, rows and batches that arrive there.

Where to look: `device` (torch's side of a GPU), `locked` (host memory that GPUs read), `tiers` and `features` (gather),
`staging` (rows of the ssd tier), `peers` (GPUs of other processes), `adjacency` and `sampler` (sampling by the GPU),
`batches` (what the loader runs). Kernels: ``ext/cuda``.
"""
