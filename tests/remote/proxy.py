"""A proxy in front of a server, which passes requests on as they are and lets a fraction of the answers go wrong.

The Host header stays as the client sent and signed it: S3 servers check the signature against the Host header they
get, so a signature made for the proxy's address holds behind it. One thing is always mended: `rclone serve s3` answers
a range with 200 and a Content-Range, where S3 says 206, and obstore takes nothing else.
"""

import http.client
import re
import threading
from collections.abc import Callable, Iterator
from urllib.parse import unquote, urlsplit

from wire import BLOCK, Faults, Handler, Request, Server

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}
WRITES = ("PUT", "POST", "DELETE")
EtagOf = Callable[[str], str | None]


class FaultProxy:
    """The proxy as a context manager.

    With `etag_of` (a server's function from `/bucket/key` to its ETag, or None), puts with `If-None-Match: *` or
    `If-Match` get the conditions of S3, which `rclone serve s3` ignores.
    """

    def __init__(self, upstream: str, *, etag_of: EtagOf | None = None) -> None:
        self.upstream, self.etag_of = upstream, etag_of
        self.deny_writes = False
        self.deny_buckets: set[str] = set()
        self.requests: list[Request] = []
        self.faults = Faults()
        self.lock = threading.Lock()  # a condition and the put that depends on it are one step

    def __enter__(self) -> "FaultProxy":
        self.server = Server(ProxyHandler, self)
        self.endpoint = self.server.endpoint
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


class ProxyHandler(Handler):
    def answer(self) -> None:
        proxy = self.server.owner
        path = unquote(urlsplit(self.path).path)
        if path.split("/")[1] in proxy.deny_buckets or (proxy.deny_writes and self.command in WRITES):
            self.refuse(403, "AccessDenied", "Access Denied")
        elif (
            proxy.etag_of and self.command in WRITES and ("If-None-Match" in self.headers or "If-Match" in self.headers)
        ):
            body = self.read_body()
            with proxy.lock:
                if self.condition_holds(proxy.etag_of(path)):
                    self.forward(proxy.upstream, body)
                else:
                    self.refuse(412, "PreconditionFailed", "At least one of the preconditions did not hold")
        else:
            self.forward(proxy.upstream, self.read_body())

    def condition_holds(self, etag: str | None) -> bool:
        if self.headers.get("If-None-Match") == "*" and etag is not None:
            return False
        wanted = self.headers.get("If-Match")
        return wanted is None or (etag is not None and wanted in ("*", etag))

    def refuse(self, status: int, code: str, message: str) -> None:
        self.read_body()
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
        self.send(status, text.encode(), {"Content-Type": "application/xml"})

    def forward(self, upstream: str, body: bytes) -> None:
        """Ask the server behind, and pass on what it answers."""
        address = urlsplit(upstream)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    connection.putheader(name, value)
            if body or self.command in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
            length = answer.getheader("Content-Length")
            status = 206 if answer.status == 200 and "Content-Range" in answer.headers else answer.status
            if self.command == "HEAD" or (length is not None and re.fullmatch(r"\d+", length)):
                self.send_blocks(status, blocks_of(answer), int(length or 0), headers)
            else:
                self.send(status, answer.read(), headers)
        finally:
            connection.close()


def blocks_of(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while block := answer.read(BLOCK):
        yield block
