"""Artifact types: what the stages read and write. One module per page in ``data_specs/``."""
