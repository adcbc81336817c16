"""Count documents whose text spells a special token. It stays text; this is only to let the user know."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tokenmill.batches import Documents


class SpecialTextCounter:
    """Searches a whole batch for what special tokens begin with, and looks closer where that is found."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        words = [word.encode() for word in special_tokens if word]
        self._pattern = re.compile(b"|".join(re.escape(word) for word in words))
        # Nearly always one: `<|`, or all of `<|endoftext|>`. Short prefixes of several kinds cost a search each.
        starts = {word[:2] for word in words}
        self._prefixes = [common_prefix([word for word in words if word[:2] == start]) for start in starts]

    def count(self, documents: Documents) -> int:
        """Return the number of documents that spell at least one of the special tokens."""
        first = documents.text_offsets[0]
        offsets = documents.text_offsets - first
        # A copy, since only bytes have a fast `find`: together still above 1 GB/s.
        text = documents.text_bytes[first : first + offsets[-1]].tobytes()
        found: set[int] = set()
        for prefix in self._prefixes:
            place = text.find(prefix)
            while place >= 0:
                document = int(np.searchsorted(offsets, place, side="right")) - 1
                end = int(offsets[document + 1])
                match = self._pattern.match(text, place)
                if match and match.end() <= end:
                    found.add(document)
                    place = text.find(prefix, end)
                else:
                    place = text.find(prefix, place + 1)
        return len(found)


def common_prefix(words: list[bytes]) -> bytes:
    """What all words begin with: all that the least and the greatest of them share."""
    least, greatest = min(words, default=b""), max(words, default=b"")
    length = next((i for i, pair in enumerate(zip(least, greatest, strict=False)) if pair[0] != pair[1]), len(least))
    return least[:length]
