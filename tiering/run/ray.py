"""Attempts on the workers of a Ray cluster, the user's or one that is started on this machine.

Ray places attempts and says what became of them; `tiering.run.job` decides what is tried again.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tiering.errors import CapabilityError, InputError, InternalError, MissingError, TieringError
from tiering.run.pieces import plan_key
from tiering.run.sight import difference, mark_and_look
from tiering.run.step import Call, Outcome, attempt
from tiering.run.store import Store
from tiering.text.progress import note
from tiering.text.units import format_bytes
from tiering.version import build

WORKER_BYTES = 256 << 20  # memory of a worker in addition to that of its task: the interpreter, and what it has loaded
OBJECT_STORE_BYTES = 80 << 20
"""Bytes of the object store of a cluster that is started here: nothing large goes through it."""
KEEPALIVE = dict.fromkeys(("RAY_grpc_client_keepalive_time_ms", "RAY_grpc_client_keepalive_timeout_ms"), "10000")
"""Ray's settings with which it notices within seconds that a machine is cut off; its own defaults take 7 minutes."""
SILENT_SECONDS = 30.0  # time without a task that begins until a note says so, or an error if no machine is large enough
JOIN_SECONDS = 600.0
"""Time until an error while the cluster has no machine: machines of a cloud come only when tasks wait."""
LOST_SECONDS = 30.0
"""Time without a connection to the head until the cluster is lost; after 60 s Ray would end this process."""
_JOINING = "check with `ray status` that this machine belongs to it; clusters with a token need RAY_AUTH_MODE=token"
LOOK_SECONDS = 5.0  # between two looks at which machines there are


class LostWorkerError(CapabilityError):
    """The process or machine that ran an attempt, or the cluster, is gone; finished tasks stay for the next run."""


def memory_of(call: Call) -> int:
    """Return the memory of an attempt with its worker in bytes; 0 if unknown."""
    return call.step.memory and call.step.memory + WORKER_BYTES


@dataclass
class _Attempt:
    call: Call
    answers: Any  # Ray's generator of two values: the place where it runs, its outcome
    where: str = ""  # process and machine, once it has begun
    node: str = ""  # the machine, as Ray names it
    said: list[Any] = field(default_factory=list)  # references to these values, so far


