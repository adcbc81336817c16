"""Shares of a corpus on the Hub, encoded into a shared folder."""

from journeys import RECIPES, REPO, content, corpus_files, shards_of


def fetched(hub) -> list[str]:
    """The files whose bodies were asked for since the last time."""
    asked = [request.path for request in hub.requests if request.method == "GET" and "/resolve/" in request.path]
    hub.requests.clear()
    return sorted(path.rpartition("/")[2] for path in asked)


def test_each_share_fetches_only_the_files_of_its_units(journey, hub, tmp_path):
    files = corpus_files()
    hub.add_repo(REPO, files)
    out, plain = tmp_path / "out", tmp_path / "plain"
    names = sorted(name.rpartition("/")[2] for name in files)
    for i in (1, 2):
        ended = journey.run(RECIPES["streamed"], out, node=f"{i}/2")
        assert ended.code == 0, ended.said
        assert fetched(hub) == names[2 * i - 2 : 2 * i]
        assert not (out / ".work" / "shares" / f"{i}-of-2" / "downloads").exists()
    ended = journey.run(RECIPES["streamed"], out)
    assert ended.code == 0, ended.said
    assert fetched(hub) == []
    assert journey.run(RECIPES["streamed"], plain).code == 0
    assert content(out) == content(plain)


def test_share_killed_while_it_fetches_goes_on(journey, hub, tmp_path):
    hub.add_repo(REPO, corpus_files())
    out, plain = tmp_path / "out", tmp_path / "plain"
    assert journey.run(RECIPES["shuffled"], out, node="1/2", fault="download.written:2").code == -9
    for node in ("1/2", "2/2", None):
        ended = journey.run(RECIPES["shuffled"], out, node=node)
        assert ended.code == 0, ended.said
    assert journey.run(RECIPES["shuffled"], plain).code == 0
    assert shards_of(content(out)) == shards_of(content(plain))
