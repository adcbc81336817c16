"""The function for `datasets.map`: texts in, `ids` and `len` out, as nanoGPT's script returns them.

    ds.map(Tokenizer("gpt2").map_function(), batched=True, num_proc=8)

It is a small value: it pickles with the tokenizer's name, and its fingerprint is the same in every process, so that
a second `map` is served from the cache. Ids are uint16 or uint32, a quarter or half of int64 on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tokenmill.errors import DataError, RecipeError

if TYPE_CHECKING:
    from tokenmill.tokenizers import Tokenizer


@dataclass(frozen=True)
class MapFunction:
    """Called with a batch of rows, or with one row, by `datasets.map` in whichever process that runs."""

    tokenizer: Tokenizer
    column: str
    eot: Literal["first", "last", "none"]
    eot_token: int | None
    batched: bool

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        try:
            texts = rows[self.column]
        except KeyError:
            known = ", ".join(f"`{name}`" for name in rows)
            hint = f'pass `map_function(column="...")`; the columns are {known}'
            raise RecipeError(f"the dataset has no column `{self.column}`", hint=hint) from None
        is_batch = hasattr(texts, "__len__") and not isinstance(texts, str)
        if is_batch != self.batched and (is_batch or isinstance(texts, str)):
            wrong, right = ("one row", False) if self.batched else ("a batch of rows", True)
            raise RecipeError(
                f"`datasets.map` gave {wrong} to a function that was made with batched={self.batched}",
                hint=f"pass the same `batched={right}` to `map_function`, or `batched={self.batched}` to `map`",
            )
        texts = list(texts) if is_batch else [texts]
        if any(text is None for text in texts):
            hint = f'leave such rows out: `ds.filter(lambda row: row["{self.column}"] is not None)`'
            raise DataError(f"a row has no text: its `{self.column}` is None", hint=hint)
        ids = self._ids(texts)
        if not self.batched:
            return {"ids": ids[0], "len": _lengths(ids)[0]}
        return {"ids": ids, "len": _lengths(ids)}

    def _ids(self, texts: Sequence[str]) -> list[Any]:
        import numpy as np

        from tokenmill.tokenizers.delimiters import delimited

        dtype = np.dtype("<u2" if max(self.tokenizer.vocab_size - 1, self.eot_token or 0) < 2**16 else "<u4")
        tokens = delimited(self.tokenizer.encode_to_tokens(texts), dtype, self.eot, self.eot_token or 0)
        # A view for each document: datasets takes a list of arrays, about 1 microsecond each.
        return np.split(tokens.ids, np.cumsum(tokens.doc_lengths)[:-1]) if len(texts) else []


def _lengths(ids: list[Any]) -> Any:
    import numpy as np

    return np.array([len(one) for one in ids], dtype=np.uint32)
