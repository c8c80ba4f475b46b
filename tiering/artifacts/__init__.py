"""Bytes on disk, knowing nothing of graphs: raw arrays, checksums, atomic output directories."""
