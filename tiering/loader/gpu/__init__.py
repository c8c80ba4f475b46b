"""Training on a GPU: tiers in its memory, rows and batches that arrive there.

Where to look: `device` (torch's side of a GPU), `memory` (filled from files, shared with peers), `tiers` (where each
tier lies), `rows` and `gather` (rows by rank), `adjacency` (lists to sample from), `batches` (sampling and gathering).
Kernels: ``ext/cuda``.
"""
