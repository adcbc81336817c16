"""Who works on an output in a store: a lease with a heartbeat, as an object.

Where the store has conditional puts, two processes cannot both take it; that is tried first, with an object of its
own. Where it has none, the lease is read again a moment after it was written, and the last one to write it has it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from tokenmill.errors import BusyError, TokenmillError
from tokenmill.lock import Holder, holder_here, is_alive
from tokenmill.storage import objects
from tokenmill.storage.addresses import Address
from tokenmill.storage.remote import FIRST_TRIES, MAX_TRIES

BEAT_SECONDS = 15.0
STALE_SECONDS = 75.0
SETTLE_SECONDS = 1.0


class Lease:
    """The lease of this process on a place in a store. `check` raises when somebody else has taken it over."""

    def __init__(self, address: Address, out: str) -> None:
        self.address, self.out = address, out
        self.holder = holder_here()
        self.conditional = has_conditions(address)
        self._tag: str | None = None
        self._lost = False
        self.progress: Callable[[], dict[str, Any]] = dict
        self._take()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tokenmill-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._lost:
            raise BusyError(
                f"`{self.out}` was taken over by another process while this one did not answer",
                hint="see `tokenmill status`",
            )

    def confirm(self, max_tries: int = MAX_TRIES) -> None:
        """Ask the store whether the lease is still ours, and raise if it is not."""
        if not self._lost:
            found, _ = read_tagged(self.address, max_tries)
            self._lost = found is None or found.token != self.holder.token
        self.check()

    def release(self) -> None:
        """Let others in. Without a network the lease runs out by itself."""
        self._stop.set()
        self._thread.join()
        with suppress(TokenmillError):
            self.confirm(FIRST_TRIES)
            objects.delete([self.address], FIRST_TRIES)

    def _take(self) -> None:
        found, tag = read_tagged(self.address)
        if found is not None and is_alive(lambda: read_lease(self.address), found, time.sleep, STALE_SECONDS):
            raise BusyError(
                f"`{self.out}` is being written by {found}",
                hint=f"wait for it: `tokenmill status {self.out}` tells how far it is",
            )
        try:
            self._tag = self._write("create" if tag is None else {"e_tag": tag})  # a tag: of somebody who is gone
        except FileExistsError:
            raise BusyError(f"`{self.out}` was taken by another process just now") from None
        if not self.conditional:
            time.sleep(SETTLE_SECONDS)
            now = read_lease(self.address)
            if now is None or now.token != self.holder.token:
                raise BusyError(f"`{self.out}` was taken by another process just now")

    def _write(self, mode: Any) -> str | None:
        """Put what we say of ourselves, and return its tag: also where the answer was lost and the put was not."""
        try:
            return objects.put(
                self.address, msgspec.json.encode(self.holder), mode=mode if self.conditional else "overwrite"
            )
        except FileExistsError:
            found, tag = read_tagged(self.address)
            if found is not None and found.token == self.holder.token:
                return tag
            raise

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            self.holder = msgspec.structs.replace(self.holder, beat=self.holder.beat + 1, progress=self.progress())
            try:
                with suppress(TokenmillError):  # the network: the run itself will say so
                    if not self.conditional:
                        now = read_lease(self.address)
                        self._lost = now is None or now.token != self.holder.token
                    if not self._lost:
                        self._tag = self._write({"e_tag": self._tag})
            except FileExistsError:
                self._lost = True
            if self._lost:
                return


def read_lease(address: Address) -> Holder | None:
    return read_tagged(address)[0]


def read_tagged(address: Address, max_tries: int = MAX_TRIES) -> tuple[Holder | None, str | None]:
    """What a lease says, and the tag of the object. One that cannot be read, again and again, says nothing."""
    for _ in range(FIRST_TRIES):
        data, tag = objects.get_tagged(address, max_tries)
        with suppress(msgspec.MsgspecError):
            return (None if data is None else msgspec.json.decode(data, type=Holder)), tag
    return None, tag


def has_conditions(address: Address) -> bool:
    """Whether the store refuses to create what is there already: not all that speak S3 do."""
    probe = address.at(f"{address.path}.probe-{secrets.token_hex(4)}")
    try:
        objects.put(probe, b"", mode="create")
        objects.put(probe, b"", mode="create")
    except FileExistsError:
        return True
    except TokenmillError:  # not implemented, it says
        return False
    finally:
        with suppress(TokenmillError):
            objects.delete([probe])
    return False
