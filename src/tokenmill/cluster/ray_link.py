"""Ray's actors as stations.

Each station is an actor that asks for one CPU. Ray decides where it runs, and tells when its process or its node was
lost; then Ray is asked for another, which comes where there is room, or on a node that comes later. Whoever connects
to a session that is there already leaves it as it was.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from tokenmill.cluster.link import Ended
from tokenmill.errors import RecipeError

GROW_SECONDS = 2.0  # between two looks at how large the cluster is
CLEAN_SECONDS = 5.0  # for stations to remove what they have on their nodes
END_SECONDS = 20.0
KNOCK_SECONDS = 10.0


class RayLink:
    """The actors of one run. Without a number of workers there is one for each CPU, also of nodes that come later."""

    def __init__(self, address: str | None, n_workers: int | None, out: str, job_name: str) -> None:
        self.ray = imported_ray()
        self._connected = not self.ray.is_initialized()
        if self._connected:
            connect(self.ray, address)
        self.n_wanted = n_workers
        # Not restarted by Ray itself: calls to an actor that is being restarted fail, to a new one they wait.
        self._actor = self.ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(actor_class())
        self._given = (out, job_name)
        self._n_named = self._n_dismissed = 0
        self._actors: dict[Hashable, Any] = {}
        self._refs: dict[Any, Hashable] = {}
        self._nodes: dict[Hashable, str] = {}
        self._looked, self._open = 0.0, True
        self._n_nodes = 1

    def stations(self) -> list[Hashable]:
        if self._open and (not self._looked or monotonic() - self._looked > GROW_SECONDS):
            self._looked = monotonic()
            self._look()
        return list(self._actors)

    def _look(self) -> None:
        """See how large the cluster is, and ask for as many actors."""
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        n_cpus = int(sum(node["Resources"]["CPU"] for node in nodes))
        wanted = (self.n_wanted or n_cpus) - self._n_dismissed
        self._n_nodes = min(len(nodes), wanted)
        while len(self._actors) < wanted:
            self._actors[f"station-{self._n_named}"] = self._actor.remote(*self._given)
            self._n_named += 1

    def n_cpus(self) -> int:
        """Those of the cluster as it is now."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def n_nodes(self) -> int:
        return self._n_nodes

    def node_of(self, station: Hashable) -> str:
        return self._nodes[station]

    def submit(self, station: Hashable, kind: str, task: bytes) -> None:
        self._refs[self._actors[station].do.remote(kind, task)] = station

    def wait(self, seconds: float) -> list[Ended]:
        refs = list(self._refs)
        if not refs:
            time.sleep(seconds)
            return []
        done, _ = self.ray.wait(refs, num_returns=len(refs), timeout=0)
        if not done:
            done, _ = self.ray.wait(refs, num_returns=1, timeout=seconds)
        return [self._taken(ref) for ref in done]

    def _taken(self, ref: Any) -> Ended:
        station = self._refs.pop(ref)
        try:
            self._nodes[station], answer = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            self._actors[station] = self._actor.remote(*self._given)
            return Ended(station, None, last_line(error))
        return Ended(station, answer)

    def dismiss(self, station: Hashable) -> None:
        self.ray.kill(self._actors.pop(station))
        self._n_dismissed += 1
        self._refs = {ref: one for ref, one in self._refs.items() if one != station}

    def close(self) -> None:
        self._open = False
        idle = self._nodes.keys() - set(self._refs.values())  # those that have come, and are at nothing
        ends = [actor.do.remote("end", b"") for station, actor in self._actors.items() if station in idle]
        if ends:
            self.ray.wait(ends, num_returns=len(ends), timeout=CLEAN_SECONDS)
        for actor in self._actors.values():
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(actor)
        ended = monotonic() + END_SECONDS
        for actor in self._actors.values():  # a call to one that is dead fails at once
            with suppress(self.ray.exceptions.RayError):
                self.ray.get(actor.do.remote("end", b""), timeout=max(0.1, ended - monotonic()))
        if self._connected:
            self.ray.shutdown()


def imported_ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns about the next version of Ray
    try:
        import ray
    except ImportError:
        raise RecipeError(
            "Ray is not installed", hint="pip install 'tokenmill[ray]', or '.[ray]' in a checkout"
        ) from None
    return ray


def connect(ray: Any, address: str | None) -> None:
    """Join the cluster at an address; without one, that of RAY_ADDRESS or of this machine, or begin one here."""
    address = address or os.environ.get("RAY_ADDRESS")
    try:
        knock(address)
        with own_signals():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        where = f"the Ray cluster at `{address}`" if address else "Ray"
        hint = "is it running? `ray status` tells; `ray start --head` starts one"
        raise RecipeError(f"cannot reach {where}: {first_line(error)}", hint=hint) from None


@contextmanager
def own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself, and ends the process with it: put the handlers back that were there."""
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {signum: signal.getsignal(signum) for signum in signals}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def knock(address: str | None) -> None:
    """See whether anybody is there at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


def last_line(error: BaseException) -> str:
    """What went wrong in a station: Ray tells the whole story before it."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def actor_class() -> type:
    """The class whose instances Ray runs. Made here, so that importing this module needs no Ray."""

    class RayStation:
        def __init__(self, out: str, job_name: str) -> None:
            from tokenmill.cluster.station import Station

            self.station = Station(out, job_name)

        def do(self, kind: str, task: bytes) -> tuple[str, bytes]:
            """Return the node where this happened, and the answer."""
            ray = imported_ray()
            node = f"{ray.util.get_node_ip_address()}/{ray.get_runtime_context().get_node_id()[:6]}"
            return node, self.station.do(kind, task)

    return RayStation