class RayExecutor:
    """Workers of a Ray cluster: the one at `address`, which this machine belongs to, or one that starts and ends here.

    `workers` are attempts side by side on one that starts here, `threads` processors of an attempt, `resources` amounts
    that each attempt takes, or texts of labels. A program that has called ``ray.init`` itself keeps its cluster.
    """

    def __init__(
        self, address: str | None = None, *, workers: int = 1, threads: int = 1,
        resources: Mapping[str, float | str] | None = None,
    ) -> None:  # fmt: skip
        self._ray, self._threads = _import_ray(), threads
        wanted = dict(resources or {})
        self._labels = {name: value for name, value in wanted.items() if isinstance(value, str)}
        self._resources = {name: float(value) for name, value in wanted.items() if not isinstance(value, str)}
        self._own = not self._ray.is_initialized()
        self._patience = 0.0 if self._own and address is None else SILENT_SECONDS  # no machine joins one of our own
        if self._own:
            _connect(self._ray, address, workers * threads)
        self._remote = self._ray.remote(max_retries=0, num_returns="streaming")(_program())
        self._attempts: dict[int, _Attempt] = {}
        self._homes: dict[tuple[str, int], str] = {}  # machines where arrays are resident, by job and task
        self._left_out: dict[str, str] = {}  # machines that cannot run tasks, each with the reason
        self._mark, self._seen = f"seen-{uuid.uuid4().hex}", dict[tuple[str, str], dict[str, str]]()
        self._nodes: list[Any] = []
        self._head = str(self._ray.get_runtime_context().gcs_address)
        self._looked = self._quiet_since = -LOOK_SECONDS
        self._reached = self._roomy = time.monotonic()
        self._logged = self._lost_cluster = False

    @property
    def slots(self) -> int:
        """Attempts that fit on the present machines; at least one, for clusters that start with none."""
        return max(1, sum(int(node["Resources"].get("CPU", 0)) // self._threads for node in self._machines()))

    def submit(self, ticket: int, call: Call) -> None:
        """Start an attempt under the number `ticket`."""
        self._quiet_since = self._quiet_since if self._attempts else time.monotonic()
        self._send(ticket, call)

    def _send(self, ticket: int, call: Call) -> None:
        options: dict[str, Any] = {
            "num_cpus": call.threads, "scheduling_strategy": self._strategy(call), "resources": self._resources,
            "label_selector": dict(self._labels),
        }  # fmt: skip
        if memory_of(call):
            options["memory"] = memory_of(call)
        if self._left_out:
            options["label_selector"]["ray.io/node-id"] = f"!in({','.join(sorted(self._left_out))})"
        if (step := (call.job, call.step.name)) not in self._seen:
            self._seen = {step: mark_and_look(call.step.params, self._mark)}
        data = self._ray.cloudpickle.dumps((call, self._seen[step]))
        self._attempts[ticket] = _Attempt(call, self._remote.options(**options).remote(data, build()))

    def _strategy(self, call: Call) -> Any:
        """Return how Ray places an attempt: where the step before left its arrays, if that machine has room."""
        home = self._homes.get((call.job, call.index))
        if not call.step.resident or home is None or home in self._left_out:
            return "SPREAD"
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(home, soft=True, _spill_on_unavailable=True)

    def wait(self, tickets: Collection[int], seconds: float) -> list[tuple[int, Outcome]]:
        """Return the attempts among `tickets` that have ended; an empty list once `seconds` are over."""
        end, finished = time.monotonic() + seconds, list[tuple[int, Outcome]]()
        while not finished and (left := end - time.monotonic()) > 0:
            known = {self._attempts[ticket].answers: ticket for ticket in tickets if ticket in self._attempts}
            if not known:
                time.sleep(left)
            elif self._ready(known, left):
                finished = [ended for each in self._ready(known, 0, len(known)) for ended in self._hear(known[each])]
        self._refuse_if_no_room()
        self._tell_if_nothing_begins()
        return finished

    def running(self, ticket: int) -> bool:
        """Return whether an attempt told its place, or is one of the first: their workers may be frozen."""
        tried = self._attempts.get(ticket)
        return tried is not None and (bool(tried.where) or ticket in islice(self._attempts, self.slots))

    def cancel(self, ticket: int) -> None:
        """Give an attempt up; its result is never returned."""
        tried = self._attempts.pop(ticket, None)
        if tried is not None and not self._lost_cluster:
            with suppress(self._ray.exceptions.RayError, ValueError):
                self._ray.cancel(tried.answers, force=True)

    def settle(self) -> None:
        """Return at once: canceled attempts are killed."""

    def close(self) -> None:
        """Cancel all attempts, and shut down a cluster that was started here."""
        for ticket in list(self._attempts):
            self.cancel(ticket)
        if self._own:
            self._ray.shutdown()

    def _ready(self, answers: Iterable[Any], seconds: float, count: int = 1) -> list[Any]:
        """Return the attempts that have reported something."""
        ready: list[Any] = self._ray.wait(list(answers), num_returns=count, timeout=seconds, fetch_local=False)[0]
        return ready

    def _hear(self, ticket: int) -> Iterator[tuple[int, Outcome]]:
        """Take the reports of an attempt; yield its end, or send it on where its machine cannot run it."""
        tried = self._attempts[ticket]
        self._quiet_since = time.monotonic()
        try:
            ended = self._listen(tried)
            if not tried.where:
                tried.where, tried.node = self._ray.get(tried.said[0])
            if not ended:
                return
            outcome = self._ray.get(tried.said[-1])
        except self._ray.exceptions.RayError as error:
            here = isinstance(error, self._ray.exceptions.LocalRayletDiedError)
            outcome = Outcome(error=self._lost(tried, error), again=not here)
        del self._attempts[ticket]
        if isinstance(outcome, str):
            if tried.node not in self._left_out:
                self._left_out[tried.node] = f"{tried.where}: {outcome}"
                self._looked = -LOOK_SECONDS
                note(f"note: {self._left_out[tried.node]}; this machine is skipped")
            return self._send(ticket, tried.call)
        if tried.call.step.resident:
            self._homes[tried.call.job, tried.call.index] = tried.node
        yield ticket, outcome

    def _listen(self, tried: _Attempt) -> bool:
        """Collect the reports of an attempt, of which there is at least one; return whether it has ended."""
        try:
            tried.said.append(next(tried.answers))
            while self._ready([tried.answers], 0):
                tried.said.append(next(tried.answers))
        except StopIteration:
            return True
        return False

    def _lost(self, tried: _Attempt, error: Exception) -> LostWorkerError:
        errors = self._ray.exceptions
        if isinstance(error, errors.OutOfMemoryError):
            why = "Ray stopped it because its machine ran out of memory; use smaller tasks (--task-memory)"
        elif isinstance(error, errors.LocalRayletDiedError):
            why = "Ray on this machine (the driver's) has ended; start it and run this again: finished tasks are kept"
        elif isinstance(error, errors.NodeDiedError):
            why = "its machine, or Ray on it, is gone; `ray status` lists the remaining machines"
        elif isinstance(error, errors.WorkerCrashedError):
            why = "its process was killed or crashed; the machine's kernel log and Ray's logs may tell why"
        else:
            words = (str(error).strip().splitlines() or [""])[-1]
            why = f"Ray ended it ({type(error).__name__}: {words}); see Ray's logs on that machine"
        where = tried.where or "a worker that had not started"
        return LostWorkerError(f"task {tried.call.index} of {tried.call.step.name} on {where}: {why}")

    def _refuse_if_no_room(self) -> None:
        """Raise once no machine has been large enough, for some time, for an attempt that waits."""
        call, machines = next((a.call for a in self._attempts.values() if not a.where), None), self._machines()
        needs = {} if call is None else {"CPU": call.threads, "memory": memory_of(call)}
        if call is None or any(all(n["Resources"].get(k, 0) >= v for k, v in needs.items()) for n in machines):
            self._roomy = time.monotonic()
        elif self._left_out and not machines and time.monotonic() - self._roomy >= self._patience:
            raise CapabilityError(
                f"step {call.step.name}: no machine of the cluster can run its tasks. "
                f"{'; '.join(islice(self._left_out.values(), 5))}. Correct this, then run the same command again: "
                "finished tasks are kept"
            )
        elif time.monotonic() - self._roomy >= (SILENT_SECONDS if self._nodes else JOIN_SECONDS):
            sizes = [
                f"{node['NodeManagerHostname']} ({node['Resources']['CPU']:.0f} processors, "
                f"{format_bytes(int(node['Resources'].get('memory', 0)))})"
                for node in self._nodes[:5]
            ]
            found = "; ".join(sizes) or "none"
            wanted = [f"{name}={amount:g}" for name, amount in self._resources.items()]
            wanted += [f"{name}={text}" for name, text in self._labels.items()]
            memory = ", ".join([f"{format_bytes(memory_of(call))} for a task", *wanted])
            raise CapabilityError(
                f"step {call.step.name}: expected a machine with {call.threads} processors and {memory}; found, of "
                f"{len(self._nodes)}: {found}; use smaller tasks (--task-memory), or add such a machine, then run the "
                "same command again: finished tasks are kept"
            )

    def _tell_if_nothing_begins(self) -> None:
        quiet = time.monotonic() - self._quiet_since >= SILENT_SECONDS and self._attempts and not self._logged
        if quiet and not any(tried.where for tried in self._attempts.values()):
            self._logged = True
            note(f"note: no task started for {SILENT_SECONDS:.0f} s: machines are busy or starting; see `ray status`")

    def _machines(self) -> list[Any]:
        """Return the machines that take attempts, asked every few seconds; the head often takes none."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            if self._reaches_head():  # else Ray would wait for the answer, and then end this process
                self._nodes = [n for n in self._ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]
        return [
            node
            for node in self._nodes
            if all(node["Resources"].get(name, 0) >= amount for name, amount in self._resources.items())
            and self._labels.items() <= node.get("Labels", {}).items()
            and node["NodeID"] not in self._left_out
        ]

    def _reaches_head(self) -> bool:
        """Return whether the cluster's head takes connections; raise if it has not for `LOST_SECONDS`."""
        try:
            _connect_to(self._head)
        except OSError as error:
            if time.monotonic() - self._reached < LOST_SECONDS:
                return False
            self._lost_cluster = True
            raise LostWorkerError(
                f"the head of the Ray cluster at {self._head} has not answered for {LOST_SECONDS:.0f} s; start the "
                "cluster again, then run the same command again: finished tasks are kept"
            ) from error
        self._reached = time.monotonic()
        return True


def _program() -> Callable[[bytes, str], Iterator[Any]]:
    """Return a function that yields its place, then an outcome; it travels as code, to where this package is not."""

    def work(data: bytes, expected: str) -> Iterator[Any]:
        import os
        import socket

        import ray

        yield f"process {os.getpid()} of {socket.gethostname()}", ray.get_runtime_context().get_node_id()
        try:
            from tiering.version import __version__ as found

            if found == expected.split()[0]:
                from tiering.version import build

                found = build()
        except Exception as error:
            found = f"none ({type(error).__name__}: {error})"
        if found != expected:
            yield f"expected tiering {expected}, found {found}; install the same build on all machines"
        else:
            from tiering.run.ray import make_attempt

            yield make_attempt(*ray.cloudpickle.loads(data))

    return work


def make_attempt(call: Call, seen: Mapping[str, str]) -> Outcome | str:
    """Make one attempt in a worker of Ray; return its outcome, or why this machine cannot run it.

    The driver has `seen` what lies at the paths that the step names.
    """
    if Store(call.store).size(plan_key(call.job, call.step.name)) is None:
        return f"the plan of {call.step.name} is missing in the store {call.store}"
    if (lack := difference(seen)) is not None:
        return lack
    place = f"task {call.index} of {call.step.name} on process {os.getpid()} of {socket.gethostname()}"
    try:
        outcome = attempt(call)
    except MemoryError as error:
        lost = LostWorkerError(f"{place}: out of memory ({error}); use smaller tasks (--task-memory)")
        return Outcome(error=lost, again=True)
    except Exception as error:
        return Outcome(error=InternalError(f"{place}: " + "".join(traceback.format_exception(error)).rstrip()))
    failure = outcome.error
    gone = isinstance(failure, MissingError) or getattr(failure, "errno", None) == errno.ENOENT
    if gone and call.store not in str(failure):
        return str(failure)  # another machine may have what this one lacks
    if isinstance(failure, TieringError):
        failure.place = f" ({place})"
    elif failure is not None:
        failure.args = (f"{failure} ({place})",)
    return outcome


def _connect_to(head: str) -> None:
    host, _, port = head.rpartition(":")  # IPv6 in brackets
    socket.create_connection((host.strip("[]"), int(port)), 3).close()


def _import_ray() -> Any:
    """Import Ray with its `KEEPALIVE` settings in this process unless the user has set them: it reads them once."""
    for name, value in KEEPALIVE.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise CapabilityError(f"executor ray: {error}; install it: pip install 'tiering[ray]'") from error
    return ray


def _connect(ray: Any, address: str | None, processors: int) -> None:
    if address is not None and "://" in address:
        raise InputError(
            f"address: expected auto or HOST:PORT of a cluster that this machine belongs to, found {address!r}; run "
            "this on a machine of the cluster"
        )
    kept = signal.getsignal(signal.SIGTERM)
    own: dict[str, Any] = {}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        own = {"num_cpus": processors, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    try:
        if address is not None:
            from ray._private.services import canonicalize_bootstrap_address as find_head

            _connect_to(str(find_head(address)))  # Ray itself would go on trying for minutes
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        what = "cannot be started on this machine" if address is None else f"at {address!r} cannot be joined"
        advice = "see Ray's logs" if address is None else _JOINING
        raise CapabilityError(f"a Ray cluster {what}: {words}; {advice}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, kept)  # Ray takes it; commands end in order by their own
    # Ray prints what its daemons report to standard output, where a command's result goes; errors say the same.
    with suppress(AttributeError):
        ray._private.worker._worker_logs_enabled = False
