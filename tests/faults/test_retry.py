"""`--retry-excluded` on a run that was killed: no other document moves, whatever is in shards or buckets already."""

import pytest
from harness import HERE, digests, write_jsonl

import tokenmill
from tokenmill.manifest import load_manifest

RECIPES = {
    "streamed": {"format": "npy", "shard_tokens": 500},
    "shuffled": {"format": "nanogpt", "val": 0.1},
    "fraction as val": {"format": "npy", "shard_tokens": 500, "val": 0.2},
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("point", ["unit.receipt-synced", "scattered.receipt-synced:2", "shard.receipt-synced"])
def test_retry_of_an_unfinished_run_gives_the_bytes_with_or_without_the_document(name, point, forks, tmp_path):
    documents = [f"document {i} of the mill, which turns " + "grain " * (i % 30) for i in range(120)]
    documents[2] = documents[100] = "a POISON document"
    path = write_jsonl(tmp_path / "in.jsonl", documents)
    recipe = {"sources": [str(path)], "tokenizer": "words:Letters", "eot_token": "<end>", **RECIPES[name]}
    options = {"executor": "inline", "unit_bytes": 3_000, "bucket_bytes": 3_000}
    poisoned = {"recipe": recipe, "options": options, "modules": [str(HERE)], "env": {"FAULT": "exception always"}}
    poisoned["constants"] = {"tokenmill.scatter.GROUP_BYTES": 2_000}
    healthy = {**poisoned, "env": {"FAULT": ""}, "options": {**options, "retry_excluded": True}}
    assert forks.run({**poisoned, "out": str(tmp_path / "without")}).code == 4
    assert forks.run({**healthy, "out": str(tmp_path / "with")}).code == 0
    out = str(tmp_path / "out")
    assert forks.run({**poisoned, "out": out, "fault": point}).code in (-9, 4)
    ended = forks.run({**healthy, "out": out})
    assert ended.code in (0, 4), ended.said
    if len(load_manifest(tmp_path / "out").excluded) == 1:  # the second went in, the first one's neighbors are sealed
        assert tokenmill.verify(out).ok
    else:
        assert digests(tmp_path / "out") == digests(tmp_path / ("with" if ended.code == 0 else "without"))
    assert forks.run({**healthy, "out": out}).code == 0
    assert digests(tmp_path / "out") == digests(tmp_path / "with")
