"""The reference engine: tiktoken's own `encode_ordinary`, one document at a time."""

from __future__ import annotations

import numpy as np
import tiktoken

from tokenmill.batches import Documents, Tokens
from tokenmill.tokenizers.vocabularies import Vocabulary


class TiktokenEngine:
    name = "tiktoken"
    version = tiktoken.__version__

    def __init__(self, vocabulary: Vocabulary) -> None:
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

    def encode_one(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        return np.array(self._encoding.encode_ordinary(text), dtype=np.uint32)

    def decode_bytes(self, ids: list[int]) -> bytes:
        return self._encoding.decode_bytes(ids)
