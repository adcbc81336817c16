"""Files behind an https address, by HTTP with ranges; the Hub's files come this way too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any

from tokenmill.errors import AccessError, SourceError
from tokenmill.storage.addresses import Address, full_url, parsed, redacted
from tokenmill.storage.remote import Hitch, RemoteFile, taken

CHUNK_BYTES = 1 << 20
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
BUSY = (408, 425, 429, 500, 502, 503, 504)


def list_files(address: Address) -> list[RemoteFile]:
    """The one file at an address. A range of one byte tells size and ETag, also where HEAD is not signed for."""
    with client() as http:
        response = ask(http, address, {"Range": "bytes=0-0", "Accept-Encoding": "identity"})
    if "/" in response.headers.get("Content-Range", ""):
        total = response.headers["Content-Range"].rpartition("/")[2]
    else:  # ranges are ignored, or the file is empty
        total = "0" if response.status_code == 416 else response.headers.get("Content-Length", "")
    if not total.isdecimal():
        raise SourceError(f"the server does not say how large `{address}` is", hint="download it yourself")
    tag = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
    return [RemoteFile(str(address), int(total), f"etag:{tag}")]


def ask(http: Any, address: Address, headers: dict[str, str]) -> Any:
    """Send a request and look at its answer, not at its body."""
    import httpx2

    try:
        with http.stream("GET", full_url(str(address)), headers=headers) as response:
            if (hitch := response_hitch(response)) is not None:
                raise hitch
            if response.status_code >= 400 and response.status_code != 416:
                raise refusal(address, response.status_code)
            return response
    except httpx2.TransportError as error:
        raise Hitch(str(error) or type(error).__name__) from None
    except (httpx2.InvalidURL, httpx2.TooManyRedirects) as error:
        raise SourceError(f"cannot read `{address}`: {redacted(str(error))}") from None


def refusal(address: Address, status: int) -> SourceError:
    if status in (401, 403):
        return AccessError(f"no permission to read `{address}` ({status})", hint="has the link expired?")
    if status in (404, 410):
        return SourceError(f"there is nothing at `{address}` ({status})")
    if status == 416:
        return SourceError(f"`{address}` is shorter than the server said before", hint="did somebody write it?")
    return SourceError(f"the server refuses `{address}`: status {status}")


def stream(file: RemoteFile, start: int, stop: int | None = None) -> Iterator[bytes]:
    address = parsed(file.address)

    def refuse(response: Any) -> None:
        if response.status_code >= 400:
            raise refusal(address, response.status_code)
        if response.headers.get("ETag", tag) != tag and tag.strip("W/").startswith('"'):
            raise SourceError(f"`{address}` changed while it was read", hint="run again when nobody writes it")

    tag = file.digest.removeprefix("etag:")
    with client() as http:
        yield from get_stream(http, full_url(str(address)), {}, start, stop, refuse, tag)


def get_stream(
    http: Any,
    url: str,
    headers: dict[str, str],
    start: int,
    stop: int | None,
    refuse: Callable[[Any], None],
    tag: str = "",
) -> Iterator[bytes]:
    """Yield the bytes of a URL from `start` on. A server that ignores ranges sends the whole, of which the rest counts.

    `refuse` raises for an answer that is none. `tag`: the ETag of the file that is meant.
    """
    import httpx2

    wanted = "" if stop is None else str(stop - 1)
    asked = {**headers, "Accept-Encoding": "identity"}
    if start or stop is not None:
        asked["Range"] = f"bytes={start}-{wanted}"
        if tag.startswith('"'):
            asked["If-Range"] = tag
    timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    try:
        with http.stream("GET", url, headers=asked, timeout=timeout, follow_redirects=True) as response:
            if (hitch := response_hitch(response)) is not None:
                raise hitch
            refuse(response)
            yield from taken(response.iter_bytes(CHUNK_BYTES), 0 if response.status_code == 206 else start, start, stop)
    except httpx2.TransportError as error:
        raise Hitch(str(error) or type(error).__name__) from None


def response_hitch(response: Any) -> Hitch | None:
    """What may pass: a server that is busy, or that asks to come back later."""
    if response is None or response.status_code not in BUSY:
        return None
    return Hitch(f"the server answers {response.status_code}", retry_after(response.headers))


def retry_after(headers: Any) -> float | None:
    """Seconds that the server asks to wait: a number, or a date."""
    value = headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        from datetime import UTC, datetime

        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def client() -> Any:
    import httpx2

    return httpx2.Client(follow_redirects=True, timeout=httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS))
