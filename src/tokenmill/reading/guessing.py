"""The tokenizer that made some ids: the one that, given the text they stand for, makes the same ids again.

Ids decoded by a tokenizer that did not make them are scraps of words, and encoding those again gives other ids: of
tokens that come back as they were there are more than 95 in 100 for the right one, and a third for a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tokenmill.reading.files import Array, ShardFile
from tokenmill.tokenizers import Tokenizer

# p50k_base behind gpt2: it differs by runs of spaces alone.
KNOWN = ("gpt2", "p50k_base", "cl100k_base", "o200k_base")
ALIASES = {
    "openai-community/gpt2": "gpt2",
    "gpt2-medium": "gpt2",
    "gpt2-large": "gpt2",
    "gpt2-xl": "gpt2",
    "r50k_base": "r50k_base",
}
WINDOWS, WINDOW_TOKENS = 12, 512
# Below so many tokens, text proves nothing.
MIN_TOKENS = 24
MIN_DIFFERENT = 8
SURE, POSSIBLE = 0.95, 0.85


class Told(NamedTuple):
    """A tokenizer, and who says so. Without one, `name` may still be what a file says of it."""

    tokenizer: Tokenizer | None
    name: str | None
    how: str


def windows(files: Iterable[ShardFile], n_windows: int = WINDOWS, n_tokens: int = WINDOW_TOKENS) -> list[Array]:
    """Short stretches of ids from all over some files."""
    files = [file for file in files if file.n_tokens]
    if not files:
        return []
    chosen = [files[i] for i in sorted(set(np.linspace(0, len(files) - 1, min(len(files), n_windows)).astype(int)))]
    n_each = -(-n_windows // len(chosen))
    found = []
    for file in chosen:
        last = max(0, file.n_tokens - n_tokens)
        places = sorted({int(place) for place in np.linspace(0, last, n_each)})
        found += [np.asarray(file.ids[place : place + n_tokens]) for place in places]
    return found


def told_tokenizer(files: list[ShardFile], wanted: str | None, pattern: str | None = None) -> Told:
    """The tokenizer that the user names, that the files name, or that fits."""
    if wanted is not None:
        return Told(Tokenizer(wanted, pattern), wanted, "you")
    sample = windows(files)
    largest = max((int(ids.max()) for ids in sample if len(ids)), default=-1)
    named = next((file.tokenizer for file in files if file.tokenizer), None)
    name = ALIASES.get(named or "", named)
    if name in KNOWN or name == "r50k_base":
        tokenizer = Tokenizer(name)
        if largest < tokenizer.vocab_size:
            return Told(tokenizer, name, f"{files[0].dtype_told_by} (`{named}`)" if name != named else told_by(files))
    name, how = guessed(sample, largest)
    if name is not None:
        return Told(Tokenizer(name), name, how)
    return Told(None, named, how if named is None else f"named by {told_by(files)}, and not known here")


def told_by(files: list[ShardFile]) -> str:
    return "its .metadata" if files[0].path.suffix == ".ds" else "the header"


def guessed(sample: list[Array], largest: int) -> tuple[str | None, str]:
    """The known tokenizer that made these ids, and how that is seen."""
    smallest = min((int(ids.min()) for ids in sample if len(ids)), default=0)
    if largest < 0 or smallest < 0:
        return None, "there are no ids" if largest < 0 else "there are ids below 0"
    # Who writes 16-bit ids has a vocabulary that fits them.
    limit = 2**16 if sample[0].dtype.itemsize == 2 else 2**32
    fitting = [name for name in KNOWN if largest < Tokenizer(name).vocab_size <= limit]
    # Whose end-of-text is the largest id is tried first, and believed if it fits.
    fitting.sort(key=lambda name: Tokenizer(name).eot_token != largest)
    scores: dict[str, float] = {}
    if sum(map(len, sample)) >= MIN_TOKENS:
        for name in fitting:
            scores[name] = score(Tokenizer(name), sample)
            if scores[name] >= SURE and Tokenizer(name).eot_token == largest and name != "gpt2":
                break
    best = best_of(scores, largest, sample)
    if len(best) == 1:
        return best[0], f"its text encodes to the same ids again, {scores[best[0]]:.1%} of a sample"
    if best:
        return None, f"the text of {' and of '.join(best)} encodes to the same ids again: there is too little of it"
    by_eot = [name for name in fitting if Tokenizer(name).eot_token == largest]
    if by_eot and sum(map(len, sample)) < 10 * MIN_TOKENS:
        return by_eot[0], f"its end-of-text is the largest id, {largest}; there are few tokens"
    tried = ", ".join(f"{name} {value:.0%}" for name, value in scores.items())
    return None, f"none that ships fits the ids, up to {largest:,}" + (f" (of a sample, {tried})" if tried else "")


def best_of(scores: dict[str, float], largest: int, sample: list[Array]) -> list[str]:
    """The tokenizers that fit, and fit as well as any: more than one where there is little text and much repetition."""
    good = [name for name, value in scores.items() if value >= POSSIBLE]
    n_different = len(np.unique(np.concatenate(sample)))
    if ending := [name for name in good if Tokenizer(name).eot_token == largest]:
        good = ending
    elif n_different < MIN_DIFFERENT and len(scores) > 2:  # so few fit together in any vocabulary
        return good if len(good) > 1 else []
    elif sample[0].dtype.str == "<u4":  # nobody writes 16-bit ids so, where a larger vocabulary fits
        good = [name for name in good if Tokenizer(name).vocab_size > 2**16] or good
    most = max((scores[name] for name in good), default=0.0)
    best = [name for name in good if scores[name] >= most - (0.02 if name not in ("gpt2", "p50k_base") else 0)]
    return ["gpt2"] if best == ["gpt2", "p50k_base"] else best


def score(tokenizer: Tokenizer, sample: list[Array]) -> float:
    """The share of tokens that come back when the text of ids is encoded again."""
    n_same = n_tokens = 0
    for ids in sample:
        for text_ids in between_special(tokenizer, ids):
            same, tokens = round_trip(tokenizer, text_ids)
            n_same, n_tokens = n_same + same, n_tokens + tokens
    return n_same / n_tokens if n_tokens >= MIN_TOKENS // 2 else 0.0


def between_special(tokenizer: Tokenizer, ids: Array) -> list[list[int]]:
    """Stretches of ids without special tokens."""
    cuts = np.flatnonzero(np.isin(ids, list(tokenizer.special_tokens.values())))
    parts = np.split(ids, cuts)
    return [part.tolist() for part in [parts[0], *(part[1:] for part in parts[1:])] if len(part)]


def round_trip(tokenizer: Tokenizer, ids: list[int]) -> tuple[int, int]:
    """How many tokens of ids are among those of their text, by the bytes they stand for; and how many there are."""
    decode_bytes = tokenizer.reference.decode_bytes  # type: ignore[attr-defined]
    try:
        pieces = [decode_bytes([i]) for i in ids]
    except KeyError:  # a hole in the vocabulary
        return 0, len(ids)
    data = b"".join(pieces)
    n_before = next((i for i in range(min(4, len(data))) if data[i] & 0xC0 != 0x80), 0)  # rest of a cut character
    text = data[n_before:].decode(errors="replace")
    if text.count("\ufffd") > 1 + data.count("\ufffd".encode()):
        return 0, len(ids)
    again = [len(decode_bytes([i])) for i in tokenizer.encode_ordinary(text)]
    return len(spans(map(len, pieces), 0) & spans(again, n_before)), len(ids)


def spans(lengths: Iterable[int], start: int) -> set[tuple[int, int]]:
    found = set()
    for length in lengths:
        found.add((start, start + length))
        start += length
    return found
