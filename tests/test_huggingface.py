"""A tokenizer.json, a rank file, somebody's own tokenizer: the ids of the reference, or the reference itself."""

import base64
import json
import pickle
import sys

import numpy as np
import pytest
import tokenizers
from conftest import prepare_inline, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

import tokenmill
from tokenmill import Tokenizer
from tokenmill.errors import DamageError, DataError, ExactnessError, RecipeError
from tokenmill.tokenizers.disagreements import ODD_UNDER_NFC
from tokenmill.tokenizers.huggingface import SPLIT_PATTERNS
from tokenmill.tokenizers.vocabularies import VOCABULARIES


def split_by(pattern):
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


LLAMA3, QWEN2 = SPLIT_PATTERNS
PRE_TOKENIZERS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": split_by(LLAMA3),
    "qwen2": split_by(QWEN2),
}


def train(path, texts, kind="gpt2", normalizer=None, added=("<think>",), special=("<|endoftext|>",)):
    """Train a small byte-level BPE as the well-known ones are made, and save its tokenizer.json."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[kind]
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([tokenizers.AddedToken(word, normalized=False) for word in added])
    tokenizer.enable_truncation(4)  # must not matter
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory, sample_texts):
    folder = tmp_path_factory.mktemp("tokenizers")
    for kind in PRE_TOKENIZERS:
        (folder / kind).mkdir()
        normalizer = normalizers.NFC() if kind == "qwen2" else None
        train(folder / kind / "tokenizer.json", sample_texts[:40], kind, normalizer)
    return folder


def reference_ids(tokenizer, texts):
    return [tokenizer.reference.encode_one(text).tolist() for text in texts]


WORDS = [
    "<think>",
    "<|endoftext|>",
    "e\u0301",
    "\u212b",
    "\u0345\u0897",
    "\u0338\U00010d6c",
    "'s",
    "\U000323b0's",
    " a",
    "\n",
]


@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)).map("".join),
        max_size=6,
    )
)
def test_any_text_has_the_ids_of_the_tokenizers_library(kind, trained, texts):
    tokenizer = Tokenizer(str(trained / kind))
    assert tokenizer.engine.name == "gigatoken"
    assert tokenizer.encode_batch(texts) == reference_ids(tokenizer, texts)


@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
def test_odd_code_points_have_the_ids_of_the_tokenizers_library(kind, trained):
    tokenizer = Tokenizer(str(trained / kind / "tokenizer.json"))
    rng = np.random.default_rng(7)
    points = [p for first, last in ODD_UNDER_NFC for p in {first - 1, first, last, last + 1}]
    points += [int(p) for p in rng.choice(0x110000, 3000, replace=False)]
    contexts = ["{}", "a{}a", "1{}1", " {}!", "{}'s", " {}'ll", "\u0345{}", "{}\u0338", "a{}\u0301"]
    texts = [context.format(chr(p)) for p in points if not 0xD800 <= p <= 0xDFFF for context in contexts]
    assert tokenizer.encode_batch(texts) == reference_ids(tokenizer, texts)


def test_special_tokens_stay_text_and_added_ones_are_what_the_library_makes_of_them(trained):
    tokenizer = Tokenizer(str(trained / "gpt2"))
    assert tokenizer.special_tokens == {"<|endoftext|>": 0}
    assert 0 not in tokenizer.encode("a<|endoftext|>b")
    assert tokenizer.vocab_size - 1 in tokenizer.encode("a<think>b")
    assert tokenizer.decode(tokenizer.encode("a <think>é<|endoftext|>")) == "a <think>é<|endoftext|>"


def changed(path, target, **changes):
    """Copy a tokenizer.json with some keys changed; `model.x` reaches into the model."""
    config = json.loads(path.read_text())
    for key, value in changes.items():
        if key.startswith("model_"):
            config["model"][key.removeprefix("model_")] = value
        else:
            config[key] = value
    target.write_text(json.dumps(config))
    return target


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"normalizer": {"type": "NFKC"}}, "its normalizer is NFKC"),
        (
            {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
            "none",
        ),
        ({"model_unk_token": "a"}, "its model has `unk_token`"),
        ({"model_byte_fallback": True}, "its model has `byte_fallback`"),
    ],
)
def test_what_was_never_compared_goes_to_the_reference_and_says_why(changes, reason, trained, tmp_path):
    path = changed(trained / "gpt2" / "tokenizer.json", tmp_path / "tokenizer.json", **changes)
    tokenizer = Tokenizer(str(path))
    assert tokenizer.engine.name == "tokenizers"
    assert reason in tokenizer.engine_reason
    manifest = prepare_inline(write_parquet(tmp_path / "a.parquet", ["ﬁne"] * 5), tmp_path / "out", tokenizer=str(path))
    assert (manifest.tokenizer.engine, manifest.tokenizer.n_checked_documents) == ("tokenizers", 0)


def test_added_tokens_matched_in_normalized_text_go_to_the_reference(tmp_path, sample_texts):
    path = train(tmp_path / "tokenizer.json", sample_texts[:5], "qwen2", normalizers.NFC(), added=())
    config = json.loads(path.read_text())
    token = {"id": 5000, "content": "K", "single_word": False, "lstrip": False, "rstrip": False, "special": False}
    config["added_tokens"].append({**token, "normalized": True})
    path.write_text(json.dumps(config))
    assert "normalized text" in Tokenizer(str(path)).engine_reason


@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
def test_a_run_with_a_tokenizer_json_holds_the_ids_of_the_library(kind, trained, tmp_path, sample_texts):
    texts = [*sample_texts[:30], "a <think> b", "", "e\u0301\u0897"]
    source = write_parquet(tmp_path / "a.parquet", texts)
    manifest = prepare_inline(source, tmp_path / "out", tokenizer=str(trained / kind), shuffle="none", val="none")
    assert manifest.tokenizer.n_checked_documents >= 20
    shards = tokenmill.open_shards(tmp_path / "out")
    reference = Tokenizer(str(trained / kind)).reference
    for document, text in zip(shards, texts, strict=True):
        assert document.tokens[:-1].tolist() == reference.encode_one(text).tolist()
        assert document.tokens[-1] == 0


def test_where_the_engines_differ_on_the_corpus_the_reference_is_used(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.tokenizers.special.SpelledWords.documents", lambda self, documents: set())
    texts = ["spelled <think> here"] * 10
    path = changed(trained / "gpt2" / "tokenizer.json", tmp_path / "tokenizer.json", version="1.0")
    manifest = prepare_inline(write_parquet(tmp_path / "a.parquet", texts), tmp_path / "out", tokenizer=str(path))
    assert manifest.tokenizer.engine == "tokenizers"
    assert "differ on the first documents of this corpus" in manifest.tokenizer.reason


def test_a_difference_during_the_run_stops_it_with_the_document_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tokenmill.tokenizers.disagreements.OddCodePoints.documents", lambda self, documents: np.empty(0, np.int64)
    )
    texts = ["fine"] * 5 + ["\U000323b0's"]
    with pytest.raises(ExactnessError, match="give different ids") as error:
        prepare_inline(write_parquet(tmp_path / "a.parquet", texts), tmp_path / "out")
    assert (tmp_path / "out" / "mismatch.txt").read_bytes().decode() == "\U000323b0's"
    assert f"tokenmill tokenizers --tokenizer gpt2 --compare {tmp_path}/out/mismatch.txt" in error.value.hint
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_end_of_text_is_obvious_named_or_asked_for(tmp_path, trained, sample_texts):
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    path = str(train(tmp_path / "tokenizer.json", sample_texts[:5], special=special))
    with pytest.raises(RecipeError, match=r"could be `<\|end_of_text\|>` \(1\), `<\|begin_of_text\|>` \(0\)") as error:
        tokenmill.Recipe(sources=("sample",), tokenizer=path).resolve()
    assert "--eot-token" in error.value.hint
    for eot_token, expected in [("<|begin_of_text|>", 0), ("1", 1), (1, 1)]:
        assert (
            tokenmill.Recipe(sources=("sample",), tokenizer=path, eot_token=eot_token).resolve().eot_token == expected
        )
    assert tokenmill.Recipe(sources=("sample",), tokenizer=path, eot="none").resolve().eot_token is None
    with pytest.raises(RecipeError, match=r"has no special token `<\|end\|>`"):
        tokenmill.Recipe(sources=("sample",), tokenizer=path, eot_token="<|end|>").resolve()
    with pytest.raises(RecipeError, match="is no id of"):
        tokenmill.Recipe(sources=("sample",), tokenizer=path, eot_token=99999).resolve()


def test_rank_file_with_a_named_pattern_gives_the_ids_of_the_shipped_one(tmp_path, sample_texts):
    path = tmp_path / "mine.tiktoken"
    path.write_bytes(VOCABULARIES["cl100k_base"].path.read_bytes())
    tokenizer = Tokenizer(str(path), pattern="cl100k_base")
    assert tokenizer.encode(sample_texts[0]) == Tokenizer("cl100k_base").encode(sample_texts[0])
    with pytest.raises(RecipeError, match="not the pattern that splits text"):
        Tokenizer(str(path))
    with pytest.raises(RecipeError, match="unknown pattern `cl100k`"):
        Tokenizer(str(path), pattern="cl100k")
    with pytest.raises(RecipeError, match="a pattern belongs to"):
        Tokenizer("gpt2", pattern="cl100k_base")
    source = write_parquet(tmp_path / "a.parquet", ["a", "b"])
    fields = {"tokenizer": str(path), "pattern": "cl100k_base", "val": 1, "shuffle": "none"}
    with pytest.raises(RecipeError, match="no token that is obviously end-of-text"):
        prepare_inline(source, tmp_path / "out", **fields)
    prepare_inline(source, tmp_path / "out", eot_token=100257, **fields)
    assert np.fromfile(tmp_path / "out" / "train.bin", np.uint32).tolist() == [65, 100257]


def test_rank_file_that_is_none_is_refused(tmp_path):
    path = tmp_path / "bad.tiktoken"
    for data, message in [
        (b"no ranks here\n", "is no rank file"),
        (base64.b64encode(b"a") + b" 0\n", "no rank for the byte 0"),
    ]:
        path.write_bytes(data)
        with pytest.raises((RecipeError, DamageError), match=message):
            Tokenizer(str(path), pattern="gpt2")


def test_tokenizer_that_is_none_is_refused(tmp_path):
    for data in ("{}", "nonsense", '{"model": 3}'):
        (tmp_path / "tokenizer.json").write_text(data)
        with pytest.raises(RecipeError, match=r"is no tokenizer\.json"):
            Tokenizer(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(RecipeError, match="no such tokenizer"):
        Tokenizer(str(tmp_path))


def test_file_tokenizer_pickles_as_path_and_digest(trained, tmp_path):
    path = changed(trained / "gpt2" / "tokenizer.json", tmp_path / "tokenizer.json", version="1.0")
    data = pickle.dumps(Tokenizer(str(path)))
    assert len(data) < 400
    assert pickle.loads(data).encode("a") == Tokenizer(str(path)).encode("a")  # noqa: S301 - our own bytes
    path.write_text(path.read_text() + " ")
    with pytest.raises(DamageError, match="its file changed"):
        pickle.loads(data)  # noqa: S301


CUSTOM = """
class Letters:
    name = "letters"
    identity = "letters 1"
    vocab_size = 300
    special_tokens = {"<end>": 299}

    def encode_batch(self, texts):
        return [list(text.encode()) for text in texts]

    def decode(self, ids):
        return bytes(i for i in ids if i < 256).decode()
