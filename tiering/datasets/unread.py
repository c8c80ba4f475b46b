"""Kinds of files that are not read, and the Python or command that converts each to one that is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tiering.errors import InputError

_NETWORKX = (
    "import networkx as nx, scipy.sparse; scipy.sparse.save_npz('edges.npz', "
    "nx.to_scipy_sparse_array(nx.read_{name}({path!r}), weight=None))"
)
_PANDAS = "import pandas; pandas.read_{name}({path!r}).to_parquet('edges.parquet')"
_ARROW = (
    "import pyarrow.{name}, pyarrow.parquet; pyarrow.parquet.write_table(pyarrow.{name}.read_table({path!r}), "
    "'edges.parquet')"
)
_SQLITE = (
    "import sqlite3, pandas; pandas.read_sql('select src, dst from edges', sqlite3.connect({path!r}))"
    ".to_parquet('edges.parquet'), with the names of its table and columns"
)
_HDF5 = (
    "import h5py, numpy; numpy.save('edge_index.npy', h5py.File({path!r})['edge_index'][:]), with the name of its array"
)
_TRIPLES = (
    'awk \'{{print $1 "\\t" $2 "\\t" $3}}\' {path} > triples.tsv, then tiering import '
    "--relation node:rel:node=triples.tsv --src-column 0 --type-column 1 --dst-column 2 --no-header"
)
_RDF = "import rdflib; rdflib.Graph().parse({path!r}).serialize('triples.nt', format='nt'), then import triples.nt"
_CONVERSIONS = {  # suffix of a file or directory -> what it is, how to convert it, and the name that this fills in
    ".graphml": ("GraphML", _NETWORKX, "graphml"),
    ".gml": ("GML", _NETWORKX, "gml"),
    ".gexf": ("GEXF", _NETWORKX, "gexf"),
    ".net": ("Pajek", _NETWORKX, "pajek"),
    ".adjlist": ("adjacency lists in text", _NETWORKX, "adjlist"),
    ".xlsx": ("a spreadsheet", _PANDAS, "excel"),
    ".xls": ("a spreadsheet", _PANDAS, "excel"),
    ".json": ("JSON", _PANDAS, "json"),
    ".jsonl": ("JSON lines", _PANDAS.replace("({path!r})", "({path!r}, lines=True)"), "json"),
    ".ndjson": ("JSON lines", _PANDAS.replace("({path!r})", "({path!r}, lines=True)"), "json"),
    ".orc": ("ORC", _ARROW, "orc"),
    ".feather": ("Feather", _ARROW, "feather"),
    ".arrow": ("Arrow", _ARROW, "feather"),
    ".h5": ("HDF5", _HDF5, ""),
    ".hdf5": ("HDF5", _HDF5, ""),
    ".zarr": ("zarr", "import zarr, numpy; numpy.save('edge_index.npy', zarr.open({path!r})['edge_index'][:])", ""),
    ".lance": (
        "Lance",
        "import lance, pyarrow.parquet; pyarrow.parquet.write_table(lance.dataset({path!r}).to_table(), "
        "'edges.parquet')",
        "",
    ),
    ".sqlite": ("SQLite", _SQLITE, ""),
    ".sqlite3": ("SQLite", _SQLITE, ""),
    ".db": ("SQLite", _SQLITE, ""),
    ".duckdb": ("DuckDB", "duckdb {path} \"copy (select src, dst from edges) to 'edges.parquet'\"", ""),
    ".mat": (
        "MATLAB",
        "import scipy.io, scipy.sparse; scipy.sparse.save_npz('edges.npz', scipy.io.loadmat({path!r})['A'].tocsr()), "
        "with the name of its matrix",
        "",
    ),
    ".pkl": ("a pickle", "import pickle, tiering; tiering.import_graph(pickle.load(open({path!r}, 'rb')), 'G')", ""),
    ".nt": ("triples of RDF", _TRIPLES, ""),
    ".ttl": ("RDF", _RDF, ""),
    ".rdf": ("RDF", _RDF, ""),
    ".owl": ("RDF", _RDF, ""),
    ".dot": ("Graphviz", _NETWORKX.replace("read_", "nx_pydot.read_"), "dot"),
    ".avro": (
        "Avro",
        "import fastavro, pyarrow as pa, pyarrow.parquet; pyarrow.parquet.write_table(pa.Table.from_pylist(list("
        "fastavro.reader(open({path!r}, 'rb')))), 'edges.parquet')",
        "",
    ),
    ".safetensors": (
        "safetensors",
        "import numpy, safetensors.numpy; numpy.save('edge_index.npy', "
        "safetensors.numpy.load_file({path!r})['edge_index']), with the name of its array",
        "",
    ),
    ".graph": ("a BV graph (WebGraph)", "webgraph to arcs {stem} | gzip -1 > edges.tsv.gz", ""),
    ".zip": ("a zip archive", "unzip {path} -d data", ""),
    ".tar": ("a tar archive", "mkdir data && tar -xf {path} -C data", ""),
    ".tgz": ("a tar archive", "mkdir data && tar -xf {path} -C data", ""),
    ".rar": ("a rar archive", "unrar x {path} data/", ""),
    ".7z": ("a 7z archive", "7z x {path} -odata", ""),
    ".bz2": ("bzip2 data", "bunzip2 -k {path}", ""),
    ".xz": ("xz data", "unxz -k {path}", ""),
    ".zst": ("zstd data", "unzstd {path}", ""),
}
_SAME = {".pickle": ".pkl", ".gpickle": ".pkl", ".hdf": ".hdf5", ".pajek": ".net", ".db3": ".db", ".ipc": ".arrow"}


def refuse_unread(paths: Iterable[Path]) -> None:
    """Refuse the first of some files or directories whose kind is known and not read; says how to convert it."""
    for path in paths:
        suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
        suffix = ".tar" if ".tar" in suffixes else _SAME.get(suffix := (suffixes or [""])[-1], suffix)
        if suffix in _CONVERSIONS:
            what, command, name = _CONVERSIONS[suffix]
            convert = command.format(path=str(path), stem=str(path.with_suffix("")), name=name)
            raise InputError(f"{path}: expected a dataset, found {what}, which is not read; convert it: {convert}")
