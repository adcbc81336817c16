"""Words in the text that are more than text: special tokens, added tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.batches import Documents
from tokenmill.errors import RecipeError
from tokenmill.tokenizers.vocabularies import VOCABULARIES

if TYPE_CHECKING:
    from tokenmill.tokenizers import Tokenizer

# What is compared at a time: it stays in the cache of a core.
WINDOW_BYTES = 1 << 17


class SpelledWords:
    """Searches a whole batch for what the words begin with, and looks closer where that is found."""

    def __init__(self, words: Iterable[str]) -> None:
        encoded = [word.encode() for word in words if word]
        self._pattern = re.compile(b"|".join(re.escape(word) for word in encoded))
        self._longest = max(map(len, encoded), default=0)
        # Nearly always one: `<|`, or all of `<|endoftext|>`. Short prefixes of several kinds cost a search each.
        starts = {word[:2] for word in encoded}
        self._prefixes = [common_prefix([word for word in encoded if word[:2] == start]) for start in starts]

    def documents(self, documents: Documents) -> set[int]:
        """Return the indices of the documents that spell at least one of the words."""
        return {document for document, _ in self.spelled(documents)}

    def spelled(self, documents: Documents) -> Iterator[tuple[int, str]]:
        """Yield the documents that spell one of the words, by index, each with the first that was found."""
        if not self._prefixes or not len(documents):
            return
        first = documents.text_offsets[0]
        offsets = documents.text_offsets - first
        data = documents.text_bytes[first : first + offsets[-1]]
        found: set[int] = set()
        for prefix in self._prefixes:
            for places in places_of(prefix, data):
                indices = np.searchsorted(offsets, places, side="right") - 1
                for place, document in zip(places.tolist(), indices.tolist(), strict=True):
                    if document in found:
                        continue
                    end = min(int(offsets[document + 1]), place + self._longest)
                    if match := self._pattern.match(data[place:end].tobytes()):
                        found.add(document)
                        yield document, match[0].decode()


def places_of(prefix: bytes, data: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield where a prefix stands, in order: two bytes are compared everywhere, the others where these are found.

    In numpy, without a copy: 3 to 5 GB/s where `<|` is rare, and 0.8 by `bytes.find`.
    """
    lead = prefix[:2]
    for start in range(0, len(data), WINDOW_BYTES):
        window = data[start : start + WINDOW_BYTES + len(lead) - 1]
        is_there = window[: len(window) - len(lead) + 1] == lead[0]
        if len(lead) > 1:
            is_there &= window[1:] == lead[1]
        if not is_there.any():
            continue
        places = np.flatnonzero(is_there) + start
        places = places[places + len(prefix) <= len(data)]
        for i in range(2, len(prefix)):
            places = places[data[places + i] == prefix[i]]
        yield places


def common_prefix(words: list[bytes]) -> bytes:
    """What all words begin with: all that the least and the greatest of them share."""
    least, greatest = min(words, default=b""), max(words, default=b"")
    length = next((i for i, pair in enumerate(zip(least, greatest, strict=False)) if pair[0] != pair[1]), len(least))
    return least[:length]


def encode_with_special(
    tokenizer: Tokenizer,
    text: str,
    allowed: Literal["all"] | Collection[str],
    disallowed: Literal["all"] | Collection[str],
) -> list[int]:
    """Return the ids of a text in which some special tokens count as such, and others are refused, as tiktoken does."""
    if tokenizer.name not in VOCABULARIES:
        raise RecipeError(
            f"`allowed_special` and `disallowed_special` are tiktoken's, and `{tokenizer.name}` is not one of its own",
            hint=f"leave them out, or use one of {', '.join(VOCABULARIES)}",
        )
    special = tokenizer.special_tokens
    allowed = special.keys() if allowed == "all" else special.keys() & set(allowed)
    refused = special.keys() - allowed if disallowed == "all" else set(disallowed)
    if refused and (match := re.search("|".join(re.escape(word) for word in refused), text)):
        raise ValueError(
            f"the text spells the special token {match[0]!r}: to encode it as text pass `disallowed_special=()`,"
            f" to encode it as the token pass `allowed_special={{{match[0]!r}}}`"
        )
    if not allowed:
        return tokenizer.encode_ordinary(text)
    # What stands between two special tokens is a text of its own for tiktoken too; the odd pieces are the tokens.
    pieces = re.split("(" + "|".join(re.escape(word) for word in allowed) + ")", text)
    between = iter(tokenizer.encode_ordinary_batch(pieces[::2]))
    ids = list(next(between))
    for word in pieces[1::2]:
        ids += [special[word], *next(between)]
    return ids
