"""Benchmarks: kernels and stages beside their peers, the machine's limits and other checkouts. See `__main__`."""
