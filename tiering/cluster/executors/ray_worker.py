"""What a worker of Ray does with an attempt that reached it."""

from __future__ import annotations

import socket
import traceback

from tiering.cluster.executors.executor import LostWorkerError
from tiering.cluster.manifests import plan_key
from tiering.cluster.store import open_store
from tiering.cluster.tasks import Call, Outcome, attempt
from tiering.errors import InternalError, TieringError


def make_attempt(call: Call) -> Outcome | str:
    """Make one attempt in a worker of Ray: what came of it, or why this machine cannot run it; no error leaves it."""
    if open_store(call.store).size(plan_key(call.job, call.stage.name)) is None:
        return f"expected to find the plan of {call.stage.name} in the store {call.store}, found none"
    place = f"task {call.index} of {call.stage.name} on {socket.gethostname()}"
    try:
        return attempt(call)
    except TieringError as error:
        return Outcome(error=error)
    except MemoryError as error:
        lost = LostWorkerError(f"{place}: no memory is left there ({error}); give tasks less (--task-memory)")
        return Outcome(error=lost, again=True)
    except Exception as error:
        return Outcome(error=InternalError(f"{place}: " + "".join(traceback.format_exception(error)).rstrip()))
