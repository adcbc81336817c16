"""The reference engine for rank files: tiktoken's own `encode_ordinary`, one document at a time.

tiktoken panics on 999,999 or more whitespace characters in a row: the backtracking of its pattern hits a limit. What
it would have said is known all the same: the split of the pattern, and then each piece by itself. That is what is
done for such documents, with the `regex` package (which tiktoken itself brings) for the split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import regex
import tiktoken

from tokenmill.batches import Documents, Tokens
from tokenmill.tokenizers.disagreements import ODD_CODE_POINTS
from tokenmill.tokenizers.vocabularies import Vocabulary

# Well below the 999,999 at which tiktoken gives up.
LONG_WHITESPACE = 500_000
_WHITESPACE = re.compile(r"\s+")


class TiktokenEngine:
    name = "tiktoken"
    version = tiktoken.__version__

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pattern = vocabulary.pattern
        self._encoding = tiktoken.Encoding(
            vocabulary.file.removesuffix(".tiktoken"),
            pat_str=vocabulary.pattern,
            mergeable_ranks=vocabulary.ranks(),
            special_tokens=dict(vocabulary.special_tokens),
        )

    def encode(self, documents: Documents) -> Tokens:
        ids = [self.encode_one(text.as_py()) for text in documents.texts]
        lengths = np.array([len(one) for one in ids], dtype=np.int64)
        return Tokens(np.concatenate([np.empty(0, np.uint32), *ids]), lengths)

    def encode_one(self, text: str) -> npt.NDArray[np.uint32]:
        if len(text) >= LONG_WHITESPACE and any(
            match.end() - match.start() >= LONG_WHITESPACE for match in _WHITESPACE.finditer(text)
        ):
            return self.encode_by_pieces(text)
        return np.array(self._encoding.encode_ordinary(text), dtype=np.uint32)

    def encode_by_pieces(self, text: str) -> npt.NDArray[np.uint32]:
        """Split by the pattern and encode each piece: the same ids as `encode_ordinary`, which does this in one go."""
        ids = [i for piece in self.split(text) for i in self._encoding._encode_single_piece(piece)]
        return np.array(ids, dtype=np.uint32)

    def split(self, text: str) -> Iterator[str]:
        """Yield the pieces of the pattern, as tiktoken's engine understands it.

        `regex` knows more letters than tiktoken does: for the split they are replaced by a code point that is none.
        """
        # Rust's \s is the property White_Space, and its $ is the very end.
        pattern = (
            self._pattern.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"\P{White_Space}").replace("$", r"\Z")
        )
        for match in regex.finditer(pattern, text.translate(self._unassigned)):
            yield text[match.start() : match.end()]

    @cached_property
    def _unassigned(self) -> dict[int, int]:
        return {p: 0x10FFFE for first, last in ODD_CODE_POINTS["o200k"] for p in range(first, last + 1)}

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        return self._encoding.decode_bytes(ids)
