"""The package's version, importable from every layer."""

__version__ = "0.2.0"
