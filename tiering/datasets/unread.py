"""Kinds of files that are not read, and the Python or command that converts each to one that is."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from tiering.errors import InputError

_NETWORKX = (
    "import networkx as nx, scipy.sparse; scipy.sparse.save_npz('edges.npz', "
    "nx.to_scipy_sparse_array(nx.read_NAME({path!r}), weight=None))"
)
_IMPORT = "tiering.import_graph(TABLE, 'G')"
_PANDAS = "import pandas, tiering; " + _IMPORT.replace("TABLE", "pandas.read_NAME({path!r})")
_ARROW = "import pyarrow.dataset, tiering; " + _IMPORT.replace(
    "TABLE", "pyarrow.dataset.dataset({path!r}, format='NAME').scanner().to_reader()"
)
_NUMPY = (
    "import NAME, numpy; numpy.save('edge_index.npy', NAME.OPEN({path!r})['edge_index'][:])  # with the name of its "
    "array; then import the directory"
)
_KINDS = (  # what a file or directory is, its suffixes, or what lies inside the directory, how to convert it
    *((what, suffixes, _NETWORKX.replace("NAME", name)) for what, suffixes, name in (
        ("GraphML", ".graphml", "graphml"), ("GML", ".gml", "gml"), ("GEXF", ".gexf", "gexf"),
        ("Pajek", ".net .pajek", "pajek"), ("adjacency lists in text", ".adjlist", "adjlist"),
    )),
    ("Graphviz", ".dot", _NETWORKX.replace("read_NAME", "nx_pydot.read_dot")),
    ("a pickle of networkx", ".gpickle",
     _NETWORKX.replace("import", "import pickle,")
     .replace("nx.read_NAME({path!r})", "pickle.load(open({path!r}, 'rb'))")),
    ("a spreadsheet", ".xlsx .xls", _PANDAS.replace("NAME", "excel")),
    ("JSON", ".json", _PANDAS.replace("NAME", "json")),
    ("JSON lines", ".jsonl .ndjson", _PANDAS.replace("NAME({path!r})", "json({path!r}, lines=True)")),
    ("ORC", ".orc", _ARROW.replace("NAME", "orc")),
    ("Feather", ".feather", _ARROW.replace("NAME", "feather")),
    ("Arrow", ".arrow .ipc",
     "import pyarrow.ipc as ipc, tiering; read = ipc.open_file if open({path!r}, 'rb').read(6) == b'ARROW1' "
     "else ipc.open_stream; " + _IMPORT.replace("TABLE", "read({path!r}).read_all()")),
    ("HDF5", ".h5 .hdf5 .hdf", _NUMPY.replace("NAME", "h5py").replace("OPEN", "File")),
    ("zarr", ".zarr", _NUMPY.replace("NAME", "zarr").replace("OPEN", "open")),
    ("safetensors", ".safetensors", _NUMPY.replace("NAME", "safetensors.numpy").replace("OPEN", "load_file")),
    ("Lance", ".lance /_versions",
     "import lance, tiering; " + _IMPORT.replace("TABLE", "lance.dataset({path!r}).scanner().to_reader()")),
    ("a Delta table", "/_delta_log",  # its dataset refuses rows marked as deleted, which its list of files does not
     "import deltalake, tiering; table = deltalake.DeltaTable({path!r}).to_pyarrow_dataset(); "
     + _IMPORT.replace("TABLE", "table.scanner().to_reader()")),
    ("an Iceberg table", "/metadata/*.metadata.json",
     "import glob, os, pyiceberg.table, tiering; table = pyiceberg.table.StaticTable.from_metadata("
     "max(glob.glob({path!r} + '/metadata/*.metadata.json'), key=os.path.getmtime)); "
     + _IMPORT.replace("TABLE", "table.scan().to_arrow_batch_reader()")),
    ("a Hudi table", "/.hoodie",
     "spark.read.format('hudi').load({path!r}).write.parquet('edges')  # in a session of Spark"),
    ("SQLite", ".sqlite .sqlite3 .db .db3",
     "import sqlite3, pandas, tiering; "
     + _IMPORT.replace("TABLE", "pandas.read_sql('select src, dst from edges', sqlite3.connect({path!r}))")
     + "  # with the names of its table and columns"),
    ("DuckDB", ".duckdb",
     "import duckdb, tiering; "
     + _IMPORT.replace("TABLE", "duckdb.connect({path!r}).sql('select src, dst from edges')")
     + "  # with the names of its table and columns"),
    ("MATLAB", ".mat",
     "import scipy.io, scipy.sparse; scipy.sparse.save_npz('edges.npz', scipy.io.loadmat({path!r})['A'].tocsr())"
     "  # with the name of its matrix"),
    ("a pickle", ".pkl .pickle",
     "import pickle, tiering; tiering.import_graph(pickle.load(open({path!r}, 'rb')), 'G')"),
    ("triples of RDF", ".nt",  # an object may be text with blanks
     r"""awk '{{s = $1; p = $2; sub(/^[^ \t]+[ \t]+[^ \t]+[ \t]+/, ""); sub(/[ \t]*\.[ \t]*$/, ""); print s "\t" p """
     r""""\t" $0}}' {shell} > triples.tsv && tiering import --relation node:rel:node=triples.tsv """
     "--src-column 0 --type-column 1 --dst-column 2 --no-header --out G"),
    ("RDF", ".ttl .rdf .owl",
     "import rdflib; rdflib.Graph().parse({path!r}).serialize('triples.nt', format='nt', encoding='utf-8')"
     "  # then import triples.nt"),
    ("Avro", ".avro",
     "import fastavro, pyarrow, tiering; "
     + _IMPORT.replace("TABLE", "pyarrow.Table.from_pylist(list(fastavro.reader(open({path!r}, 'rb'))))")),
    ("a BV graph (WebGraph)", ".graph", "webgraph to arcs {stem} | gzip -1 > edges.tsv.gz"),
    ("a zip archive", ".zip", "unzip {shell} -d data"),
    ("a tar archive", ".tar .tgz", "mkdir data && tar -xf {shell} -C data"),
    ("a rar archive", ".rar", "unrar x {shell} data/"),
    ("a 7z archive", ".7z", "7z x {shell} -odata"),
    ("bzip2 data", ".bz2", "bunzip2 -k {shell}"),
    ("xz data", ".xz", "unxz -k {shell}"),
    ("zstd data", ".zst", "unzstd {shell}"),
)  # fmt: skip
_BY_SUFFIX = {suffix: kind for kind in _KINDS for suffix in kind[1].split()}


def refuse_table_formats(paths: Iterable[Path]) -> None:
    """Refuse what lies in a directory of a format of tables: its files hold deleted and replaced rows, too."""
    for folder in dict.fromkeys(chain.from_iterable((one.absolute(), *one.absolute().parents) for one in paths)):
        for mark in _BY_SUFFIX:
            if mark.startswith("/") and any(folder.glob(mark[1:])):
                _refuse(folder, mark)


def refuse_unread(paths: Iterable[Path]) -> None:
    """Refuse the first of some files or directories whose kind is known and not read; says how to convert it."""
    for path in paths:
        suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
        suffix = ".tar" if ".tar" in suffixes else (suffixes or [""])[-1]
        if suffix in _BY_SUFFIX:
            _refuse(path, suffix)


def _refuse(path: Path, suffix: str) -> None:
    what, _, command = _BY_SUFFIX[suffix]
    shell, stem = (shlex.quote(str(one)) for one in (path, path.with_suffix("")))
    convert = command.format(path=str(path), shell=shell, stem=stem)
    raise InputError(f"{path}: {what} is not a format that tiering reads; convert it: {convert}")
