"""Object stores (S3, Google Cloud Storage, Azure), through obstore.

Credentials come from each store's own chain: variables, files, the machine's role. `AWS_ENDPOINT_URL` names another
server that speaks S3. An object is there whole or not at all: a put is atomic, also in several parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenmill.errors import AccessError, SourceError, TokenmillError
from tokenmill.storage.addresses import Address, glob_pattern, glob_prefix, has_magic, matches, parsed, redacted
from tokenmill.storage.remote import FIRST_TRIES, MAX_TRIES, Hitch, RemoteFile, patiently, taken

CHUNK_BYTES = 1 << 20
PART_BYTES = 16 << 20  # of a put in several parts: 10,000 of them are 160 GB
PARTS_AT_ONCE = 4
WHOLE_BYTES = 32 << 20  # up to here a put is one request: most segments are, which in parts would be four
# A request is tried again by obstore itself at once, and by us with longer waits.
RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=30)}
ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role is given; with boto3 installed,"
    " profiles and `aws sso login` count too",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or a token or SAS of Azure's own variables",
}

NO_CREDENTIALS = r"169\.254\.169\.254|metadata\.google|MissingCredentials|Account must be specified"
BAD_CREDENTIALS = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")  # with status 400


@lru_cache
def bucket(scheme: str, root: str) -> Any:
    """The store of a bucket; one for the whole process, with its connections."""
    from obstore.store import from_url

    set_ones = {name: os.environ[name] for name in ENDPOINTS[scheme] if name in os.environ}
    for name, value in set_ones.items():
        if not re.match(r"https?://\w", value):
            raise SourceError(f"{name} is `{redacted(value)}`, which is no URL", hint=f"unset {name}, or mend it")
    endpoint = next(iter(set_ones.values()), "")
    options: Any = {
        "client_options": {"allow_http": endpoint.startswith("http://"), "connect_timeout": "10s", "timeout": "10min"},
        "retry_config": RETRIES,
    }
    if scheme == "s3" and endpoint:
        options["endpoint"] = endpoint
    if scheme == "s3" and not os.environ.get("AWS_ACCESS_KEY_ID") and (provider := profile_credentials()):
        options["credential_provider"] = provider
    return from_url(f"{scheme}://{root}", **options)


def profile_credentials() -> Any:
    """What boto3 knows (profiles, single sign-on), where it is installed; obstore knows variables and roles itself."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    try:
        return Boto3CredentialProvider()
    except ValueError:  # it knows none either
        return None


def list_files(address: Address) -> list[RemoteFile]:
    """The object at an address, those below it, or those that its glob matches, in one listing."""
    prefix = glob_prefix(address.path)
    pattern = glob_pattern(address.path) if has_magic(address.path) else None
    found = listing(address.at(prefix))
    if not found and prefix and pattern is None:
        found = [entry] if (entry := head(address)) else []
    files = [file for file in found if pattern is None or matches(pattern, address, parsed(file.address).path)]
    return sorted(files, key=lambda file: file.address)


def listing(address: Address) -> list[RemoteFile]:
    """All objects below a folder."""
    import obstore

    with translated(address):
        pages = obstore.list(bucket(address.scheme, address.root), address.path or None)
        return [remote_file(address, meta) for page in pages for meta in page]


def by_name(address: Address) -> dict[str, RemoteFile]:
    """All objects below a folder by their names there; no character of an address means anything but itself."""
    found = patiently(lambda: listing(address), f"list `{address}`", FIRST_TRIES)
    return {file.address[len(str(address)) + 1 :]: file for file in found}


def head(address: Address) -> RemoteFile | None:
    import obstore

    try:
        with translated(address):
            return remote_file(address, obstore.head(bucket(address.scheme, address.root), address.path))
    except FileNotFoundError:
        return None


def remote_file(address: Address, meta: Any) -> RemoteFile:
    tag = (meta["e_tag"] or meta["last_modified"].isoformat()).strip('"')
    return RemoteFile(str(address.at(meta["path"])), meta["size"], f"etag:{tag}")


