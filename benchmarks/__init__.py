"""Benchmarks: kernels and stages against their peers, the machine's limits and other checkouts. See `__main__`."""