"""


def test_tokenizer_of_ones_own_works_in_workers_by_its_import_path(tmp_path, monkeypatch):
    (tmp_path / "letters_tokenizer.py").write_text(CUSTOM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    source = write_parquet(tmp_path / "a.parquet", ["ab", "c"])
    fields = {"tokenizer": "letters_tokenizer:Letters", "eot_token": "<end>", "shuffle": "none", "val": 1}
    manifest = tokenmill.prepare(source, tmp_path / "out", workers=1, **fields)
    assert manifest.tokenizer.engine == "letters"
    shards = tokenmill.open_shards(tmp_path / "out")
    assert [d.tokens.tolist() for d in shards] == [[97, 98, 299], [99, 299]]
    with pytest.raises(RecipeError, match="cannot import the tokenizer"):
        Tokenizer("letters_tokenizer:Nothing")
    with pytest.raises(RecipeError, match="is no tokenizer: it has no `name`"):
        Tokenizer("collections:OrderedDict")


@pytest.mark.parametrize("name", ["gpt2", "p50k_base", "cl100k_base", "o200k_base"])
def test_long_runs_of_whitespace_have_the_ids_of_the_patterns_split(name, tmp_path):
    """tiktoken panics from 999,999 on; below that the two ways must agree."""
    tokenizer = Tokenizer(name)
    reference = tokenizer.reference
    texts = [
        "a" + " " * 150_000 + "x",
        "!\r\n" + "\n \t" * 50_000 + " 's",
        "\n" * 150_000,
        "\U000323b0's" + " " * 150_000,
    ]
    for text in texts:
        right = reference._encoding.encode_ordinary(text)
        assert reference.encode_by_pieces(text).tolist() == right
        assert tokenizer.encode(text) == right
    for text in ["a" + " " * 1_100_000 + "x", "\n" * 1_000_000, "\U000323b0's" + "\t" * 1_000_000 + "b"]:
        assert tokenizer.encode(text) == reference.encode_by_pieces(text).tolist()
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_added_token_that_begins_another_is_found_at_the_end_of_a_document(tmp_path, sample_texts):
    path = str(train(tmp_path / "tokenizer.json", sample_texts[:5], added=("<a>b", "<a>")))
    tokenizer = Tokenizer(path)
    texts = ["zz<a>", "b x", "q<a>b", "<a>"]
    assert tokenizer.engine.name == "gigatoken"
    assert tokenizer.encode_batch(texts) == reference_ids(tokenizer, texts)


def test_a_tokenizer_file_that_changed_is_another_tokenizer(tmp_path, sample_texts):
    path = train(tmp_path / "tokenizer.json", sample_texts[:5])
    source = write_parquet(tmp_path / "a.parquet", sample_texts[:20])
    first = prepare_inline(source, tmp_path / "1", tokenizer=str(path))
    train(path, sample_texts[100:140])
    second = prepare_inline(source, tmp_path / "2", tokenizer=str(path))
    assert first.tokenizer.identity != second.tokenizer.identity
    assert first.fingerprint != second.fingerprint
    right = tokenizers.Tokenizer.from_file(str(path))
    right.no_truncation()
    shards = tokenmill.open_shards(tmp_path / "2")
    assert shards[0].tokens[:-1].tolist() == right.encode(shards.text(shards[0]), add_special_tokens=False).ids


def test_dropout_is_refused(trained, tmp_path):
    path = changed(trained / "gpt2" / "tokenizer.json", tmp_path / "tokenizer.json", model_dropout=0.3)
    with pytest.raises(RecipeError, match="its ids are random"):
        Tokenizer(str(path))


def test_what_gigatoken_refuses_goes_to_the_reference(tmp_path, sample_texts):
    """A byte-level BPE trained without all 256 bytes, and ranks that are no merges of two others."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS["gpt2"]
    tokenizer.train_from_iterator(sample_texts[:3], trainers.BpeTrainer(vocab_size=300, show_progress=False))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = Tokenizer(str(tmp_path / "tokenizer.json"))
    assert found.engine.name == "tokenizers"
    assert "gigatoken refuses it" in found.engine_reason
    ranks = [bytes([i]) for i in range(256)] + [b"abcd"]
    lines = [base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(ranks)]
    (tmp_path / "odd.tiktoken").write_bytes(b"".join(lines))
    found = Tokenizer(str(tmp_path / "odd.tiktoken"), "gpt2")
    assert found.engine.name == "tiktoken"
    assert found.encode("abcd e") == found.reference.encode_one("abcd e").tolist()


