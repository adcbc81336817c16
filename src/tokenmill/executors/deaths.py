"""What a worker's death means: how it died, and what to do about the unit it held.

Pure: the parent says what it saw, and gets back what to send next.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from tokenmill.care import NO_CARE, Care, Note, Place

# A batch is tried so often before it is halved, and a document by itself before an engine is said to be unable to take
# it: a worker may die by no fault of its documents.
TRIES_OF_A_BATCH = 2
# And a unit, when its workers die between batches: while it is read, or before there is anything to encode.
TRIES_BETWEEN_BATCHES = 3
# What Rust says before it aborts.
OUT_OF_MEMORY_WORDS = ("memory allocation of", "MemoryError", "std::bad_alloc")


class Death(msgspec.Struct, frozen=True, tag=True):
    """How a worker ended in the middle of a unit."""

    pid: int
    how: str
    words: str  # its last ones
    note: Note | None  # of what it was at
    stalled: bool = False
    out_of_memory: bool = False


@dataclass
class Trouble:
    """What is known of a unit whose workers died."""

    care: Care = NO_CARE
    suspect: Note | None = None  # the batch that is being halved
    n_deaths: Counter[Note | None] = field(default_factory=Counter)

    @property
    def hopeless(self) -> bool:
        return self.n_deaths[None] >= TRIES_BETWEEN_BATCHES

    def blame(self, note: Note | None, how: str, *, use_reference: bool) -> str:
        """Take a death into account, and say what happens next."""
        if note is None or note.n_documents == 0:
            self.n_deaths[None] += 1
            return "the unit goes to a fresh worker"
        self.n_deaths[note] += 1
        if not within(note, self.suspect):
            if self.n_deaths[note] < TRIES_OF_A_BATCH:
                return "the unit goes to a fresh worker"
            self.suspect = note
        if note.n_documents > 1:
            middle = Place(note.span, (note.first_row + note.last_row + 1) // 2)
            self.care = msgspec.structs.replace(self.care, cut_before=(*self.care.cut_before, middle))
            return f"its batch of {note.n_documents:,} documents is halved"
        if self.n_deaths[note] < TRIES_OF_A_BATCH:
            return "the document is tried once more, by itself"
        self.n_deaths[note] = 0
        place = Place(note.span, note.first_row)
        if place not in self.care.by_reference and not use_reference:
            self.care = msgspec.structs.replace(self.care, by_reference=(*self.care.by_reference, place))
            return "the document goes to the reference engine"
        excluded = (*self.care.excluded, (place, f"its worker died: {how}"))
        self.care = msgspec.structs.replace(self.care, excluded=excluded)
        return "the document goes to quarantine"


def within(note: Note, suspect: Note | None) -> bool:
    return (
        suspect is not None
        and note.span == suspect.span
        and suspect.first_row <= note.first_row
        and note.last_row <= suspect.last_row
    )


def stall_limit(seconds: float, note: Note | None, trouble: Trouble) -> float:
    """How long a worker may go without a sign: for a half of a batch that hung half as long, and so on."""
    if note is None or not note.n_documents or not within(note, trouble.suspect):
        return seconds
    assert trouble.suspect is not None
    return max(min(seconds, 5.0), seconds * note.n_documents / trouble.suspect.n_documents)


def exit_in_words(status: int) -> str:
    """Return how a process ended: its exit code, or the name of the signal."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def was_out_of_memory(status: int, n_oom_kills: int, last_words: str) -> bool:
    """Whether the kernel killed it for memory, or it said so itself."""
    killed_by_kernel = status == -signal.SIGKILL and n_oom_kills > 0
    return killed_by_kernel or (status != 0 and any(words in last_words for words in OUT_OF_MEMORY_WORDS))
