"""Kinds of files that are not read, and the Python or command that converts each to one that is."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from tiering.errors import InputError

_NETWORKX = (
    "import networkx as nx, scipy.sparse; scipy.sparse.save_npz('edges.npz', "
    "nx.to_scipy_sparse_array(nx.read_{name}({path!r}), weight=None))"
)
_GPICKLE = "import pickle, " + _NETWORKX.removeprefix("import ").replace(
    "nx.read_{name}({path!r})", "pickle.load(open({path!r}, 'rb'))"
)
_PANDAS = "import pandas; pandas.read_{name}({path!r}).to_parquet('edges.parquet')"
_PARQUET = ", pyarrow.parquet; pyarrow.parquet.write_table("
_ARROW = "import pyarrow.{name}" + _PARQUET + "pyarrow.{name}.read_table({path!r}), 'edges.parquet')"
_IPC = (
    "import pyarrow.ipc as ipc, pyarrow.parquet; read = ipc.open_file if open({path!r}, 'rb').read(6) == b'ARROW1' "
    "else ipc.open_stream; pyarrow.parquet.write_table(read({path!r}).read_all(), 'edges.parquet')"
)
_SQLITE = (
    "import sqlite3, pandas; pandas.read_sql('select src, dst from edges', sqlite3.connect({path!r}))"
    ".to_parquet('edges.parquet')  # with the names of its table and columns"
)
_DUCKDB = (
    "import duckdb; duckdb.connect({path!r}).execute(\"copy (select src, dst from edges) to 'edges.parquet'\")"
    "  # with the names of its table and columns"
)
_NUMPY = (
    "import {name}, numpy; numpy.save('edge_index.npy', {name}.{function}({path!r})['edge_index'][:])  # with the name "
    "of its array; then import the directory"
)
_LANCE = "import lance" + _PARQUET + "lance.dataset({path!r}).to_table(), 'edges.parquet')"
_MATLAB = (
    "import scipy.io, scipy.sparse; scipy.sparse.save_npz('edges.npz', scipy.io.loadmat({path!r})['A'].tocsr())  "
    "# with the name of its matrix"
)
_PICKLE = "import pickle, tiering; tiering.import_graph(pickle.load(open({path!r}, 'rb')), 'G')"
_AVRO = (
    "import fastavro, pyarrow as pa, pyarrow.parquet; pyarrow.parquet.write_table(pa.Table.from_pylist(list("
    "fastavro.reader(open({path!r}, 'rb')))), 'edges.parquet')"
)
_TRIPLES = (  # an object may be text with blanks
    'awk \'{{s = $1; p = $2; sub(/^[^ \\t]+[ \\t]+[^ \\t]+[ \\t]+/, ""); sub(/[ \\t]*\\.[ \\t]*$/, ""); '
    'print s "\\t" p "\\t" $0}}\' {shell} > triples.tsv && tiering import --relation node:rel:node=triples.tsv '
    "--src-column 0 --type-column 1 --dst-column 2 --no-header --out G"
)
_RDF = (
    "import rdflib; rdflib.Graph().parse({path!r}).serialize('triples.nt', format='nt', encoding='utf-8')  # then "
    "import triples.nt"
)
_KINDS = (  # what a file or directory is, its suffixes, how to convert it, and the name that this fills in
    ("GraphML", ".graphml", _NETWORKX, "graphml"),
    ("GML", ".gml", _NETWORKX, "gml"),
    ("GEXF", ".gexf", _NETWORKX, "gexf"),
    ("Pajek", ".net .pajek", _NETWORKX, "pajek"),
    ("adjacency lists in text", ".adjlist", _NETWORKX, "adjlist"),
    ("Graphviz", ".dot", _NETWORKX.replace("read_", "nx_pydot.read_"), "dot"),
    ("a pickle of networkx", ".gpickle", _GPICKLE, ""),
    ("a spreadsheet", ".xlsx .xls", _PANDAS, "excel"),
    ("JSON", ".json", _PANDAS, "json"),
    ("JSON lines", ".jsonl .ndjson", _PANDAS.replace("({path!r})", "({path!r}, lines=True)"), "json"),
    ("ORC", ".orc", _ARROW, "orc"),
    ("Feather", ".feather", _ARROW, "feather"),
    ("Arrow", ".arrow .ipc", _IPC, ""),
    ("HDF5", ".h5 .hdf5 .hdf", _NUMPY.replace("{function}", "File"), "h5py"),
    ("zarr", ".zarr", _NUMPY.replace("{function}", "open"), "zarr"),
    ("safetensors", ".safetensors", _NUMPY.replace("{function}", "load_file"), "safetensors.numpy"),
    ("Lance", ".lance", _LANCE, ""),
    ("SQLite", ".sqlite .sqlite3 .db .db3", _SQLITE, ""),
    ("DuckDB", ".duckdb", _DUCKDB, ""),
    ("MATLAB", ".mat", _MATLAB, ""),
    ("a pickle", ".pkl .pickle", _PICKLE, ""),
    ("triples of RDF", ".nt", _TRIPLES, ""),
    ("RDF", ".ttl .rdf .owl", _RDF, ""),
    ("Avro", ".avro", _AVRO, ""),
    ("a BV graph (WebGraph)", ".graph", "webgraph to arcs {stem} | gzip -1 > edges.tsv.gz", ""),
    ("a zip archive", ".zip", "unzip {shell} -d data", ""),
    ("a tar archive", ".tar .tgz", "mkdir data && tar -xf {shell} -C data", ""),
    ("a rar archive", ".rar", "unrar x {shell} data/", ""),
    ("a 7z archive", ".7z", "7z x {shell} -odata", ""),
    ("bzip2 data", ".bz2", "bunzip2 -k {shell}", ""),
    ("xz data", ".xz", "unxz -k {shell}", ""),
    ("zstd data", ".zst", "unzstd {shell}", ""),
)
_BY_SUFFIX = {suffix: kind for kind in _KINDS for suffix in kind[1].split()}


def refuse_unread(paths: Iterable[Path]) -> None:
    """Refuse the first of some files or directories whose kind is known and not read; says how to convert it."""
    for path in paths:
        suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
        suffix = ".tar" if ".tar" in suffixes else (suffixes or [""])[-1]
        if suffix in _BY_SUFFIX:
            what, _, command, name = _BY_SUFFIX[suffix]
            shell, stem = (shlex.quote(str(one)) for one in (path, path.with_suffix("")))
            convert = command.format(path=str(path), shell=shell, stem=stem, name=name)
            raise InputError(f"{path}: expected a dataset, found {what}, which is not read; convert it: {convert}")
