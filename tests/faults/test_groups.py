"""Killed while groups of a shuffle are scattered, and what a rerun finds then."""

import json
import zlib

import pytest
from harness import HERE, digests, journal_of, tally, texts, write_jsonl

import tokenmill

SMALL = {"executor": "inline", "unit_bytes": 3_000, "batch_bytes": 1_000, "bucket_bytes": 2_000}
LETTERS = {"tokenizer": "words:Letters", "eot_token": "<end>"}
RECIPES = {
    "nanogpt": {"format": "nanogpt", "val": 0.1},
    "keyed shards": {"format": "npy", "shard_tokens": 3_000, "shuffle": "keyed:3"},
    "up to a limit": {"format": "npy", "shard_tokens": 3_000, "shuffle": "keyed:3", "limit_documents": 100},
}


@pytest.fixture(scope="module")
def specs(tmp_path_factory, forks):
    """Shuffled runs of several groups, each with what it comes to undisturbed."""
    folder = tmp_path_factory.mktemp("groups")
    path = write_jsonl(folder / "in.jsonl", texts(150, seed=3))
    made = {}
    for name, recipe in RECIPES.items():
        spec = {"recipe": {"sources": [str(path)], **recipe, **LETTERS}, "options": SMALL, "modules": [str(HERE)]}
        spec["constants"] = {"tokenmill.scatter.GROUP_BYTES": 10_000}
        assert forks.run({**spec, "out": str(folder / name)}).code == 0
        made[name] = spec, digests(folder / name)
    return made


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    "points",
    [
        ["pieces.written:2", "pieces.written:2", "pieces.renamed:2"],
        ["pieces.synced", "scattered.half-receipt", "scattered.receipt-synced:2"],
        ["scattered.receipt-written", "segment.deleted:2", "segment.deleted:3", "shard.written"],
        ["scattered.receipt-synced", "shard.renamed", "shard.receipt-synced", "manifest.written"],
    ],
)
def test_killed_while_scattering_and_gone_on(name, points, specs, forks, tmp_path):
    (spec, expected), out = specs[name], tmp_path / "out"
    for point in points:
        ended = forks.run({**spec, "out": str(out), "fault": point})
        assert ended.code == -9, f"{point} was never reached: {ended.said}"
    assert forks.run({**spec, "out": str(out)}).code == 0
    assert digests(out) == expected
    assert not (out / ".work").exists()
    assert tokenmill.verify(out).ok
    tally("SIGKILL at a named point between two steps of a commit", "same bytes", len(points))


@pytest.fixture
def half(specs, forks, tmp_path):
    """A run that was killed when two of its groups were scattered."""
    spec, expected = specs["nanogpt"]
    spec = {**spec, "out": str(tmp_path / "out")}
    assert forks.run({**spec, "fault": "scattered.receipt-synced:2"}).code == -9
    return spec, expected


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_group_that_is_gone_or_cut_off_is_refused_by_name(damage, half, forks, tmp_path):
    damage(tmp_path / "out" / ".work" / "scattered" / "000001.pieces")
    ended = forks.run(half[0])
    assert ended.code == 2, ended.said
    assert "000001.pieces" in ended.said
    assert "missing or damaged" in ended.said


def test_a_lost_segment_of_a_group_that_is_not_scattered_is_encoded_again(half, forks, tmp_path):
    spec, expected = half
    lost = sorted((tmp_path / "out" / ".work" / "units").glob("*.segment"))[-1]
    lost.unlink()
    assert forks.run(spec).code == 0
    assert digests(tmp_path / "out") == expected


def test_what_another_writer_left_of_a_group_is_removed(half, forks, tmp_path):
    spec, expected = half
    left = tmp_path / "out" / ".work" / "scattered" / "000002.pieces.0123456789abcdef.partial"
    left.write_bytes(b"half")
    assert forks.run({**spec, "fault": "scattered.receipt-synced"}).code == -9
    assert not left.exists()
    assert forks.run(spec).code == 0
    assert digests(tmp_path / "out") == expected


def test_other_groups_than_those_of_the_run_are_refused(half, forks):
    spec, _ = half
    ended = forks.run({**spec, "constants": {"tokenmill.scatter.GROUP_BYTES": 15_000}})
    assert ended.code == 2, ended.said
    assert "other groups" in ended.said


def test_a_journal_of_another_version_is_refused(half, forks, tmp_path):
    event = {"type": "scattered", "n_units": 1, "bucket_bytes": [1], "bucket_documents": [1], "bucket_tokens": [1]}
    data = json.dumps(event).encode()
    with journal_of(tmp_path / "out").open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(data), data))
    ended = forks.run(half[0])
    assert ended.code == 2, ended.said
    assert "another version of tokenmill" in ended.said
