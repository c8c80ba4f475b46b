"""Training on a GPU: tiers in its memory, rows and batches that arrive there.

Where to look: `device` (torch's side of a GPU), `tiers` (memory filled from files, shared with peers), `rows` and
`gather` (rows by rank), `adjacency` (lists to sample from), `batches` (sampling and gathering). Kernels: ``ext/cuda``.
"""
