"""Keywords of PyG's and DGL's loaders: values that change nothing here, what others become, why the rest is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tiering.errors import InputError

_STORES = "PyG's own loaders take it, over `pyg_stores` and `pyg_sampler`"
_TIME = "sampling by time stamps is not offered"
_SEED = "`seed` says what is random, the order of an epoch and the neighbours drawn"


@dataclass(frozen=True)
class Foreign:
    """A keyword of another library's loader. `harmless`: values that change nothing; ``None``: all of them.

    `becomes`: keywords of these loaders for a value. `instead`: what to do where a value would change something.
    """

    harmless: tuple[Any, ...] | None = None
    instead: str = ""
    becomes: Callable[[Any], dict[str, Any]] | None = None


_COMMON = {
    "num_workers": Foreign(becomes=lambda count: {"workers": count} if count else {}),
    "persistent_workers": Foreign(), "pin_memory": Foreign(), "prefetch_factor": Foreign(), "timeout": Foreign(),
    "multiprocessing_context": Foreign(),
    "worker_init_fn": Foreign((None,), "threads of one process sample; nothing begins them"),
    "generator": Foreign((None,), _SEED),
    "batch_sampler": Foreign((None,), f"batches are cut from `split` or seeds; {_STORES}"),
    "collate_fn": Foreign((None,), "`transform` is called with each batch"),
}  # fmt: skip
PYG = {
    **_COMMON,
    "directed": Foreign((True,), "edges are those that were sampled; `pyg_stores` serves the whole graph"),
    "disjoint": Foreign((False,), "seeds of a batch share their nodes"),
    "subgraph_type": Foreign(
        ("directional",), "for bidirectional edges give PyG's own loaders transform_sampler_output=lambda out: "
        "out.to_bidirectional(), over `pyg_stores` and `pyg_sampler`",
    ),
    "is_sorted": Foreign(), "filter_per_worker": Foreign(), "temporal_strategy": Foreign(),
    **dict.fromkeys(("time_attr", "input_time", "edge_label_time"), Foreign((None,), _TIME)),
    "transform_sampler_output": Foreign((None,), _STORES),
    "custom_cls": Foreign((None,), _STORES),
}  # fmt: skip
"""Keywords of ``NeighborLoader`` and ``LinkNeighborLoader`` by name."""
PYG_LINKS = {
    **PYG,
    "neg_sampling_ratio": Foreign(
        becomes=lambda ratio: {"neg_sampling": {"mode": "binary", "amount": ratio}} if ratio else {}
    ),
}
DGL = {
    **_COMMON,
    "use_uva": Foreign(), "use_ddp": Foreign(), "ddp_seed": Foreign(), "use_prefetch_thread": Foreign(),
    "use_alternate_streams": Foreign(), "pin_prefetcher": Foreign(),
    **dict.fromkeys(("prefetch_node_feats", "prefetch_edge_feats", "prefetch_labels"), Foreign()),
    "gpu_cache": Foreign((None, {}), "the layout's gpu tier is the cache: `tiering layout --gpu 4GiB`"),
    "exclude": Foreign((None,), "leave edges that are to be predicted out of the imported dataset"),
    "output_device": Foreign(becomes=lambda device: {} if device is None else {"device": device}),
}  # fmt: skip
"""Keywords of ``dgl.dataloading.DataLoader`` and its samplers by name."""
DGL_LINKS = {**DGL, **dict.fromkeys(("reverse_eids", "reverse_etypes"), DGL["exclude"])}
"""In addition those of ``as_edge_prediction_sampler``."""


def adopt(call: str, table: Mapping[str, Foreign], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call, another library's among them replaced by what they become.

    `InputError`: a value that would change something, or two options that say one thing.
    """
    own = {name: value for name, value in options.items() if name not in table}
    for name in [name for name in options if name in table]:
        foreign, value = table[name], options[name]
        plain = getattr(value, "value", value)  # of an enum
        if foreign.harmless is not None and not any(_same(plain, known) for known in foreign.harmless):
            expected = " or ".join(map(repr, foreign.harmless))
            raise InputError(f"{call}({name}=...): expected {expected}, found {value!r}: {foreign.instead}")
        for key, made in (foreign.becomes(value) if foreign.becomes else {}).items():
            if own.get(key) is not None:
                raise InputError(f"{call}: {name} and {key} say the same; leave one out")
            own[key] = made
    return own


def _same(value: Any, known: Any) -> bool:
    return value is known or (type(value) is type(known) and bool(value == known))
