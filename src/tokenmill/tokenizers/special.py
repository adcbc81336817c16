"""Words in the text that are more than text: special tokens, added tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokenmill.batches import Documents
from tokenmill.errors import RecipeError
from tokenmill.tokenizers.vocabularies import VOCABULARIES

if TYPE_CHECKING:
    from tokenmill.tokenizers import Tokenizer


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