def test_relative_rank_file_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.tiktoken").write_bytes(VOCABULARIES["gpt2"].path.read_bytes())
    assert Tokenizer("mine.tiktoken", "gpt2").encode("hello") == [31373]
    with pytest.raises(RecipeError, match="no such rank file"):
        Tokenizer("none.tiktoken", "gpt2")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("[[1.7]]", "must return lists of ids"),
        ("[['5']]", "must return lists of ids"),
        ("[[-1]]", "gave ids from -1"),
        ("[[300]]", "gave ids from 300"),
        ("[]", "returned 0 lists for 1 texts"),
        ("1 / 0", "fails on every document: ZeroDivisionError"),
        ("None", "fails on every document: TypeError"),
    ],
)
def test_a_custom_tokenizer_that_misbehaves_is_told_so(result, message, tmp_path, monkeypatch):
    name = f"misbehaving_{abs(hash(result))}"
    body = CUSTOM.replace("[list(text.encode()) for text in texts]", result)
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(DataError, match=message):
        prepare_inline(
            write_parquet(tmp_path / "a.parquet", ["a"]),
            tmp_path / "out",
            tokenizer=f"{name}:Letters",
            eot_token="<end>",
        )


def test_end_of_text_that_is_no_id_is_refused():
    for eot_token in (-1, 2**32):
        with pytest.raises(RecipeError, match="is no id"):
            tokenmill.Recipe(sources=("sample",), eot_token=eot_token).resolve()


