"""The fast engine: gigatoken over the Arrow buffers of a whole batch, without a copy of the text.

The pretokenizer is named and special tokens are left out, always: gigatoken's own default for a rank file turns
`<|endoftext|>` inside a document into the special id. Documents with code points on which it is known to differ
from the reference are encoded by the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import awkward as ak
import gigatoken
import numpy as np

from tokenmill.batches import Documents, Tokens
from tokenmill.tokenizers.disagreements import ODD_CODE_POINTS, OddCodePoints
from tokenmill.tokenizers.tiktoken import TiktokenEngine
from tokenmill.tokenizers.vocabularies import Vocabulary


class GigatokenEngine:
    name = "gigatoken"
    version = version("gigatoken")

    def __init__(self, vocabulary: Vocabulary, reference: Callable[[], TiktokenEngine]) -> None:
        assert vocabulary.pretokenizer is not None
        vocabulary.checked_bytes()
        self._odd_code_points = OddCodePoints(ODD_CODE_POINTS[vocabulary.pretokenizer])
        self._reference = reference
        self._tokenizer = gigatoken.Tokenizer.from_tiktoken(
            vocabulary.path, pretokenizer=vocabulary.pretokenizer, special_tokens={}
        )

    def encode(self, documents: Documents) -> Tokens:
        characters = ak.contents.NumpyArray(documents.text_bytes, parameters={"__array__": "char"})
        strings = ak.contents.ListOffsetArray(
            ak.index.Index64(documents.text_offsets), characters, parameters={"__array__": "string"}
        )
        # On this thread alone: parallelism comes from workers, and gigatoken's thread pool does not survive a fork.
        encoded = self._tokenizer.encode_batch(ak.Array(strings), parallel=False).layout
        offsets = np.asarray(encoded.offsets)
        ids = np.asarray(encoded.content.data)[offsets[0] : offsets[-1]]
        tokens = Tokens(ids, np.diff(offsets))
        odd = self._odd_code_points.documents(documents)
        return self._with_reference_ids(tokens, documents, odd.tolist()) if len(odd) else tokens

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
