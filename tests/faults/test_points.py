"""SIGKILL between every two steps of every commit, through one named point each."""

import pytest
from harness import HERE, digests, tally, write_jsonl

import tokenmill
from tokenmill.faults import POINTS

# Small shards, units and buckets, so that every step comes several times.
SMALL = {"executor": "inline", "unit_bytes": 3_000, "batch_bytes": 1_000, "bucket_bytes": 2_000}


def documents() -> list[str]:
    return [f"document {i} of the mill, which turns " + "grain " * (i % 40) for i in range(120)]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory, forks):
    """Runs that together come to every point: shuffled through buckets, streamed, cut by a limit, with bad documents.

    Each with what an undisturbed run gives.
    """
    folder = tmp_path_factory.mktemp("points")
    path = write_jsonl(folder / "in.jsonl", documents())
    bad = write_jsonl(folder / "bad.jsonl", [*documents()[:40], "a POISON document", *documents()[40:]])
    bad.write_bytes(bad.read_bytes() + b"{broken\n")
    letters = {"tokenizer": "words:Letters", "eot_token": "<end>"}
    recipes = {
        "checked": {"sources": [str(path)], "format": "nanogpt", "val": 0.1},
        "shuffled": {"sources": [str(path)], "format": "nanogpt", "val": 0.1, **letters},
        "streamed": {"sources": [str(path)], "format": "npy", "shard_tokens": 2000, "limit_tokens": 9000, **letters},
        "sided": {"sources": [str(path)], "format": "datatrove", "shard_tokens": 3000, **letters},
        "excluding": {
            "sources": [str(bad)], "format": "npy", "shard_tokens": 3000, "on_bad_document": "skip", **letters
        },
    }  # fmt: skip
    made = {}
    for name, recipe in recipes.items():
        spec = {"recipe": recipe, "options": SMALL, "env": {"FAULT": "exception always"}, "modules": [str(HERE)]}
        spec["constants"] = {"tokenmill.scatter.GROUP_BYTES": 1000}
        whole = folder / name
        ended = forks.run({**spec, "out": str(whole)})
        assert ended.code == (4 if name == "excluding" else 0), ended.said
        made[name] = spec, digests(whole)
    return made


def scenario_of(point: str) -> str:
    if point.startswith(("quarantine", "skipped")):
        return "excluding"
    if point.startswith(("checked", "sample")):
        return "checked"  # only a fast engine is, and loading one takes most of the time
    if point.startswith(("side", "closing")):
        return "sided"
    return "streamed" if point == "stretch.deleted" else "shuffled"


@pytest.mark.parametrize("point", [point for point in POINTS if not point.startswith("over.")])
def test_killed_between_two_steps_and_gone_on(point, scenarios, forks, tmp_path):
    name = scenario_of(point)
    (spec, expected), out = scenarios[name], tmp_path / "out"
    ended = forks.run({**spec, "out": str(out), "fault": point})
    assert ended.code == -9, f"{point} was never reached: {ended.said}"
    assert_final_names_are_whole(out, expected)
    later = forks.run({**spec, "out": str(out), "fault": f"{point}:2"})  # where it comes to it a second time
    assert_final_names_are_whole(out, expected)
    again = forks.run({**spec, "out": str(out)})
    assert again.code == (4 if name == "excluding" else 0), again.said
    assert digests(out) == expected
    assert not (out / ".work").exists()
    assert tokenmill.verify(out).ok
    tally("SIGKILL at a named point between two steps of a commit", "same bytes", 1 + (later.code == -9))


@pytest.mark.parametrize("point", ["segment.renamed", "unit.half-receipt", "shard.renamed", "stretch.deleted"])
def test_killed_again_and_again_at_the_same_step(point, scenarios, forks, tmp_path):
    spec, expected = scenarios["streamed"]
    out = tmp_path / "out"
    for _ in range(3):
        assert forks.run({**spec, "out": str(out), "fault": f"{point}:2"}).code in (-9, 0)
    assert forks.run({**spec, "out": str(out)}).code == 0
    assert digests(out) == expected


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("over.")])
def test_killed_while_a_finished_output_is_made_again(point, scenarios, forks, tmp_path):
    spec, expected = scenarios["excluding"]
    out = tmp_path / "out"
    assert forks.run({**spec, "out": str(out)}).code == 4
    retry = {**spec, "out": str(out), "options": {**SMALL, "retry_excluded": True}, "env": {"FAULT": ""}}
    assert forks.run({**retry, "fault": point}).code == -9
    assert forks.run(retry).code == 0
    undisturbed = tmp_path / "undisturbed"
    assert forks.run({**spec, "out": str(undisturbed), "env": {"FAULT": ""}}).code == 0
    assert digests(out) == digests(undisturbed) != expected
    tally("SIGKILL at a named point between two steps of a commit", "same bytes")


def assert_final_names_are_whole(out, expected):
    for name, digest in digests(out).items() if out.exists() else ():
        if not name.startswith(".work/") and not name.endswith(".partial"):
            assert expected.get(name) == digest, f"{name} looks done and is not"