def test_many_runs_of_whitespace_take_linear_time():
    text = (" " * 100_000 + "a") * 6
    tokenizer = Tokenizer("gpt2")
    assert tokenizer.reference.encode_one(text).tolist() == tokenizer.encode(text)


def test_a_mistake_seen_while_comparing_engines_leaves_the_folder_free(trained, tmp_path):
    import pyarrow as pa

    source = write_parquet(tmp_path / "a.parquet", [b"\xff", b"a", b"b"], kind=pa.binary())
    fields = {"tokenizer": str(trained / "gpt2"), "val": 1}
    with pytest.raises(DataError, match="invalid UTF-8"):
        prepare_inline(source, tmp_path / "out", **fields)
    assert prepare_inline(source, tmp_path / "out", on_bad_document="skip", **fields).totals.n_documents == 2


def test_tokenizer_object_works_in_this_process(tmp_path):
    namespace = {}
    exec(CUSTOM, namespace)  # noqa: S102 - our own text
    source = write_parquet(tmp_path / "a.parquet", ["ab", "c"])
    tokenmill.prepare(
        source, tmp_path / "out", tokenizer=namespace["Letters"](), eot_token="<end>", val=1, shuffle="none"
    )
    assert [d.tokens.tolist() for d in tokenmill.open_shards(tmp_path / "out")] == [[97, 98, 299], [99, 299]]
    with pytest.raises(RecipeError, match="is no tokenizer: it has no `name`"):
        tokenmill.prepare(source, tmp_path / "out2", tokenizer=object())


def test_tokenizer_is_found_by_entry_point_in_workers_too(tmp_path, monkeypatch):
    (tmp_path / "letters_by_name.py").write_text(CUSTOM)
    info = tmp_path / "letters_by_name-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: letters_by_name\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tokenmill.tokenizers]\nletters = letters_by_name:Letters\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    source = write_parquet(tmp_path / "a.parquet", ["ab", "c"])
    fields = {"tokenizer": "letters", "eot_token": "<end>", "val": 1, "shuffle": "none"}
    manifest = tokenmill.prepare(source, tmp_path / "out", workers=1, **fields)
    assert manifest.tokenizer.engine == "letters"
    assert manifest.totals.n_tokens == 5
    with pytest.raises(RecipeError) as error:
        Tokenizer("lettres")
    assert error.value.hint == "did you mean `letters`?"
