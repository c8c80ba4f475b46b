"""Find the nodes that are most similar to given nodes, with FAISS and with a table of vectors in DuckDB.

python examples/vector_search.py EMBEDDINGS ID [ID ...] [--node-type paper] [--neighbors 5] [--table vectors.duckdb]
"""

import argparse
import importlib.util
import resource
import time

import numpy as np
import pyarrow as pa

import tiering

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("embeddings")
parser.add_argument("ids", nargs="+", help="ids or names of nodes in the dataset")
parser.add_argument("--node-type")
parser.add_argument("--neighbors", type=int, default=5)
parser.add_argument("--table", default="vectors.duckdb")


def as_matrix(batch):
    """Return the vectors of a batch as float32, shape (rows, dim)."""
    vectors = batch["vector"]
    return vectors.flatten().to_numpy().reshape(len(vectors), -1).astype(np.float32, copy=False)


def search_faiss(embeddings, node_type, wanted, neighbors):
    """Yield the nearest nodes of each id. The exact index of all vectors is in memory and filled batch by batch."""
    import faiss

    index, ids = faiss.IndexFlatL2(embeddings.entry(node_type).dim), []
    for batch in embeddings.to_arrow(node_type):
        index.add(as_matrix(batch))
        ids.append(batch["id"])
    names = pa.chunked_array(ids)
    rows = [names.index(pa.scalar(one).cast(names.type)).as_py() for one in wanted]
    if -1 in rows:
        raise SystemExit(f"No node has the id {wanted[rows.index(-1)]}. Give ids or names that the dataset has.")
    _, found = index.search(np.stack([index.reconstruct(row) for row in rows]), neighbors + 1)
    for row, near in zip(rows, found.tolist(), strict=True):
        yield names.take([one for one in near if one != row][:neighbors]).to_pylist()


def search_duckdb(embeddings, node_type, wanted, neighbors, table):
    """Yield the nearest nodes of each id. The vectors go into a table on disk, which SQL scans."""
    import duckdb

    database, stream = duckdb.connect(table), embeddings.to_arrow(node_type)  # noqa: F841 - SQL reads `stream`
    database.execute("create or replace table vectors as select * from stream")
    for one in wanted:
        rows = database.execute(
            "select id from vectors where id::varchar <> $id order by"
            " array_distance(vector, (select vector from vectors where id::varchar = $id)) limit $limit",
            {"id": one, "limit": neighbors},
        ).fetchall()
        yield [row[0] for row in rows]


if __name__ == "__main__":
    options = parser.parse_args()
    embeddings = tiering.open(options.embeddings)
    asked = embeddings, options.node_type, options.ids, options.neighbors
    for library, package, search in (
        ("faiss", "faiss-cpu", lambda: search_faiss(*asked)),
        ("duckdb", "duckdb", lambda: search_duckdb(*asked, options.table)),
    ):
        if importlib.util.find_spec(library) is None:
            print(f"{library}: skipped, not installed; pip install {package}")
            continue
        start = time.perf_counter()
        for one, near in zip(options.ids, search(), strict=True):
            print(f"{library}: nearest to {one}: {', '.join(map(str, near))}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"{library}: {time.perf_counter() - start:.2f} s, peak memory so far {peak:.0f} MiB")
