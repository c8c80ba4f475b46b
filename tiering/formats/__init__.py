"""Artifact types: one module per page of ``data_specs``, and what crosses between stages."""
