"""The door to the C++ core: the only module that imports ``tiering._native``.

Everything here takes and returns numpy arrays, releases the GIL, and gives the same bytes for any number of
threads. The functions check types, shapes and ranges and raise `tiering.errors.RefusedError` (a failed system
call: ``OSError``) with the argument's name; callers that know the file behind an argument add its path.

Signatures: ``tiering/_native.pyi``, which the build makes; meaning: ``ext/include/tiering``.
"""

from __future__ import annotations

from tiering.errors import CapabilityError

try:
    import tiering._native as _native
except ImportError as error:
    raise CapabilityError(
        f"the compiled core tiering._native cannot be loaded ({error}). Build it in the source directory "
        "with `pip install --no-build-isolation -e .`, or install a wheel"
    ) from error

build_info = _native.build_info

# graph
coo_to_csc = _native.coo_to_csc
transpose = _native.transpose
check_indptr = _native.check_indptr
check_csc = _native.check_csc
scattered_bytes = _native.scattered_bytes
count_buckets = _native.count_buckets
scatter_edges = _native.scatter_edges
sort_runs = _native.sort_runs
out_degrees = _native.out_degrees
rmat_edges = _native.rmat_edges

# scores
plan_sweeps = _native.plan_sweeps
reverse_pagerank = _native.reverse_pagerank
inclusion_probability = _native.inclusion_probability

# reorder
relabel_csc = _native.relabel_csc
relabel_indptr = _native.relabel_indptr
place_indices = _native.place_indices
place_values = _native.place_values
rename_sources = _native.rename_sources
sort_by_score = _native.sort_by_score
ScoreSorter = _native.ScoreSorter
gather_rows = _native.gather_rows
scatter_rows = _native.scatter_rows

# sampling
Sampler = _native.Sampler
cumulative_weights = _native.cumulative_weights
epoch_order = _native.epoch_order
MOST_VISITS = _native.MOST_VISITS

# io
ALIGNMENT = _native.ALIGNMENT
DEFAULT_DEPTH = _native.DEFAULT_DEPTH
page_hashes = _native.page_hashes
GatherStats = _native.GatherStats
SsdReader = _native.SsdReader
StreamReader = _native.StreamReader
TieredTable = _native.TieredTable
uring_unavailable = _native.uring_unavailable

__all__ = [
    "ALIGNMENT",
    "DEFAULT_DEPTH",
    "MOST_VISITS",
    "GatherStats",
    "Sampler",
    "ScoreSorter",
    "SsdReader",
    "StreamReader",
    "TieredTable",
    "build_info",
    "check_csc",
    "check_indptr",
    "coo_to_csc",
    "count_buckets",
    "cumulative_weights",
    "epoch_order",
    "gather_rows",
    "inclusion_probability",
    "out_degrees",
    "page_hashes",
    "place_indices",
    "place_values",
    "plan_sweeps",
    "relabel_csc",
    "relabel_indptr",
    "rename_sources",
    "reverse_pagerank",
    "rmat_edges",
    "scatter_edges",
    "scatter_rows",
    "scattered_bytes",
    "sort_by_score",
    "sort_runs",
    "transpose",
    "uring_unavailable",
]
