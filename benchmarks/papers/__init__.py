"""Figures of the papers behind the toolkit, made again on a machine without a GPU: ``python -m benchmarks papers``."""
