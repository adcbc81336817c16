"""Find documents by their text, and show tokens as pieces of text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tokenmill.batches import arrow_array
from tokenmill.errors import OutputError
from tokenmill.reading import AnyShards
from tokenmill.reading.files import Array
from tokenmill.tokenizers import Tokenizer

FIND_BYTES = 4_000_000
EXCERPT_CHARS = 40


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that contains a text: its number through all splits, and the words around the first place."""

    number: int
    split: str
    n_tokens: int
    input: int
    row: int
    excerpt: str


def needed_tokenizer(shards: AnyShards) -> Tokenizer:
    """The tokenizer of shards, or a refusal where none is known."""
    if shards.tokenizer is None:
        name = f" (`{shards.told.name}`)" if shards.told.name else ""
        raise OutputError(
            f"the tokenizer of `{shards.path}`{name} is not known: {shards.told.how}",
            hint="pass `--tokenizer` with a name, a tokenizer.json or its folder",
        )
    return shards.tokenizer


def decoded(tokenizer: Tokenizer, ids: Array) -> str:
    """The text of ids; those that the tokenizer does not have are shown by number."""
    ids = np.asarray(ids)
    known = (ids >= 0) & (ids < tokenizer.vocab_size)
    try:
        if known.all():
            return tokenizer.decode(ids.tolist())
    except KeyError:  # a hole in the vocabulary
        pass
    return "".join(text for text, _ in pieces(tokenizer, ids))


def find(shards: AnyShards, text: str) -> Iterator[Hit]:
    """Yield the documents that contain a text, in order."""
    tokenizer = needed_tokenizer(shards)
    text_bytes = bytes_decoder(tokenizer)
    for number, split, run in shards.numbered_runs(FIND_BYTES):
        # Most runs do not contain it, and a look at all of their bytes is cheap.
        if text_bytes is not None and text.encode() not in text_bytes(run.ids):
            continue
        for i in range(len(run)):
            document = run.documents(i, i + 1)
            found = decoded(tokenizer, shards.text_ids(document.ids))
            if (place := found.find(text)) >= 0:
                source = int(run.doc_inputs[i]), int(run.doc_rows[i])
                yield Hit(number + i, split, len(document.ids), *source, excerpt_of(found, place, len(text)))


def token_bytes(tokenizer: Tokenizer) -> Callable[[int], bytes] | None:
    """A function from a token to its bytes, none for a hole in the vocabulary; None if its tokens are no bytes."""
    reference = tokenizer.reference
    of_token = getattr(reference, "token_bytes", None)
    if of_token is not None:
        return of_token if reference.is_byte_level else None  # type: ignore[attr-defined]
    decode_bytes = getattr(reference, "decode_bytes", None)
    if decode_bytes is None:
        return None

    def found(token: int) -> bytes:
        try:
            return bytes(decode_bytes([token]))
        except KeyError:
            return b""

    return found


def bytes_decoder(tokenizer: Tokenizer) -> Callable[[Array], bytes] | None:
    """A function from ids to bytes by a table of all tokens; None for tokenizers whose tokens are no bytes."""
    import pyarrow as pa

    of_token = token_bytes(tokenizer)
    if of_token is None:
        return None
    table = pa.array([*map(of_token, range(tokenizer.vocab_size)), b""], pa.large_binary())

    def text_bytes(ids: Array) -> bytes:
        places = np.minimum(ids, tokenizer.vocab_size)  # beyond the vocabulary there is nothing
        return bytes(table.take(arrow_array(places)).buffers()[2] or b"")

    return text_bytes


def excerpt_of(text: str, place: int, length: int) -> str:
    """Some words around a place, on one line."""
    start, stop = max(0, place - EXCERPT_CHARS), min(len(text), place + length + EXCERPT_CHARS)
    words = " ".join(text[start:stop].split())
    return ("..." if start else "") + words + ("..." if stop < len(text) else "")


def pieces(tokenizer: Tokenizer, ids: Array) -> Iterator[tuple[str, int]]:
    """Yield the text of each token, and of how many tokens it is: characters that several make stay together."""
    of_token = token_bytes(tokenizer)
    decoder, n_waiting = codecs.getincrementaldecoder("utf-8")("replace"), 0
    held = ""  # what a token has before the character that it begins
    for token in np.asarray(ids).tolist():
        n_waiting += 1
        if not 0 <= token < tokenizer.vocab_size:
            yield held + decoder.decode(b"", final=True) + f"<{token}>", n_waiting
            decoder.reset()
            held, n_waiting = "", 0
            continue
        if of_token is None:
            yield tokenizer.decode([token]), 1
            n_waiting = 0
            continue
        data = of_token(token)
        held += decoder.decode(data) if data else f"<{token}>"
        if not decoder.getstate()[0]:
            yield held, n_waiting
            held, n_waiting = "", 0
        elif held and n_waiting > 1:
            yield held, n_waiting - 1
            held, n_waiting = "", 1
    if n_waiting:
        yield held + decoder.decode(b"", final=True), n_waiting
