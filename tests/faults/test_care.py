"""The way of a document whose fast engine dies and whose reference survives, and how a batch is narrowed down."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.batches import Documents, Tokens
from tokenmill.care import Care, CarefulEngine, Note, Place
from tokenmill.executors.deaths import Trouble, stall_limit
from tokenmill.executors.seat import Seat
from tokenmill.worker import NOTE, Notebook


class Letters:
    """An engine of bytes, which may raise on some documents."""

    def __init__(self, name, cannot=()):
        self.name, self.cannot, self.given = name, cannot, []

    def encode(self, documents):
        texts = documents.texts.to_pylist()
        self.given.append(texts)
        if any(text in self.cannot for text in texts):
            raise ValueError(f"{self.name} cannot")
        ids = [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]
        return Tokens(np.concatenate(ids), np.array([len(one) for one in ids], np.int64))

    def encode_one(self, text):
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


class TwoEngines:
    """A tokenizer, as far as care asks for one."""

    name = "two"

    def __init__(self, engine, reference):
        self.engine, self.reference = engine, reference


def documents(*texts):
    return Documents(pa.array(texts, pa.large_string()), np.arange(len(texts), dtype=np.uint32), len(texts))


def careful(tmp_path, engine, reference, care=Care(), notes=None):
    on_note = (notes if notes is not None else []).append
    return CarefulEngine(TwoEngines(engine, reference), engine, 7, care, on_note, tmp_path)


def test_document_that_the_fast_engine_raises_on_is_encoded_by_the_reference(tmp_path):
    fast, reference = Letters("fast", cannot=["bad"]), Letters("reference")
    kept, tokens, excluded = careful(tmp_path, fast, reference).encode(0, documents("a", "bad", "cc"))
    assert (len(kept), excluded) == (3, [])
    assert bytes(tokens.ids.astype(np.uint8)) == b"abadcc"
    assert reference.given == [["bad"]]


def test_document_that_killed_the_fast_engine_is_given_to_the_reference_alone(tmp_path):
    fast, reference, notes = Letters("fast"), Letters("reference"), []
    care = Care(by_reference=(Place(0, 1),))
    _, tokens, excluded = careful(tmp_path, fast, reference, care, notes).encode(0, documents("a", "bad", "cc"))
    assert bytes(tokens.ids.astype(np.uint8)) == b"abadcc"
    assert excluded == []
    assert (fast.given, reference.given) == ([["a"], ["cc"]], [["bad"]])
    assert notes == [Note(7, 0, 0, 0, 1), Note(7, 0, 1, 1, 1), Note(7, 0, 2, 2, 1), Note(7, 0, 0, 0, 0)]


def test_document_that_neither_engine_takes_is_kept_in_quarantine(tmp_path):
    fast, reference = Letters("fast", cannot=["bad"]), Letters("reference", cannot=["bad"])
    kept, tokens, (exclusion,) = careful(tmp_path, fast, reference).encode(0, documents("a", "bad", "cc"))
    assert kept.texts.to_pylist() == ["a", "cc"]
    assert tokens.doc_lengths.tolist() == [1, 2]
    assert (exclusion.row, exclusion.n_bytes, exclusion.reason) == (1, 3, "ValueError: reference cannot")
    assert [path.read_text() for path in Path(tmp_path / "quarantine").iterdir()] == ["bad"]


def test_batch_that_kills_twice_is_halved_down_to_the_document_and_then_to_the_reference():
    trouble, batch = Trouble(), Note(0, 0, 0, 15, 16)
    assert "fresh worker" in trouble.blame(batch, "died", use_reference=False)
    assert trouble.care == Care()
    assert "halved" in trouble.blame(batch, "died", use_reference=False)
    poison, said = 11, []
    for _ in range(10):
        said.append(trouble.blame(narrowed(trouble, batch, poison), "died", use_reference=False))
        if trouble.care.by_reference:
            break
    assert trouble.care.by_reference == (Place(0, poison),)
    assert ["halved" in words for words in said] == [True, True, True, False, False]
    assert "once more" in trouble.blame(Note(0, 0, poison, poison, 1), "killed by SIGSEGV", use_reference=False)
    assert "quarantine" in trouble.blame(Note(0, 0, poison, poison, 1), "killed by SIGSEGV", use_reference=False)
    assert trouble.care.excluded == ((Place(0, poison), "its worker died: killed by SIGSEGV"),)


def narrowed(trouble, batch, row):
    """The note of a worker that dies on this row: the run between the cuts around it."""
    cuts = sorted({batch.first_row, *(cut.row for cut in trouble.care.cut_before), batch.last_row + 1})
    first = max(cut for cut in cuts if cut <= row)
    last = min(cut for cut in cuts if cut > row) - 1
    return Note(batch.unit, batch.span, first, last, last - first + 1)


def test_deaths_between_batches_blame_no_document():
    trouble = Trouble()
    for _ in range(3):
        assert not trouble.hopeless
        trouble.blame(Note(0, 0, 0, 0, 0), "died", use_reference=True)
    assert trouble.hopeless
    assert trouble.care == Care()


@pytest.mark.parametrize(("n_documents", "seconds"), [(16, 300.0), (8, 150.0), (1, 18.75)])
def test_half_of_a_batch_that_hung_is_given_half_the_time(n_documents, seconds):
    trouble = Trouble(suspect=Note(0, 0, 0, 15, 16))
    assert stall_limit(300.0, Note(0, 0, 0, n_documents - 1, n_documents), trouble) == seconds


class Process:
    killed = False

    def kill(self):
        self.killed = True


def test_worker_that_has_just_been_started_is_given_time_to_start(tmp_path):
    notes = tmp_path / "0.notes"
    notes.write_bytes(bytes(NOTE.size))
    seat = Seat(tmp_path, 0, b"")
    seat.process, seat._unit, seat._since = Process(), 0, time.monotonic() - 30
    seat.end_stalled(lambda note: 3.0)
    assert not seat.process.killed
    Notebook(notes).write(Note(0, 0, 0, 0, 1))
    seat.end_stalled(lambda note: 3.0)
    assert not seat.process.killed
    seat._since -= 4
    seat.end_stalled(lambda note: 3.0)
    assert seat.process.killed
