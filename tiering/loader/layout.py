"""An open layout: the graph and the tiers in one object, which ``tiering.open`` returns for layout directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tiering.artifacts.artifact import VerifyReport
from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.manifest import Problem, Relation
from tiering.formats.layout import Layout
from tiering.loader.frameworks import ForFrameworks
from tiering.loader.loader import Loader
from tiering.loader.options import LinkOptions, LoaderOptions
from tiering.loader.tables.gather import same_layout
from tiering.sampling import Negatives
from tiering.sampling.options import Fanouts
from tiering.text.description import Described, Part

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.loader.options import BatchKeywords, NodeKeywords


class TieredLayout(ForFrameworks, Described, AbstractContextManager["TieredLayout"]):
    """An open layout. Ids everywhere are ranks; `new_to_old` maps them to the ids of the source.

    `csc`, `new_to_old`, `old_to_new` and `labels` are methods of the reordered graph
    (`tiering.formats.graph.Graph`), `summary` of the layout on disk.

    Opening reads the manifest only; the first `features` of a type loads its memory tiers. Close it, or use it as a
    context manager, to release memory and descriptors at a known time.
    """

    def loader(
        self,
        split: str | None = "train",
        *,
        fanouts: Fanouts = (10, 10),
        features: Any = "tiers",
        **options: Unpack[NodeKeywords],
    ) -> Loader:
        """Return a loader of mini-batches with features, sampled and gathered in the background.

        Parameters
        ----------
        split, node_type, seeds, seed_ids, seed_time, shuffle, drop_last, rank, world_size
            Seeds, their times, their order: a split, or other nodes, as ``seeds=["Q42"], seed_ids="name"``; see
            `tiering.loader.options.SeedOptions`. ``None``: all nodes; with ``shuffle=False`` in the order of their
            ranks, which `pyg_loader` and `dgl_loader` replace by the source's.
        fanouts
            Neighbors per hop, the seeds' own hop first, in forms of `tiering.text.units.parse_fanouts`. ``pinsage``:
            how many of the most visited nodes; ``ladies``: nodes per layer.
        batch_size, frontier, sampler, seed, num_walks, walk_length, restart, metapaths
            See `tiering.sampling.SamplingOptions`. ``pinsage`` and ``ladies`` give their edges weights.
        time, temporal_strategy, time_window, disjoint, subgraph_type
            See `tiering.sampling.Subgraphs`.
        features
            ``tiers``; ``memory`` (all rows are first read into memory); an object with ``gather(ids)``, or one per node
            type; ``None`` for the structure alone. Batches are the same, bit for bit.
        engine, drives, depth, direct, threads, verify, dtype
            See `tiering.loader.options.ReadOptions`.
        device, max_sms, peers, gpu, cpu
            See `tiering.loader.options.DeviceOptions`.
        memory, window, ssd_model
            See `tiering.loader.options.MemoryOptions`.
        workers, prefetch, in_order, progress, edge_positions, edge_features, sample_on
            See `tiering.loader.options.PipelineOptions`.

        Raises
        ------
        InputError, MissingError, CapabilityError
            If an argument does not fit, or the split is empty; there is no such split; `device` or `engine` is not
            available.
        """
        return Loader(self, LoaderOptions.of(features, {"split": split, "fanouts": fanouts, **options}))

    def link_loader(
        self,
        relation: Relation | str | None = None,
        *,
        links: Any = None,
        negatives: Negatives | str | float | Mapping[str, Any] | None = None,
        link_time: Any = None,
        fanouts: Fanouts = (10, 10),
        features: Any = "tiers",
        **options: Unpack[BatchKeywords],
    ) -> Loader:
        """Return a loader of mini-batches of links, for link prediction.

        Batches contain neighbors of the ends of links and negative pairs; ``batch.links`` names these ends.

        Parameters
        ----------
        relation
            Relation of the links; may be omitted where there is one.
        links
            Ids (ranks) of shape (2, links), sources above destinations; by default all edges of the relation in the
            order of its ``indices`` (8 bytes of memory per edge, for their order in an epoch).
        negatives
            Negative pairs to sample too: `tiering.sampling.Negatives`, its mode, an amount of mode ``binary`` for
            each link, or a mapping of its arguments. With times of nodes, only nodes that exist by then.
        link_time
            With `time`: the time of each link, at which its ends and its negative pairs are sampled. An edge of exactly
            this time is visible; a time smaller by one hides it.
        fanouts, features, shuffle, drop_last, ...
            The same as in `loader`; ``batch_size`` is in links. There is no split, and batches have no `Batch.y`.
        """
        if refused := [name for name in ("split", "node_type", "seeds", "seed_ids") if name in options]:
            raise TypeError(f"link_loader() got an unexpected keyword argument {refused[0]!r}")
        asked = LinkOptions(relation, links, Negatives.of(negatives), time=link_time)
        return Loader(self, LoaderOptions.of(features, {"fanouts": fanouts, **options}, asked, "link_loader"))

    def inference(
        self, layers: Iterable[Any], out: str | os.PathLike[str], *, memory: Any = "auto", dtype: Any = None,
        nodes: Any = None, edges: int | str = "auto", order: Any = "auto", device: Any = "cpu", force: bool = False,
        dry_run: bool = False, resume: str | None = None,
    ) -> Any:  # fmt: skip
        """Compute every layer for all nodes, out of core; write the embeddings to directory `out` and return them.

        Parameters
        ----------
        layers
            Functions ``layer(block, x)``, or `tiering.loader.inference.Layer`: rows of the sources of an
            `tiering.loader.inference.InferenceBlock` to rows of its destinations, as
            ``lambda block, x: conv((x, x[: block.num_dst]), block.edge_index).relu()``.
        memory
            Memory that this process may hold, messages and outputs of the functions too: ``8GiB``, ``50%``, ``auto``.
        dtype
            Dtype of the tables: ``float32``, ``float16`` or ``bfloat16``, or torch's; by default the dtype of the
            functions' results. A finite number that it cannot represent is refused.
        nodes
            Nodes to make embeddings of: original ids, a mask over them, or (type, ids). ``None``: all. Each layer makes
            what the next one needs.
        edges
            Maximum number of in-edges and of destinations of a block; one destination may have more in-edges. A
            function gets at least 16 nodes. ``auto``: 50,000, or fewer if memory is short.
        order
            Order of the computation: ``rank``, ``original``, ``rcm`` (reverse Cuthill-McKee, where the memory
            holds the graph), or original ids of all nodes, by type where there are several. ``auto``: the one of these
            names with the fewest bytes to read, by counting pages. The result is by rank in any case.
        device
            Device of blocks and functions: ``cpu``, ``cuda``.
        force
            Whether to replace an existing output, and to start over where a run was left unfinished.
        dry_run
            Whether to return the estimate of memory, reads and disk by layer (`tiering.run.plan.Estimate`) instead.
        resume
            ``"trust"``: continue a stopped run although the code of its functions changed or cannot be compared.

        Returns
        -------
        tiering.formats.embeddings.Embeddings

        Raises
        ------
        InputError, ExistsError, BudgetError, ModelError, StorageError
            If a module is in training mode, or an unfinished run had other functions, parameters, torch, options; `out`
            exists; the memory is too small for a block; a function fails or returns other rows, or NaN; the disk
            has no room for two tables. A stopped run resumes after its last finished block.

        Notes
        -----
        With the same `edges` and `order`, blocks do not depend on memory or threads. The output is then bit-identical
        on one machine with one version of torch.
        Cost: each layer reads its input once if it fits the memory, else as the estimate says, and writes its table.
        """
        from tiering.loader.inference.run import Inference

        if not dry_run:
            OutputDirectory.refuse_existing(out, force)
        inference = Inference(
            self, layers, out, memory=memory, dtype=dtype, nodes=nodes, edges=edges, order=order, device=device,
            force=force, resume=resume,
        )  # fmt: skip
        return inference.estimate() if dry_run else inference.run()

    def pyg_inference(self, model: Any, out: str | os.PathLike[str], *, edge_data: bool = True, **options: Any) -> Any:
        """Return `inference` of a ``BasicGNN`` of PyG: ``GraphSAGE``, ``GAT``, ``GCN``, ``GIN``...

        `edge_data`: whether convolutions that accept edge data get the layout's ``edge_weight`` and ``edge_attr``;
        give False for a model that was trained without edge data.
        """
        from tiering.loader.inference.frameworks import pyg_layers

        return self.inference(pyg_layers(model, self.graph, edge_data), out, **options)

    def dgl_inference(
        self, modules: Sequence[Any], out: str | os.PathLike[str], activation: Any = None, *, edge_data: bool = True,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Return `inference` of convolutions of DGL, with `activation` (relu) between them.

        `edge_data`: see `pyg_inference`; passed as arguments such as ``edge_weight``.
        """
        from tiering.loader.inference.frameworks import dgl_layers

        return self.inference(dgl_layers(modules, self.graph, activation, edge_data), out, **options)

    def problems(self, level: str = "header", threads: int = 1) -> list[Problem]:
        """Return every problem of the layout on disk; see `tiering.artifacts.artifact.Artifact.problems`."""
        return self.artifact.problems(level, VerifyReport(threads))

    def describe(self) -> list[Part]:
        """Return what ``tiering info`` prints: the rows of each tier, and the graph."""
        return self.artifact.describe()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path.absolute()), self.digest)

    def __repr__(self) -> str:
        return f"<TieredLayout {self.path}>"


def _reopen(path: str, digest: str) -> TieredLayout:
    return TieredLayout(same_layout(path, digest))


def open_layout(path: str | os.PathLike[str]) -> TieredLayout:
    """Open the layout at `path`; `MissingError` or `FormatError` if there is none that this package can read."""
    return TieredLayout(Layout.open(path, outside=False))
