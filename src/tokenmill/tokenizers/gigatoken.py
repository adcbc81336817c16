"""The fast engine: gigatoken over the Arrow buffers of a whole batch, without a copy of the text.

Special tokens are left out, always: gigatoken's own default for a rank file turns `<|endoftext|>` inside a document
into the special id. Documents on which it is known to differ from the reference are encoded by the reference: those
with certain code points, and those that spell an added token which the reference takes for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING

import awkward as ak
import numpy as np

from tokenmill.batches import Documents, Tokens
from tokenmill.tokenizers.disagreements import OddCodePoints
from tokenmill.tokenizers.special import SpelledWords

if TYPE_CHECKING:
    import gigatoken

    from tokenmill.tokenizers.definitions import Reference


class GigatokenEngine:
    name = "gigatoken"
    version = version("gigatoken")

    def __init__(
        self,
        tokenizer: gigatoken.Tokenizer,
        odd_code_points: list[tuple[int, int]],
        matched_words: Iterable[str],
        reference: Callable[[], Reference],
    ) -> None:
        self._tokenizer = tokenizer
        self._odd_code_points = OddCodePoints(odd_code_points)
        self._matched_words = SpelledWords(matched_words)
        self._reference = reference

    def encode(self, documents: Documents) -> Tokens:
        tokens = self._one(documents) if len(documents) == 1 else self._batch(documents)
        odd = {*self._odd_code_points.documents(documents).tolist(), *self._matched_words.documents(documents)}
        return self._with_reference_ids(tokens, documents, sorted(odd)) if odd else tokens

    def _one(self, documents: Documents) -> Tokens:
        """Encode one document: 50 us instead of the 850 that arrays of strings cost, however short it is."""
        start, stop = documents.text_offsets.tolist()
        ids = self._tokenizer.encode(documents.text_bytes[start:stop].tobytes())
        return Tokens(ids, np.array([len(ids)], dtype=np.int64))

    def _batch(self, documents: Documents) -> Tokens:
        characters = ak.contents.NumpyArray(documents.text_bytes, parameters={"__array__": "char"})
        strings = ak.contents.ListOffsetArray(
            ak.index.Index64(documents.text_offsets), characters, parameters={"__array__": "string"}
        )
        # On this thread alone: parallelism comes from workers, and gigatoken's thread pool does not survive a fork.
        encoded = self._tokenizer.encode_batch(ak.Array(strings), parallel=False).layout
        offsets = np.asarray(encoded.offsets)
        ids = np.asarray(encoded.content.data)[offsets[0] : offsets[-1]]
        return Tokens(ids, np.diff(offsets))

    def _with_reference_ids(self, tokens: Tokens, documents: Documents, odd: list[int]) -> Tokens:
        """Put the reference's ids in the place of ours for the documents `odd`."""
        ends = np.cumsum(tokens.doc_lengths)
        lengths = tokens.doc_lengths.copy()
        spliced, done = [], 0
        for i in odd:
            ids = self._reference().encode_one(documents.texts[i].as_py())
            spliced += [tokens.ids[done : ends[i] - lengths[i]], ids]
            done = ends[i]
            lengths[i] = len(ids)
        return Tokens(np.concatenate([*spliced, tokens.ids[done:]]), lengths)
