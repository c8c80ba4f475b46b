"""What a worker of Ray does with an attempt that reached it."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator
from typing import Any

from tiering.cluster.exchanges import TaskExchange
from tiering.cluster.exchanges.ray import RayTaskExchange
from tiering.cluster.executors.executor import LostWorkerError
from tiering.cluster.manifests import plan_key
from tiering.cluster.stores import open_store
from tiering.cluster.tasks import Call, Outcome, attempt
from tiering.errors import InternalError, TieringError


def attempted(call: Call, carried: Any) -> Iterator[Any]:
    """Make one attempt in a worker of Ray: what it hands on through Ray, then what came of it."""
    if open_store(call.store).size(plan_key(call.job, call.stage.name)) is None:
        yield f"expected to find the plan of {call.stage.name} in the store {call.store}, found none"
    elif carried is None:
        yield _made(call, None)
    else:
        exchange = RayTaskExchange[Outcome](carried)
        yield from exchange.run(lambda: _made(call, exchange))


def _made(call: Call, exchange: TaskExchange | None) -> Outcome:
    """What comes of an attempt; no error leaves it."""
    place = f"task {call.index} of {call.stage.name} on {socket.gethostname()}"
    try:
        return attempt(call, exchange)
    except TieringError as error:
        return Outcome(error=error)
    except MemoryError as error:
        lost = LostWorkerError(f"{place}: no memory is left there ({error}); give tasks less (--task-memory)")
        return Outcome(error=lost, again=True)
    except Exception as error:
        return Outcome(error=InternalError(f"{place}: " + "".join(traceback.format_exception(error)).rstrip()))
