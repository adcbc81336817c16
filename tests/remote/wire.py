"""What the stand-in servers share: a log of requests, faults by seeded chance, and answers that go wrong on purpose.

Whether a request meets a fault depends on the seed, the request, and how often it was made: not on the order in
which threads happen to come. So a test sees the same faults every time, and a retry gets another chance.
"""

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = 1 << 16
KINDS = ("slow", "refused", "too_many", "unavailable", "cut", "short", "truncated", "padded", "corrupt", "lost")
Headers = dict[str, str]


@dataclass(frozen=True)
class Request:
    """One line of a server's log."""

    method: str
    path: str  # with the query
    range: str | None
    status: int  # 0: the connection was dropped before there was an answer
    fault: str | None = None  # what was done to the answer
    n_bytes: int = 0  # of the body that was sent
    headers: Headers = field(default_factory=dict, repr=False)  # of the request, names in lower case


@dataclass
class Faults:
    """The fraction of requests that each fault meets, all 0 at first. At most one fault meets a request."""

    slow: float = 0  # answered after `slow_seconds`
    refused: float = 0  # dropped before the answer
    too_many: float = 0  # 429 with Retry-After
    unavailable: float = 0  # 503
    cut: float = 0  # reset in the middle of the body
    short: float = 0  # closed, as if done, before all that Content-Length said was sent
    truncated: float = 0  # Content-Length and body agree, and the last bytes are missing
    padded: float = 0  # Content-Length and body agree, and there are bytes too many
    corrupt: float = 0  # as long as it should be, with one byte changed
    lost: float = 0  # carried out, and dropped before the answer
    seed: int = 0
    slow_seconds: float = 0.3
    retry_after: int = 0  # seconds
    methods: tuple[str, ...] = ()  # only these; empty: all
    path: str = ""  # only requests whose path contains this
    at_most: int | None = None  # no more faults than this
    n_made: int = 0
    seen: Counter = field(default_factory=Counter, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def clear(self) -> None:
        """No faults from now on."""
        for kind in KINDS:
            setattr(self, kind, 0)

    def set(self, **values: object) -> None:
        """Set fractions and limits anew; whatever is not named gets its default, and counting begins again."""
        fresh = Faults(**values)
        for entry in fields(Faults):
            if entry.name != "lock":
                setattr(self, entry.name, getattr(fresh, entry.name))

    def draw(self, method: str, path: str, requested_range: str | None) -> str | None:
        """Return the fault that this request meets, if any."""
        if (self.methods and method not in self.methods) or self.path not in path:
            return None
        key = (method, path, requested_range)
        with self.lock:
            self.seen[key] += 1
            chance = random.Random(f"{self.seed} {key} {self.seen[key]}").random()  # noqa: S311
            for kind in KINDS:
                chance -= getattr(self, kind)
                if chance < 0:
                    if self.at_most is not None and self.n_made >= self.at_most:
                        return None
                    self.n_made += 1
                    return kind
        return None


class Server(ThreadingHTTPServer):
    """An HTTP server on a free loopback port, in threads of its own; it logs what it is asked."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, handler: type["Handler"], owner: object) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.owner = owner
        self.sockets: set[socket.socket] = set()
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def process_request(self, request, client_address) -> None:
        self.sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:
        self.sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address) -> None:
        pass  # clients hang up in the middle: that is what the tests are about

    def stop(self) -> None:
        """Stop listening, and drop the connections that clients keep open."""
        self.shutdown()
        self.server_close()
        self.thread.join()
        for open_socket in list(self.sockets):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """Reads bodies of both kinds, and sends answers, whole or faulty. `owner` has `requests` and `faults`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server
    fault: str | None

    def __init__(self, *args: object) -> None:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
            setattr(self, f"do_{method}", self.answer_or_fail)
        super().__init__(*args)

    def answer(self) -> None:
        """Answer the request: what a server is about."""
        raise NotImplementedError

    def answer_or_fail(self) -> None:
        self.n_body_left = int(self.headers.get("Content-Length") or 0)
        self.chunked = "chunked" in self.headers.get("Transfer-Encoding", "").lower()
        self.fault = self.server.owner.faults.draw(self.command, self.path, self.headers.get("Range"))
        match self.fault:
            case "slow":
                time.sleep(self.server.owner.faults.slow_seconds)
            case "refused":
                self.log(0)
                self.reset()
                return
            case "too_many" | "unavailable":
                retry_after = {"Retry-After": str(self.server.owner.faults.retry_after)}
                self.read_body()
                if self.fault == "too_many":
                    self.send(429, b'{"error": "too many requests"}', retry_after)
                else:
                    self.send(503, b'{"error": "try again later"}')
                return
        self.answer()
        self.read_body()  # what an answer did not care to read, or the next request would begin inside it

    def read_body(self) -> bytes:
        return b"".join(self.body_blocks())

    def body_blocks(self) -> Iterator[bytes]:
        """Yield the body of the request, whether it came with a length or in pieces; once."""
        if self.chunked:
            self.chunked = False
            while n_bytes := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(n_bytes)
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b"\n", b""):
                pass
        while self.n_body_left:
            block = self.rfile.read(min(BLOCK, self.n_body_left))
            if not block:
                raise ConnectionResetError
            self.n_body_left -= len(block)
            yield block

    def send(self, status: int, body: bytes = b"", headers: Headers | None = None) -> None:
        self.send_blocks(status, [body], len(body), headers or {})

    def send_blocks(self, status: int, blocks: Iterable[bytes], n_bytes: int, headers: Headers) -> None:
        """Send an answer; the faults that concern bodies are done to it here. HEAD gets the headers alone."""
        if self.fault == "lost":
            self.log(0)
            self.reset()
            return
        blocks, announced, n_sent, fault = damaged(blocks, n_bytes, self.fault if status < 300 else None)
        if self.command == "HEAD":
            announced, n_sent, fault = n_bytes, 0, None
        elif not n_bytes:
            fault = None
        self.log(status, self.fault if self.fault in ("slow", "too_many", "unavailable") else fault, n_sent)
        self.send_response_only(status)
        for name, value in ({"Content-Length": str(announced)} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        n_left = n_sent
        for block in blocks:
            self.wfile.write(block[:n_left])
            n_left -= min(n_left, len(block))
            if not n_left:
                break
        if fault == "cut":
            self.reset()
        elif fault == "short":
            self.close_connection = True

    def reset(self) -> None:
        """Drop the connection so that the client gets a reset, and not an end."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log(self, status: int, fault: str | None = None, n_bytes: int = 0) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = fault or (self.fault if not status else None)
        entry = Request(self.command, self.path, self.headers.get("Range"), status, fault, n_bytes, headers)
        self.server.owner.requests.append(entry)

    def log_message(self, *_: object) -> None:
        pass


def damaged(blocks: Iterable[bytes], n_bytes: int, fault: str | None) -> tuple[Iterable[bytes], int, int, str | None]:
    """Return the blocks to send, the length to announce, that to send, and the fault that is in them."""
    match fault:
        case "cut" | "short":
            return blocks, n_bytes, n_bytes // 2, fault
        case "truncated":
            n_left = max(n_bytes - 7, 0)
            return blocks, n_left, n_left, fault
        case "padded":
            return [*blocks, b"\0" * 7], n_bytes + 7, n_bytes + 7, fault
        case "corrupt":
            return with_one_byte_changed(blocks), n_bytes, n_bytes, fault
    return blocks, n_bytes, n_bytes, None


def with_one_byte_changed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    changed = False
    for block in blocks:
        if block and not changed:
            changed = True
            yield bytes([block[0] ^ 1]) + block[1:]
        else:
            yield block
