"""Every error that is the user's to mend, each with an exit code and, where there is one, a remedy.

    TokenmillError            1   the work or the check failed
    ├── RecipeError           2   an option, a recipe file or a combination of them that makes no sense
    ├── SourceError           2   an input that is not there, or that is of no kind we read
    │   └── AccessError       2   a place that refuses us: no permission, or credentials that are no good
    ├── OutputError           2   an output folder that is not ours to write, or not a finished output
    ├── DataError             1   an input that is there and is broken: file, place, expected against found
    ├── ExactnessError        1   the fast engine and the reference gave different ids: our fault, and worth a report
    ├── DamageError           1   an output or a shipped file that is not what its checksum says
    ├── ReadError             3   an input that cannot be read any more; what is done is kept, a rerun goes on
    ├── WorkerError           3   workers end early, again and again; what is on disk is safe, a rerun goes on
    ├── SpaceError            3   no room on the disk; what is on disk is safe, a rerun goes on
    ├── BusyError             3   another process works on the same output
    └── NetworkError          3   a server that does not answer; what is on disk is safe, a rerun goes on

The message says what and where; `hint` is the exact flag or command that helps.
"""

from __future__ import annotations

import errno
import os

# What the system says where there is no room: on the disk, in the quota, in one file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What it says of a file that was moved away, and of a disk or a server that does not answer.
GONE = (errno.ENOENT, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ETIMEDOUT)


class TokenmillError(Exception):
    """Base of all errors that tokenmill raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RecipeError(TokenmillError):
    exit_code = 2


class SourceError(TokenmillError):
    exit_code = 2


class AccessError(SourceError):
    exit_code = 2


class OutputError(TokenmillError):
    exit_code = 2


class DataError(TokenmillError):
    exit_code = 1


class ExactnessError(TokenmillError):
    exit_code = 1


class DamageError(TokenmillError):
    exit_code = 1


class ReadError(TokenmillError):
    exit_code = 3


class WorkerError(TokenmillError):
    exit_code = 3


class SpaceError(TokenmillError):
    exit_code = 3


class BusyError(TokenmillError):
    exit_code = 3


class NetworkError(TokenmillError):
    exit_code = 3


BY_NAME: dict[str, type[TokenmillError]] = {
    cls.__name__: cls
    for cls in (
        TokenmillError,
        RecipeError,
        SourceError,
        AccessError,
        OutputError,
        DataError,
        ExactnessError,
        DamageError,
        ReadError,
        WorkerError,
        SpaceError,
        BusyError,
        NetworkError,
    )
}


def cannot_read(path: str, error: BaseException, kind: str = "") -> TokenmillError:
    """What to say of an input that was found and cannot be read: it is broken, or it is not there any more."""
    number = getattr(error, "errno", None)
    if number in GONE:
        return ReadError(
            f"cannot read `{path}` any more: {os.strerror(number).lower()}",
            hint="when it can be read again, run the same command: it goes on from here",
        )
    return DataError(f"cannot read `{path}`{kind}: {error}")


def did_you_mean(word: str, choices: list[str]) -> str | None:
    """Return a hint that names the closest choice, or all of them."""
    from difflib import get_close_matches

    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), by_lower, n=1)
    if close:
        return f"did you mean `{by_lower[close[0]]}`?"
    return "choose one of " + ", ".join(f"`{choice}`" for choice in choices) if choices else None
