"""Benchmarks of rows that a codec stores: gathers, accuracy of training, sizes, and rows on a disk without padding."""
