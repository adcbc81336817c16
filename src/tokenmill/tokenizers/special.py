"""Find documents whose text spells certain words: special tokens, added tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tokenmill.batches import Documents


class SpelledWords:
    """Searches a whole batch for what the words begin with, and looks closer where that is found."""

    def __init__(self, words: Iterable[str]) -> None:
        encoded = [word.encode() for word in words if word]
        self._pattern = re.compile(b"|".join(re.escape(word) for word in encoded))
        # Nearly always one: `<|`, or all of `<|endoftext|>`. Short prefixes of several kinds cost a search each.
        starts = {word[:2] for word in encoded}
        self._prefixes = [common_prefix([word for word in encoded if word[:2] == start]) for start in starts]

    def documents(self, documents: Documents) -> set[int]:
        """Return the indices of the documents that spell at least one of the words."""
        if not self._prefixes:
            return set()
        first = documents.text_offsets[0]
        offsets = documents.text_offsets - first
        # A copy, since only bytes have a fast `find`: together about 0.9 GB/s.
        text = documents.text_bytes[first : first + offsets[-1]].tobytes()
        found: set[int] = set()
        for prefix in self._prefixes:
            place = text.find(prefix)
            while place >= 0:
                document = int(np.searchsorted(offsets, place, side="right")) - 1
                end = int(offsets[document + 1])
                if self._pattern.match(text, place, end):
                    found.add(document)
                    place = text.find(prefix, end)
                else:
                    place = text.find(prefix, place + 1)
        return found


def common_prefix(words: list[bytes]) -> bytes:
    """What all words begin with: all that the least and the greatest of them share."""
    least, greatest = min(words, default=b""), max(words, default=b"")
    length = next((i for i, pair in enumerate(zip(least, greatest, strict=False)) if pair[0] != pair[1]), len(least))
    return least[:length]
