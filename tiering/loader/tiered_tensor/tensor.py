"""The combined tensor of the Data Tiering paper (Min et al., KDD'22) over a tensor in hand: no files, no ranks.

Its hottest rows are copied to faster memory; all others are read from where they lie. Ids are the tensor's own row
numbers: a table of places leads from them to the copies.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from tiering import cuda
from tiering.errors import CapabilityError, InputError
from tiering.loader.process import require_torch, warn_once
from tiering.loader.tables.counters import Counters
from tiering.loader.tiered_tensor.gpu import GpuStore
from tiering.loader.tiered_tensor.host import WHAT, HostStore, cpu_rows, tier_rows
from tiering.loader.tiered_tensor.in_hand import TensorInHand
from tiering.loader.tiered_tensor.placement import parse_order, place_rows
from tiering.units import parse_device, parse_threads

if TYPE_CHECKING:
    import torch


class TieredTensor:
    """Rows of a tensor over several memories; `tiering.tiered` makes it.

    ``t[ids]`` is ``tensor[ids]``, on `device`. Use as a context manager, or call `close`. Safe to use from several
    threads.

    Forked workers of a ``torch.utils.data.DataLoader`` gather from the memory of their parent, if rows lie in host
    memory. Pickling, and so sending to a spawned process, raises `CapabilityError`: make the tiered tensor there.
    """

    def __init__(self, store: HostStore | GpuStore) -> None:
        import torch

        self._store: HostStore | GpuStore | None = store
        tensor = store.tensor
        self.shape = torch.Size(tensor.shape)
        """As the tensor's."""
        self.dtype: torch.dtype = tensor.dtype
        """As the tensor's."""
        self.device: torch.device = store.device
        """Where rows arrive."""

    def gather(self, ids: Any, out: torch.Tensor | None = None, *, checked: bool = True) -> torch.Tensor:
        """Rows of `ids`, in request order: what ``tensor[ids]`` holds, on `device`.

        Parameters
        ----------
        ids
            Row numbers of the tensor: torch or NumPy, int32 or int64, shape (n,), each in 0..rows-1; may repeat. On a
            GPU they may lie there.
        out
            Contiguous tensor on `device`, of shape (n, ...) and the tensor's dtype, to fill; a new one otherwise.
        checked
            On a GPU: whether to wait for the ids and raise if one is out of range. ``False``: nothing is waited for,
            and rows of such ids are left as they are in `out`. Without a GPU ids are always checked.

        Raises
        ------
        InputError
            If an id is out of range (nothing is written then), ids or `out` have the wrong shape or dtype, or the
            tiered tensor was closed.
        BudgetError
            If there is no memory for so many rows.
        """
        store = self._open()
        store.tensor.require_unmoved()
        wanted = store.ids(ids)
        if out is not None:
            self._check_out(store, out, len(wanted))
        places = self._places(store, wanted, checked or isinstance(store, HostStore))
        if out is not None:
            store.take(places, _as_bytes(out, store.tensor.row_bytes))
            return out
        return store.take(places, None).view(self.dtype).view(len(wanted), *self.shape[1:])

    def __getitem__(self, ids: Any) -> torch.Tensor:
        """``t[ids]`` is ``t.gather(ids)``."""
        return self.gather(ids)

    __iter__ = None  # it would gather row by row

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def counters(self) -> Counters:
        """What each tier served; see `placement`."""
        return self._open().rows.counters

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._store is None

    def placement(self) -> dict[str, dict[str, Any]]:
        """Per tier: ``rows``, their ``bytes``, and ``where`` they are; ``ssd`` is what is left in a mapped file."""
        store = self._open()
        placed, row_bytes = store.placement, store.tensor.row_bytes
        left = placed.num_rows - placed.copied
        on_disk = store.tensor.on_disk
        rows = {
            "gpu": placed.gpu,
            "peer": placed.peer,
            "cpu": placed.cpu + (0 if on_disk else left),
            "ssd": left if on_disk else 0,
        }
        places = store.rows.placement()
        return {t: {"rows": n, "bytes": n * row_bytes, "where": places[t]["where"]} for t, n in rows.items()}

    def close(self) -> None:
        """Give copies and page-locked memory back, after gathers that are under way; the tensor itself stays."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _open(self) -> HostStore | GpuStore:
        if self._store is None:
            raise InputError(f"{WHAT}: it was closed; make it again with tiering.tiered")
        return self._store

    def _places(self, store: HostStore | GpuStore, ids: torch.Tensor, checked: bool) -> torch.Tensor:
        """Places of rows; -1, which no tier has, for ids out of range."""
        import torch

        rows = len(self)
        wrong = (ids < 0) | (ids >= rows)
        if checked and bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            raise InputError(f"{WHAT}: ids[{place}] is {int(ids[place])}, outside 0..{rows - 1}")
        if store.table is None:
            return ids
        if checked:
            return store.table[ids].to(torch.int64)
        return torch.where(wrong, -1, store.table[ids.clamp(0, rows - 1)].to(torch.int64))

    def _check_out(self, store: HostStore | GpuStore, out: Any, count: int) -> None:
        import torch

        shape = (count, *self.shape[1:])
        if not isinstance(out, torch.Tensor):
            raise InputError(f"out: expected a tensor, found {type(out).__name__}")
        dense = out.layout == torch.strided and out.is_contiguous()
        if tuple(out.shape) != shape or out.dtype != self.dtype or not dense or not store.has(out):
            raise InputError(
                f"out: expected a contiguous {self.dtype} tensor of shape {shape} on {self.device}, found {out.dtype} "
                f"{tuple(out.shape)} on {out.device}{'' if dense else ', not contiguous'}"
            )

    def __enter__(self) -> TieredTensor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise CapabilityError(
            f"{WHAT}: it lies in the memory of one process and cannot be pickled or sent to a spawned one; make it in "
            "each process from the tensor or memmap, or, with rows in host memory, fork the workers "
            "(multiprocessing_context='fork')"
        )

    def __repr__(self) -> str:
        kind = f"TieredTensor {tuple(self.shape)} {self.dtype} on {self.device}"
        if self.closed:
            return f"<{kind} (closed)>"
        tiers = [f"{place['rows']:,} rows in {place['where']}" for place in self.placement().values() if place["rows"]]
        return f"<{kind}: {'; '.join(tiers) or 'no rows'}>"


def tiered(
    tensor: Any,
    *,
    gpu: str | int = 0,
    peer: str | int = 0,
    cpu: str | int = "auto",
    order: Any = None,
    device: Any = None,
    peers: Any = "auto",
    max_sms: int | str = "auto",
    threads: int | str | None = "auto",
) -> TieredTensor:
    """Make the combined tensor of a tensor in hand: its hottest rows in faster memory, the others where they are.

    Parameters
    ----------
    tensor
        Torch tensor in host memory, NumPy array or memmap; contiguous, shape (rows, ...), any dtype of torch. Its rows
        are read in place: it is not to be written to while the tiered tensor is open.
    gpu
        Memory of the GPU for the hottest rows: ``2GiB``, or a share of the tensor, ``25%``. Not used with
        ``device="cpu"``.
    peer
        Memory on the GPU of each of the peers, this process included, for the next rows, which are spread over all of
        them. Not used with ``device="cpu"``.
    cpu
        Host memory for copies of the next rows of a tensor that is mapped from a file on disk; ``auto``: most of what
        is free. Not used for a tensor that lies in memory already.
    order
        Which rows are hot: a score for each row, higher is hotter, ties by row number; any real numbers, shape (rows,),
        or a `tiering.formats.scores.Scores` artifact of one node type. A permutation is not a score. ``None``: the
        first rows are the hottest.
    device
        ``cpu``, ``cuda``, ``cuda:1``, a ``torch.device``: where rows arrive. ``None``: ``cuda`` where torch and this
        package can use a GPU, else ``cpu``.
    peers
        With a GPU: processes of this machine that hold the peer tier together, each a share in the memory of its GPU:
        ``auto``, ``off``, a process group or a `tiering.loader.PeerGroup`, as of `TieredLayout.features`. All make the
        tiered tensor together, from the same tensor with the same arguments. A process alone has its own GPU only.
    max_sms
        With a GPU: multiprocessors that a gather may use; 0: all, ``auto``: a tenth.
    threads
        Threads that copy rows in host memory.

    Returns
    -------
    TieredTensor
        ``t[ids]`` is ``tensor[ids]``, on the device.

    Raises
    ------
    InputError
        If the tensor is not dense, contiguous and in host memory, scores or sizes do not fit it, or processes gave
        different ones.
    BudgetError
        If memory of the GPU, or host memory to copy to or to lock, does not suffice; nothing stays taken.
    CapabilityError
        If the device cannot be used.

    Notes
    -----
    On a GPU what is not copied is page-locked where it lies and read by zero copy; of a tensor mapped from a file, the
    `cpu` rows are copied to page-locked memory, and the host reads the rest, page by page, through two pinned buffers.

    Memory: the rows that are copied, and with `order` a table of places, 4 bytes for each row of the tensor (8 from
    2^31 places on), on the device that gathers: 1 GiB for 269 million rows. Without `order` there is no table. Ranking
    takes 24 bytes a row while the tensor is made. Cost: copied rows are read once.
    """
    require_torch()
    import torch

    hand, workers = TensorInHand.of(tensor), parse_threads(threads)
    scores = parse_order(order, hand.num_rows)
    own, share = tier_rows(gpu, "gpu", hand), tier_rows(peer, "peer", hand)
    if device is None:
        device = "cuda" if torch.cuda.is_available() and not cuda.unavailable() else "cpu"
    index = parse_device(device)
    if index is not None:
        return TieredTensor(GpuStore.make(hand, (own, share, cpu), scores, index, peers, max_sms, workers))
    if own or share:
        warn_once("tiered: gpu and peer are not used with device='cpu'")
    host = cpu_rows(cpu, hand) if hand.on_disk else 0
    return TieredTensor(HostStore(hand, *place_rows(hand.num_rows, (0, 0, host), scores, workers), workers))


def _as_bytes(out: torch.Tensor, row_bytes: int) -> torch.Tensor:
    import torch

    return out.detach().view(-1).view(torch.uint8).view(len(out), row_bytes)
