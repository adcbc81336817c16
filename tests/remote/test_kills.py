"""Killed on the way from the Hub to a store, with scratch kept and lost: the same bytes, and no leftovers."""

import random

import pytest
from harness import HangError
from journeys import OUT, RECIPES, REPO, content, corpus_files

from tokenmill.faults import POINTS, REMOTE_POINTS

# Of the other points those where the store and scratch may come to differ.
LOCAL_POINTS = (
    "lock.taken", "plan.renamed", "shard.renamed", "shard.receipt-synced", "pieces.renamed", "scattered.receipt-synced",
    "manifest.renamed", "work.before-removal", "work.recipe.json-removed",
)  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed():
    """What an undisturbed run gives, by recipe; filled by the first test that needs it."""
    return {}


@pytest.fixture
def wanted(hub, journey, undisturbed):
    hub.add_repo(REPO, corpus_files(n_documents=60))

    def of(name):
        if name not in undisturbed:
            ended = journey.run(RECIPES[name], "s3://bucket/undisturbed")
            assert ended.code == 0, ended.said
            undisturbed[name] = content(journey.output("s3://bucket/undisturbed"))
        return undisturbed[name]

    return of


@pytest.mark.parametrize("lose", [False, True], ids=["scratch kept", "scratch lost"])
@pytest.mark.parametrize("point", [*REMOTE_POINTS, *LOCAL_POINTS])
def test_killed_between_two_steps_and_gone_on(point, lose, journey, wanted):
    name = "shuffled" if point.startswith(("pieces", "scattered")) else "streamed"
    expected = wanted(name)
    ended = journey.run(RECIPES[name], fault=point)
    assert ended.code == -9, f"{point} was never reached: {ended.said}"
    assert_final_names_are_whole(journey, expected)
    if lose:
        journey.lose_scratch()
    ended = journey.run(RECIPES[name])
    assert ended.code == 0, ended.said
    assert content(journey.output()) == expected
    assert journey.leftovers() == []


@pytest.mark.parametrize("point", ["shard.put", "journal.put"])
def test_killed_here_and_there_and_here_again(point, journey, wanted, tmp_path):
    """On two machines in turn: the first one's scratch folder is older than what the second has put."""
    expected, here = wanted("streamed"), journey.env["TOKENMILL_SCRATCH"]
    for i in range(4):
        journey.env["TOKENMILL_SCRATCH"] = str(tmp_path / "there") if i % 2 else here
        assert journey.run(RECIPES["streamed"], fault=f"{point}:2").code in (-9, 0)
    ended = journey.run(RECIPES["streamed"])
    assert ended.code == 0, ended.said
    assert content(journey.output()) == expected
    assert [path for path in journey.output().rglob("*") if ".work" in path.parts and path.is_file()] == []


@pytest.mark.parametrize(("name", "executor"), [("shuffled", "inline"), ("sided", "inline"), ("streamed", "processes")])
def test_ten_kills_at_random_moments(name, executor, journey, wanted):
    expected, rng, n_kills, n_runs = wanted(name), random.Random(f"{name} {executor}"), 0, 0  # noqa: S311
    while n_kills < 10:
        n_runs += 1
        out, finished = f"{OUT}/{n_runs}", False
        while not finished:
            seconds = rng.uniform(0.2, 0.9) if n_kills < 10 else 60.0
            try:
                ended = journey.run(RECIPES[name], out, seconds=seconds, executor=executor, workers=2)
                assert ended.code == 0, ended.said
                finished = True
            except HangError:
                n_kills += 1
                if rng.random() < 0.4:
                    journey.lose_scratch()
        assert content(journey.output(out)) == expected
    assert journey.leftovers() == []


def test_every_point_is_one_of_a_kind():
    assert not set(POINTS) & set(REMOTE_POINTS)


def assert_final_names_are_whole(journey, expected):
    for name, digest in content(journey.output()).items():
        if not name.startswith(".work/"):
            assert expected.get(name) == digest, f"{name} looks done and is not"
