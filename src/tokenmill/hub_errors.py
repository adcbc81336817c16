"""What the Hub's client raises -> errors of ours: one message, a remedy, an exit code.

no token, a wrong one, no permission, no such repository   OutputError    2
no network, 408, 429, 5xx                                  NetworkError   3, run it again
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub import get_token
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

from tokenmill.errors import NetworkError, OutputError, TokenmillError

AGAIN = "run the same command again: what is there is not uploaded again"


@contextmanager
def hub_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Say what the Hub's client raises in the words of the house."""
    try:
        yield
    except TokenmillError:
        raise
    except Exception as error:
        # The client wraps what happens in its upload threads.
        cause = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error
        if (said := said_of(cause, repo, endpoint)) is None:
            raise
        raise said from None


def said_of(error: BaseException, repo: str, endpoint: str) -> TokenmillError | None:
    if isinstance(error, LocalEntryNotFoundError):  # not to be had, and not in the cache either
        error = error.__cause__ or error
    if isinstance(error, HfHubHTTPError):
        return said_of_status(error, repo)
    if isinstance(error, httpx2.TransportError | ConnectionError | TimeoutError | LocalEntryNotFoundError):
        return NetworkError(f"the Hub at `{endpoint}` cannot be reached: {first_line(error)}", hint=AGAIN)
    if isinstance(error, PermissionError) and error.filename is None:  # of Xet, which stores the bytes
        return refused(repo, first_line(error))
    return None


def said_of_status(error: HfHubHTTPError, repo: str) -> TokenmillError:
    status = error.response.status_code
    why = (error.server_message or first_line(error)).splitlines()[0]
    if status == 401:
        what = "the Hub does not take this token" if get_token() else "the Hub wants a token, and there is none"
        return OutputError(f"{what}: {why}", hint="log in with `hf auth login`, or set HF_TOKEN")
    if status == 403:
        return refused(repo, why)
    if isinstance(error, RepositoryNotFoundError):
        return OutputError(f"`{repo}` is not there, or this token must not see it")
    if status in (408, 429) or status >= 500:
        return NetworkError(f"the Hub answers with {status}: {why}", hint=AGAIN)
    return OutputError(f"the Hub refuses with {status}: {why}")


def refused(repo: str, why: str) -> OutputError:
    return OutputError(
        f"this token may not write to `{repo}`: {why}",
        hint="take a token with write access to it: `hf auth login`, or HF_TOKEN",
    )


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
