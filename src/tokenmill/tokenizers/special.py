"""Count documents whose text spells a special token. It stays text; this is only to let the user know."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tokenmill.batches import Documents


class SpecialTextCounter:
    """Searches a whole batch for what all special tokens begin with, and looks closer where that is found."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        words = [word.encode() for word in special_tokens]
        self._prefix = common_prefix(words)
        self._pattern = re.compile(b"|".join(re.escape(word) for word in words)) if words else None

    def count(self, documents: Documents) -> int:
        """Return the number of documents that spell at least one of the special tokens."""
        if self._pattern is None:
            return 0
        offsets = documents.text_offsets - documents.text_offsets[0]
        # A copy, since only bytes have a fast `find`: together still above 1 GB/s.
        text = documents.text_bytes[documents.text_offsets[0] : documents.text_offsets[-1]].tobytes()
        n_documents = 0
        place = text.find(self._prefix)
        while place >= 0:
            match = self._pattern.match(text, place)
            end_of_document = int(offsets[np.searchsorted(offsets, place, side="right")])
            if match and match.end() <= end_of_document:
                n_documents += 1
                place = text.find(self._prefix, end_of_document)
            else:
                place = text.find(self._prefix, place + 1)
        return n_documents


def common_prefix(words: list[bytes]) -> bytes:
    """What all words begin with: all that the least and the greatest of them share."""
    least, greatest = min(words, default=b""), max(words, default=b"")
    length = next((i for i, pair in enumerate(zip(least, greatest, strict=False)) if pair[0] != pair[1]), len(least))
    return least[:length]
