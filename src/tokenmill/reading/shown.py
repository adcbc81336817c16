"""Tokens as somebody looks at them: the text of each, its id and its bytes, end-of-text and strangers told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np

from tokenmill.reading import AnyShards
from tokenmill.reading.files import Array
from tokenmill.reading.finding import pieces, token_bytes
from tokenmill.tokenizers import Tokenizer

# The tokens of one character are at most its four bytes; more that begin inside one are broken text.
MAX_BACK = 8


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A token, or the several that make one character together."""

    text: str
    ids: list[int]
    bytes: list[str] | None  # of each, in hexadecimal; None if the tokenizer's tokens are no bytes
    kind: Literal["text", "special", "unknown"]


def shown_pieces(tokenizer: Tokenizer | None, ids: Array, eot: int | None = None) -> Iterator[Piece]:
    """Yield the tokens in order; all of them unknown where the tokenizer is."""
    ids = np.asarray(ids)
    if tokenizer is None:
        yield from (
            Piece(f"<{token}>", [token], None, "special" if token == eot else "unknown") for token in ids.tolist()
        )
        return
    names = {token: name for name, token in tokenizer.special_tokens.items()}
    if eot is not None:
        names.setdefault(eot, "end-of-text")
    of_token = token_bytes(tokenizer)
    start = 0
    for cut in [*np.flatnonzero(np.isin(ids, list(names))).tolist(), len(ids)]:
        for text, n in pieces(tokenizer, ids[start:cut]):
            tokens = ids[start : start + n].tolist()
            start += n
            is_known = all(0 <= token < tokenizer.vocab_size for token in tokens)
            spelled = [of_token(token).hex(" ") for token in tokens] if of_token is not None and is_known else None
            yield Piece(text, tokens, spelled, "text" if is_known else "unknown")
        if cut < len(ids):
            token = int(ids[cut])
            yield Piece(names[token], [token], None, "special")
        start = cut + 1


def character_edge(shards: AnyShards, place: int, first: int) -> int:
    """The place, or one a little before it (not before `first`) where no character is cut in two."""
    of_token = None if shards.tokenizer is None else token_bytes(shards.tokenizer)
    if shards.tokenizer is None or of_token is None or place >= shards.n_tokens:
        return place
    ids = shards.tokens(max(first, place - MAX_BACK), place + 1).tolist()
    for back, token in enumerate(reversed(ids)):
        is_known = 0 <= token < shards.tokenizer.vocab_size
        data = of_token(token) if is_known else b""
        if not data or data[0] & 0xC0 != 0x80:
            return place - back
    return place
