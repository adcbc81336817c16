"""Ids equal the reference's, and special tokens in the text stay text."""

import hashlib
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill import Tokenizer
from tokenmill.batches import Documents, Tokens
from tokenmill.errors import DamageError, DataError, RecipeError
from tokenmill.tokenizers import _engine
from tokenmill.tokenizers.delimiters import delimited
from tokenmill.tokenizers.disagreements import ODD_CODE_POINTS, OddCodePoints
from tokenmill.tokenizers.sampling import MIN_DOCUMENTS, SampleWriter
from tokenmill.tokenizers.special import SpelledWords
from tokenmill.tokenizers.vocabularies import VOCABULARIES

FAST = ["gpt2", "cl100k_base", "o200k_base"]
ALL = ["gpt2", "r50k_base", "p50k_base", "cl100k_base", "o200k_base"]
CONTEXTS = ["{}", "a{}a", "1{}1", " {}!", "{}'s", " {}'ll", "A{}a"]


def documents(texts) -> Documents:
    return Documents(pa.array(texts, pa.large_string()), np.arange(len(texts), dtype=np.uint32), len(texts))


def reference_ids(tokenizer: Tokenizer, texts) -> list[list[int]]:
    return [tokenizer.reference.encode_one(text).tolist() for text in texts]


NASTY = [
    "",
    "\0",
    "a\0b",
    " " * 10_000 + "x",
    "\n" * 5_000,
    "a" * 100_000,
    "<|endoftext|>",
    "before <|endoftext|> after <|fim_prefix|>",
    "\u00a0\u2003\u3000 \r\n\t",
    "I'll you'VE they'd 'S ſ's",
    "日本語のテキスト、中文文本，한국어 텍스트",
    "👩‍👩‍👧‍👦🏳️‍🌈 ﷽ \u202eabc",
    "123456789 १२३ ٤٥٦ ½ Ⅷ",
    "\ufffd\ufeff",
]


@pytest.mark.parametrize("name", ALL)
def test_nasty_documents_have_the_ids_of_the_reference(name):
    tokenizer = Tokenizer(name)
    right = reference_ids(tokenizer, NASTY)
    assert tokenizer.encode_batch(NASTY) == right
    assert [tokenizer.encode(text) for text in NASTY] == right


@pytest.mark.parametrize("name", FAST)
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=8))
def test_any_text_has_the_ids_of_the_reference(name, texts):
    tokenizer = Tokenizer(name)
    right = reference_ids(tokenizer, texts)
    assert tokenizer.encode_batch(texts) == right
    assert [tokenizer.encode(text) for text in texts] == right


