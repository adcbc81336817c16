"""Data sets of the Hugging Face Hub, through huggingface_hub: its token, cache, endpoint and offline mode.

A revision is turned into a commit once, before anything is listed: a commit never changes. Listing is one request a
thousand files, and each file is one request; what lies in the Hub's own cache is used where it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenmill.errors import AccessError, NetworkError, SourceError
from tokenmill.storage.addresses import Address, glob_pattern, glob_prefix, has_magic, matches, parsed
from tokenmill.storage.remote import FIRST_TRIES, Hitch, RemoteFile, patiently
from tokenmill.storage.web import get_stream, response_hitch

TIMEOUT_SECONDS = 30.0


def pinned(address: Address) -> Address:
    """The same place at a commit."""
    if address.is_pinned:
        return address
    if offline():
        return address._replace(revision=cached_snapshot(address).name)
    with translated(address):
        info = patiently(lambda: _info(address), f"look up `{address}`", FIRST_TRIES)
    return address._replace(revision=info.sha)


def _info(address: Address) -> Any:
    from huggingface_hub import HfApi

    with hitches():
        return HfApi().dataset_info(address.root, revision=address.revision, timeout=TIMEOUT_SECONDS)


def list_files(address: Address) -> list[RemoteFile]:
    """List what is at a pinned address."""
    if offline():
        return cached_files(address)
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    prefix = glob_prefix(address.path)
    options: dict[str, Any] = {"revision": address.revision, "repo_type": "dataset"}
    with translated(address), hitches():
        entries: list[Any] = []
        if "." in prefix.rpartition("/")[2] and not has_magic(address.path):  # it looks like a file
            entries = [e for e in HfApi().get_paths_info(address.root, [prefix], **options) if isinstance(e, RepoFile)]
        if not entries:
            entries = list(HfApi().list_repo_tree(address.root, prefix or None, recursive=True, **options))
    pattern = glob_pattern(address.path) if has_magic(address.path) else None
    return sorted(
        (
            RemoteFile(
                str(address.at(entry.path)),
                entry.size,
                f"sha256:{entry.lfs.sha256}" if entry.lfs else f"git:{entry.blob_id}",
            )
            for entry in entries
            if isinstance(entry, RepoFile) and (pattern is None or matches(pattern, address, entry.path))
        ),
        key=lambda file: file.address,
    )


def stream(file: RemoteFile, start: int, stop: int | None = None) -> Iterator[bytes]:
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils._headers import build_hf_headers

    address = parsed(file.address)
    if offline():
        raise NetworkError(
            f"`{address}` is not in the cache, and the Hub is switched off (HF_HUB_OFFLINE)",
            hint="unset HF_HUB_OFFLINE",
        )
    url = hf_hub_url(address.root, address.path, repo_type="dataset", revision=address.revision)
    headers = build_hf_headers(library_name="tokenmill")
    with translated(address):
        yield from get_stream(get_session(), url, headers, start, stop, refuse)


def refuse(response: Any) -> None:
    from huggingface_hub.utils._http import hf_raise_for_status

    if response.status_code >= 400:
        response.read()
        hf_raise_for_status(response)


def cached_path(file: RemoteFile) -> Path | None:
    """Where a file lies in the Hub's cache, if it is there."""
    from huggingface_hub import try_to_load_from_cache

    address = parsed(file.address)
    try:
        found = try_to_load_from_cache(address.root, address.path, revision=address.revision, repo_type="dataset")
    except ValueError:  # a name that could be no path, as `C:/x`
        return None
    return Path(found) if isinstance(found, str) else None


def offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def cached_snapshot(address: Address) -> Path:
    """The folder of a revision in the Hub's cache."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=address.root, repo_type="dataset")
    revision = address.revision or "main"
    ref = folder / "refs" / revision
    if ".." not in Path(revision).parts and ref.is_file():
        revision = ref.read_text(encoding="ascii").strip()
    snapshot = folder / "snapshots" / revision
    if not snapshot.is_dir() or snapshot.parent.name != "snapshots":
        raise SourceError(
            f"`{address}` is not in the cache, and the Hub is switched off (HF_HUB_OFFLINE)",
            hint="unset HF_HUB_OFFLINE, or fetch it before with `hf download`",
        )
    return snapshot


def cached_files(address: Address) -> list[RemoteFile]:
    """List a snapshot in the cache: as much of the repository as was fetched. Its blobs are named by their digest."""
    snapshot = cached_snapshot(address)
    pattern = glob_pattern(address.path) if has_magic(address.path) else None
    found = []
    for path in sorted(snapshot.rglob("*")):
        name = path.relative_to(snapshot).as_posix()
        below = not address.path or name == address.path or name.startswith(f"{address.path}/")
        if path.is_file() and (matches(pattern, address, name) if pattern else below):
            blob = path.resolve().name
            digest = f"sha256:{blob}" if len(blob) == 64 else f"git:{blob}"
            found.append(RemoteFile(str(address.at(name)), path.stat().st_size, digest))
    return found


@contextmanager
def hitches() -> Iterator[None]:
    """Tell what may pass from what will not, in what the library raises."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HfHubHTTPError as error:
        hitch = response_hitch(error.response)
        raise (hitch or error) from None
    except httpx2.TransportError as error:
        raise Hitch(str(error) or type(error).__name__) from None
    except json.JSONDecodeError:
        raise Hitch("an answer came that is not whole") from None


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Say in our words what the Hub refuses."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise AccessError(
            f"`hf://datasets/{address.root}` is gated, and this user has no access",
            hint=f"ask for access on https://huggingface.co/datasets/{address.root}, then `hf auth login`"
            " or set HF_TOKEN",
        ) from None
    except errors.RepositoryNotFoundError:
        raise SourceError(
            f"there is no data set `hf://datasets/{address.root}`, or it is private"
            + ("" if has_token() else " and no token is set"),
            hint="look at its name; for a private one `hf auth login` or set HF_TOKEN",
        ) from None
    except errors.RevisionNotFoundError:
        raise SourceError(f"`hf://datasets/{address.root}` has no revision `{address.revision}`") from None
    except errors.EntryNotFoundError:
        raise SourceError(
            f"there is nothing at `{address}`",
            hint=f"its files are listed on https://huggingface.co/datasets/{address.root}/tree/main",
        ) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            raise AccessError(
                f"the Hub does not accept the token for `hf://datasets/{address.root}` ({status})",
                hint="`hf auth login`, or set HF_TOKEN to a token that is valid",
            ) from None
        raise SourceError(f"the Hub refuses `{address}`: status {status}") from None
    except errors.HFValidationError:
        raise SourceError(
            f"`{address.root}` is no name of a repository", hint="hf://datasets/OWNER/NAME[@REVISION]/path"
        ) from None


def has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None or "HF_TOKEN" in os.environ