def stream(file: RemoteFile, start: int, stop: int | None = None) -> Iterator[bytes]:
    import obstore

    address = parsed(file.address)
    store = bucket(address.scheme, address.root)
    end = file.size if stop is None else stop
    options: Any = {"range": (start, end)} if (start, end) != (0, file.size) and start < end else {}
    try:
        with translated(address):
            try:
                result = obstore.get(store, address.path, options=options)
                n_unwanted = 0
            except obstore.exceptions.GenericError as error:
                if "NotPartial" not in str(error):
                    raise
                result, n_unwanted = obstore.get(store, address.path), start  # a server that does not know ranges
            tag = (result.meta["e_tag"] or "").strip('"')
            if tag and file.digest.startswith("etag:") and file.digest != f"etag:{tag}":
                raise SourceError(f"`{address}` changed while it was read", hint="run again when nobody writes it")
            yield from taken(map(bytes, result.stream(min_chunk_size=CHUNK_BYTES)), n_unwanted, start, stop)
    except FileNotFoundError:
        raise SourceError(f"there is nothing at `{address}`") from None


def get(address: Address, n_bytes: int) -> bytes | None:
    """A small object of a known size, or None where there is none."""

    def read() -> bytes | None:
        data, _ = get_tagged(address)
        if data is not None and len(data) != n_bytes:
            raise Hitch(f"{len(data):,} bytes came, expected {n_bytes:,}")
        return data

    return patiently(read, f"read `{address}`")


def get_tagged(address: Address, max_tries: int = MAX_TRIES) -> tuple[bytes | None, str | None]:
    """A small object and its tag. Whether all of it came is for the caller to see."""

    def read() -> tuple[bytes | None, str | None]:
        import obstore

        try:
            with translated(address):
                result = obstore.get(bucket(address.scheme, address.root), address.path)
                return bytes(result.bytes()), result.meta["e_tag"]
        except FileNotFoundError:
            return None, None

    return patiently(read, f"read `{address}`", max_tries)


def put(address: Address, data: bytes | Path, *, mode: Any = "overwrite") -> str | None:
    """Put an object whole, and return its tag. `mode` "create" or {"e_tag": ...} makes it conditional.

    Raises FileExistsError where the condition does not hold.
    """
    n_bytes = len(data) if isinstance(data, bytes) else data.stat().st_size

    def write() -> str | None:
        import obstore

        try:
            with translated(address):
                result = obstore.put(
                    bucket(address.scheme, address.root),
                    address.path,
                    data,
                    mode=mode,
                    use_multipart=n_bytes > WHOLE_BYTES,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )
                return result["e_tag"]
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            raise FileExistsError(str(address)) from None

    return patiently(write, f"write `{address}`")


def delete(addresses: list[Address], max_tries: int = MAX_TRIES) -> None:
    """Remove objects of a bucket, many in one request; those that are not there are as good as removed."""
    import obstore

    def remove(some: list[Address]) -> None:
        try:
            with translated(some[0]):
                obstore.delete(bucket(some[0].scheme, some[0].root), [address.path for address in some])
        except FileNotFoundError:  # not on S3
            for address in some if len(some) > 1 else []:
                remove([address])

    if addresses:
        patiently(lambda: remove(addresses), f"remove `{addresses[0]}`", max_tries)


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Say in our words what a store refuses, and tell what may pass from what will not."""
    import obstore

    try:
        yield
    except (TokenmillError, Hitch, FileNotFoundError):
        raise
    except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
        raise
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        raise explained(address, str(error)) from None


def explained(address: Address, text: str) -> Exception:
    """What the text of an error of obstore's comes to."""
    where = f"{address.scheme}://{address.root}"
    found = re.search(r"status code: (\d{3})", text) or re.search(r"status: (\d{3})", text)
    status, code = int(found[1]) if found else 0, re.search(r"<Code>(\w+)</Code>", text)
    what = code[1] if code else str(status)
    if re.search(NO_CREDENTIALS, text):
        return SourceError(f"no credentials for `{where}`", hint=CREDENTIALS[address.scheme])
    if what == "NoSuchBucket":
        return SourceError(f"there is no bucket `{where}`")
    if status in (401, 403) or what in BAD_CREDENTIALS or re.search(r"Unauthenticated|PermissionDenied", text):
        return AccessError(
            f"no permission for `{address}` ({what})",
            hint=f"are these the right credentials? {CREDENTIALS[address.scheme]}",
        )
    if status == 0 or status in (408, 409, 425, 429) or status >= 500:
        return Hitch(first_line(text))
    return SourceError(f"the store refuses `{address}`: {first_line(text)}")


def first_line(text: str) -> str:
    """The first line of an error of obstore's, without what is only for developers of it."""
    line = text.strip().partition("\n")[0]
    cause = re.search(r"(?:HTTP error|status code): .*", line)
    return redacted(cause[0] if cause else line)[:300]