@pytest.mark.parametrize("name", FAST)
def test_a_share_of_all_code_points_has_the_ids_of_the_reference(name):
    rng = np.random.default_rng(2357)
    points = [int(p) for p in rng.choice(0x110000, 6000, replace=False) if not 0xD800 <= p <= 0xDFFF]
    tokenizer = Tokenizer(name)
    odd = ODD_CODE_POINTS[VOCABULARIES[name].pretokenizer]
    points += [p for first, last in odd for p in {first - 1, first, (first + last) // 2, last, last + 1}]
    texts = [context.format(chr(p)) for p in points for context in CONTEXTS]
    right = reference_ids(tokenizer, texts)
    assert tokenizer.encode_batch(texts) == right
    assert [tokenizer.encode(text) for text in texts[::10]] == right[::10]


@pytest.mark.parametrize("name", FAST)
def test_the_table_of_odd_code_points_is_what_the_engines_differ_on(name):
    """Around the table and at its edges: in it the engines differ, beside it they agree."""
    tokenizer = Tokenizer(name)
    engine = tokenizer.engine
    odd = ODD_CODE_POINTS[VOCABULARIES[name].pretokenizer]
    inside = [p for first, last in odd for p in {first, (first + last) // 2, last}]
    beside = [p for first, last in odd for p in (first - 1, last + 1)]
    beside = [p for p in beside if not any(first <= p <= last for first, last in odd)]

    def bare(texts):
        return engine._tokenizer.encode_batch_list(texts, parallel=False)

    texts = [chr(p) + "'s" for p in inside]
    assert all(a != b for a, b in zip(bare(texts), reference_ids(tokenizer, texts), strict=True))
    texts = [chr(p) + "'s" for p in beside]
    assert bare(texts) == reference_ids(tokenizer, texts)


def test_documents_with_odd_code_points_are_found_in_any_slice():
    texts = ["plain", "x\U000323b0", "ࢎ", "", "\u088f", "é", "\U00010940end"]
    batch = documents(["skip \u088f", *texts])
    sliced = Documents(batch.texts.slice(1), batch.rows[1:], len(texts))
    assert OddCodePoints(ODD_CODE_POINTS["gpt2"]).documents(sliced).tolist() == [1, 4, 6]


def test_end_of_text_goes_first_last_or_nowhere():
    tokens = Tokens(np.array([1, 2, 3], np.uint32), np.array([2, 0, 1]))
    for eot, ids, lengths in [
        ("first", [9, 1, 2, 9, 9, 3], [3, 1, 2]),
        ("last", [1, 2, 9, 9, 3, 9], [3, 1, 2]),
        ("none", [1, 2, 3], [2, 0, 1]),
    ]:
        result = delimited(tokens, np.dtype("<u2"), eot, 9)
        assert result.ids.tolist() == ids
        assert result.ids.dtype == np.uint16
        assert result.doc_lengths.tolist() == lengths


def test_an_id_that_does_not_fit_is_an_error():
    with pytest.raises(DataError, match="id 70,000, which does not fit uint16"):
        delimited(Tokens(np.array([70_000], np.uint32), np.array([1])), np.dtype("<u2"), "last", 9)


def test_special_tokens_without_a_common_beginning_are_counted():
    counter = SpelledWords(["<s>", "[INST]", "</s>", "x"])
    assert len(counter.documents(documents(["a<s>", "[INST", "ST]", "[INST]</s>", "", "x"]))) == 3


def test_documents_that_spell_special_tokens_are_counted_once_each():
    counter = SpelledWords(["<|endoftext|>", "<|fim_prefix|>"])
    texts = ["<|endoftext|><|endoftext|>", "<|endoft", "ext|>", "a<|fim_prefix|>", "<|", ""]
    batch = documents(["<|endoftext|>", *texts])
    assert len(counter.documents(batch)) == 3
    assert len(counter.documents(Documents(batch.texts.slice(1), batch.rows[1:], len(texts)))) == 2
    assert len(counter.documents(documents([""]))) == 0
    assert SpelledWords([]).documents(batch) == set()


@pytest.mark.parametrize("name", ALL)
def test_decoding_gives_the_text_back(name):
    tokenizer = Tokenizer(name)
    text = "A rose is a rose, 玫瑰 🌹 <|endoftext|>"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([tokenizer.eot_token]) == "<|endoftext|>"


def test_tokenizer_is_a_small_value():
    tokenizer = Tokenizer("cl100k_base")
    data = pickle.dumps(tokenizer)
    assert len(data) < 200
    assert pickle.loads(data) == tokenizer  # noqa: S301 - our own bytes
    assert len({tokenizer, Tokenizer("cl100k_base"), Tokenizer("gpt2")}) == 2
    with pytest.raises(AttributeError):
        tokenizer.name = "gpt2"


def test_gpt2_and_r50k_base_are_one_tokenizer():
    assert Tokenizer("gpt2").identity == Tokenizer("r50k_base").identity
    assert Tokenizer("gpt2").identity != Tokenizer("p50k_base").identity


def test_unknown_tokenizer_is_refused_with_the_closest_name():
    with pytest.raises(RecipeError, match="unknown tokenizer `cl100k`") as error:
        Tokenizer("cl100k")
    assert error.value.hint == "did you mean `cl100k_base`?"


def test_shipped_vocabularies_are_openais_and_a_damaged_one_is_refused(tmp_path, monkeypatch):
    for vocabulary in VOCABULARIES.values():
        assert hashlib.sha256(vocabulary.path.read_bytes()).hexdigest() == vocabulary.sha256
    damaged = bytearray(VOCABULARIES["gpt2"].path.read_bytes())
    damaged[100] ^= 1
    monkeypatch.setattr("tokenmill.tokenizers.vocabularies.FOLDER", tmp_path)
    (tmp_path / "r50k_base.tiktoken").write_bytes(damaged)
    with pytest.raises(DamageError, match="is not what it was"):
        VOCABULARIES["gpt2"].ranks()
    _engine.cache_clear()
    with pytest.raises(DamageError, match="is not what it was"):
        Tokenizer("gpt2").encode("a")


def test_words_are_found_wherever_they_stand_in_a_long_text():
    from tokenmill.tokenizers.special import WINDOW_BYTES

    word = "<|endoftext|>"
    for place in (0, WINDOW_BYTES - len(word), WINDOW_BYTES - 1, WINDOW_BYTES, 2 * WINDOW_BYTES - 5):
        batch = documents(["<" * place, "x" * place + word, word[:-1], word[-1], "|" + word[1:], word + "y"])
        assert list(SpelledWords([word, "<|other|>"]).spelled(batch)) == [(1, word), (5, word)]


@pytest.mark.parametrize("share", [0, 1 / 2000, 0.3, 1])
def test_a_sample_is_never_below_its_minimum(share, tmp_path):
    texts = [f"text {i}" for i in range(33)]
    tokenizer = Tokenizer("gpt2")
    documents = Documents(pa.array(texts, pa.large_string()), np.arange(len(texts), dtype=np.uint32), len(texts))
    tokens = tokenizer.encode_to_tokens(texts)
    for seed in range(100):
        sample = SampleWriter(share, f"{seed:08x}", unit=0, n_units=1)
        sample.choose(documents, tokens)
        assert MIN_DOCUMENTS <= sample.n_equal(tokenizer, tmp_path) <= len(texts)
