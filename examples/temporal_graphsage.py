"""Predict who buys within 30 days, from two Parquet tables, with a GNN that sees no events after its seed time.

A second model also sees later events. It looks better in validation and is worse in service.

python examples/temporal_graphsage.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F

import tiering

USERS, DAYS, TRAIN, VALIDATION, TODAY = 4000, 200, (60, 80, 100), 130, 170


def purchases():
    """Return the user and the day of each purchase. Each user joins, buys at an own rate, and leaves."""
    rng = np.random.default_rng(0)
    rate, start = rng.gamma(0.6, 0.08, USERS), rng.uniform(0, 150, USERS)
    stop = np.minimum(start + rng.exponential(60, USERS), DAYS)
    user = np.repeat(np.arange(USERS), rng.poisson(rate * (stop - start)))
    return user, rng.uniform(start[user], stop[user])


def make_layout(folder, user, day):
    """Write the tables and make a layout of them. Each purchase is a node with a time."""
    folder.mkdir(parents=True)
    users, bought = folder / "users.parquet", folder / "purchases.parquet"
    pq.write_table(pa.table({"user": np.arange(USERS)}), users)
    pq.write_table(pa.table({"id": np.arange(day.size), "buyer": user, "day": day}), bought)
    nodes = {"user": {"file": users, "id": "user"}, "purchase": {"file": bought, "id": "id", "features": ["day"]}}
    by = {("purchase", "by", "user"): {"file": bought, "src": "id", "dst": "buyer"}}
    graph = tiering.import_graph(relations=by, nodes=nodes, time="day", out=folder / "graph")
    scores = tiering.score_graph(graph, out=folder / "scores", method="degree")
    ordered = tiering.reorder_graph(graph, scores, out=folder / "reordered")
    return tiering.write_layout(ordered, out=folder / "layout", cpu="10%", ssd=[folder / "ssd"])


def batches_of(layout, user, day, days, time, rng=None):
    """Yield batches of the users who bought before a day, with that day and whether they bought in the next 30."""
    ids = [np.unique(user[day <= d]) for d in days]
    soon = [np.isin(known, user[(day > d) & (day <= d + 30)]) for known, d in zip(ids, days, strict=True)]
    seeds, when = np.concatenate(ids), np.repeat(np.float64(days), [known.size for known in ids])
    order = np.arange(seeds.size) if rng is None else rng.permutation(seeds.size)
    seeds, when, soon = seeds[order], when[order], torch.from_numpy(np.concatenate(soon)[order]).float()
    asked = {"time": time, "seed_time": when} if time else {"disjoint": True}
    loader = layout.loader(None, node_type="user", seeds=seeds, fanouts=[10], batch_size=512, shuffle=False, **asked)
    parts = (torch.split(each, 512) for each in (torch.from_numpy(when).float(), soon))
    return zip(loader, *parts, strict=True)


def messages(batch, when):
    """Return number, mean age and smallest age of the purchases of each seed in a batch."""
    src, dst = batch.blocks()[0].edge_index["purchase", "by", "user"]
    age, count = (when[dst] - batch.features["purchase"][src, 0]) / 30, torch.bincount(dst, minlength=len(when)).float()
    mean = torch.zeros_like(count).index_add_(0, dst, age) / count.clamp(min=1)
    return torch.stack([count.log1p(), mean, torch.full_like(count, 9).scatter_reduce_(0, dst, age, "amin")], 1)


if __name__ == "__main__":
    folder, (user, day) = Path(sys.argv[1]), purchases()
    whole, today = (make_layout(folder / str(d), user[day <= d], day[day <= d]) for d in (DAYS, TODAY))
    for time in ("day", None):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        optimizer, rng = torch.optim.Adam(model.parameters(), 0.01), np.random.default_rng(0)
        for batch, when, soon in (b for _ in range(10) for b in batches_of(whole, user, day, TRAIN, time, rng)):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(messages(batch, when))[:, 0], soon).backward()
            optimizer.step()
        for name, layout, asked in (("validation", whole, VALIDATION), ("in service", today, TODAY)):
            found = batches_of(layout, user, day, [asked], time)
            right = torch.cat([(model(messages(batch, when))[:, 0] > 0) == soon.bool() for batch, when, soon in found])
            print(f"{'with' if time else 'without'} time, {name}: accuracy {right.float().mean():.3f}")
