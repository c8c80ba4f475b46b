"""Benchmarks: each kernel and stage beside its peers and the machine's limit, in one process. `tiering bench`."""
