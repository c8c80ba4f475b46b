"""Exports: a layout or graph as ``.npy`` files, which other programs read."""
