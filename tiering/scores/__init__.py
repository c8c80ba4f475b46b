"""Scores: how often each node's feature row, and each adjacency list, is expected to be read in training."""
