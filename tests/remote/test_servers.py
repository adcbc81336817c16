"""The stand-ins behave as the real servers do, as the real clients see it."""

import hashlib
import subprocess
import sys
import time
from datetime import timedelta

import httpx2
import huggingface_hub.errors as hub_errors
import obstore
import pytest
from hub_server import HubServer
from huggingface_hub import HfApi, RepoFile, hf_hub_download, snapshot_download
from huggingface_hub.utils import disable_progress_bars
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError, PreconditionError
from proxy import FaultProxy
from s3_server import S3Server

disable_progress_bars()
REPO = "tester/corpus"
BIG = bytes(range(256)) * 4000  # 1 MB, in LFS
FILES = {"README.md": b"# small\n", "data/a.parquet": BIG, "data/deep/b.jsonl": b'{"text": "b"}\n', "data/c.bin": b"c"}
QUICK = {"max_retries": 3, "backoff": {"init_backoff": timedelta(milliseconds=10)}}


@pytest.fixture
def api(hub):
    return HfApi(endpoint=hub.endpoint, token=hub.token)


def download(hub, filename, **options):
    return hf_hub_download(REPO, filename, repo_type="dataset", endpoint=hub.endpoint, **options)


# The Hub: what is there


def test_a_repository_has_a_sha_that_changes_with_a_commit_and_old_ones_stay(hub, api):
    first = hub.add_repo(REPO, FILES)
    assert api.dataset_info(REPO).sha == first
    second = hub.add_commit(REPO, {"README.md": b"# other\n", "data/c.bin": None})
    assert api.dataset_info(REPO).sha == second != first
    assert api.dataset_info(REPO, revision=first).sha == first
    assert {file.path for file in api.list_repo_tree(REPO, repo_type="dataset", revision=first, recursive=True)} > {
        "data/c.bin"
    }
    for revision, text in ((first, "# small\n"), (second, "# other\n"), ("main", "# other\n")):
        with open(download(hub, "README.md", revision=revision)) as file:  # noqa: PTH123
            assert file.read() == text


def test_a_listing_comes_in_pages_with_checksums_of_files_in_lfs(api, hub):
    hub.page_size = 2
    hub.add_repo(REPO, FILES)
    entries = list(api.list_repo_tree(REPO, repo_type="dataset", recursive=True))
    files = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
    assert set(files) == {*FILES, ".gitattributes"}
    assert {entry.path for entry in entries} - set(files) == {"data", "data/deep"}
    assert files["data/a.parquet"].lfs.sha256 == hashlib.sha256(BIG).hexdigest()
    assert files["data/a.parquet"].size == files["data/a.parquet"].lfs.size == len(BIG)
    assert files["README.md"].lfs is None
    assert files["README.md"].blob_id == hashlib.sha1(b"blob 8\0# small\n").hexdigest()  # noqa: S324
    assert len([request for request in hub.requests if "/tree/" in request.path]) == 4


def test_a_folder_is_listed_alone(hub, api):
    hub.add_repo(REPO, FILES)
    paths = {entry.path for entry in api.list_repo_tree(REPO, "data", repo_type="dataset")}
    assert paths == {"data/a.parquet", "data/c.bin", "data/deep"}
    deep = {entry.path for entry in api.list_repo_tree(REPO, "data/deep", repo_type="dataset", recursive=True)}
    assert deep == {"data/deep/b.jsonl"}
    with pytest.raises(hub_errors.EntryNotFoundError):
        list(api.list_repo_tree(REPO, "nowhere", repo_type="dataset"))
    found = api.get_paths_info(REPO, ["data/c.bin", "data", "nowhere"], repo_type="dataset")
    assert [entry.path for entry in found] == ["data/c.bin", "data"]


def test_a_large_file_is_one_head_and_one_get_from_another_origin(hub):
    hub.add_repo(REPO, FILES)
    with open(download(hub, "data/a.parquet", token=hub.token), "rb") as file:  # noqa: PTH123
        assert file.read() == BIG
    head, get = hub.requests
    assert (head.method, head.status) == ("HEAD", 302)
    assert (get.method, get.status) == ("GET", 200)
    assert get.path.startswith("/cdn/")
    assert "Signature=" in get.path
    assert "authorization" not in get.headers


def test_a_download_that_ends_early_goes_on_at_the_last_10_mb(hub):
    data = bytes(range(256)) * 90_000  # 23 MB
    hub.add_repo(REPO, {"data.bin": data})
    hub.faults.set(short=1, methods=("GET",), at_most=1)
    with open(download(hub, "data.bin"), "rb") as file:  # noqa: PTH123
        assert file.read() == data
    broken, rest = [request for request in hub.requests if request.method == "GET"]
    assert (broken.fault, broken.range, broken.n_bytes) == ("short", None, len(data) // 2)
    assert (rest.status, rest.range) == (206, f"bytes={10 << 20}-")


def test_a_reset_inside_the_body_is_more_than_the_client_stands(hub):
    hub.add_repo(REPO, FILES)
    hub.faults.set(cut=1, methods=("GET",), at_most=1)
    with pytest.raises(httpx2.ReadError):
        download(hub, "data/a.parquet")


def test_a_snapshot_is_the_whole_tree(hub, tmp_path):
    hub.add_repo(REPO, FILES)
    snapshot_download(REPO, repo_type="dataset", endpoint=hub.endpoint, local_dir=tmp_path)
    assert {path: (tmp_path / path).read_bytes() for path in FILES} == FILES


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ("bytes=10-19", 206, BIG[10:20]),
        ("bytes=1023990-", 206, BIG[1023990:]),
        ("bytes=-7", 206, BIG[-7:]),
        ("bytes=1024000-", 416, b""),
        (None, 200, BIG),
    ],
)
def test_ranges(hub, asked, status, body):
    from huggingface_hub.utils import get_session

    hub.add_repo(REPO, FILES)
    headers = {"Range": asked} if asked else {}
    answer = get_session().get(f"{hub.endpoint}/datasets/{REPO}/resolve/main/data/a.parquet", headers=headers)
    assert (answer.status_code, answer.content) == (status, body)
    assert answer.headers.get("Accept-Ranges", "bytes") == "bytes"


# The Hub: what is refused


def test_what_is_not_there(hub, api):
    hub.add_repo(REPO, FILES)
    with pytest.raises(hub_errors.RepositoryNotFoundError):
        api.dataset_info("tester/nothing")
    with pytest.raises(hub_errors.RepositoryNotFoundError):
        HfApi(endpoint=hub.endpoint).dataset_info("tester/nothing")
    with pytest.raises(hub_errors.RevisionNotFoundError):
        api.dataset_info(REPO, revision="nothing")
    with pytest.raises(hub_errors.RevisionNotFoundError):
        list(api.list_repo_tree(REPO, repo_type="dataset", revision="0" * 40))
    with pytest.raises(hub_errors.RemoteEntryNotFoundError):
        download(hub, "nothing.parquet")


def test_a_private_repository_is_there_for_its_owner_alone(hub, api):
    hub.add_repo(REPO, FILES, private=True)
    assert api.dataset_info(REPO).private
    for token in (False, hub.stranger_token):
        with pytest.raises(hub_errors.RepositoryNotFoundError):
            api.dataset_info(REPO, token=token)


@pytest.mark.parametrize("token", [False, "hf_stranger"])
def test_a_gated_repository_is_listed_and_not_given_away(hub, api, token):
    hub.add_repo(REPO, FILES, gated=True)
    assert api.dataset_info(REPO, token=token).gated == "auto"
    assert list(api.list_repo_tree(REPO, repo_type="dataset", token=token))
    with pytest.raises(hub_errors.GatedRepoError) as error:
        download(hub, "data/a.parquet", token=token)
    assert error.value.response.status_code == (403 if token else 401)
    assert download(hub, "data/a.parquet", token=hub.token)


def test_a_wrong_token_is_refused_everywhere(hub, api):
    hub.add_repo(REPO, FILES)
    assert api.whoami()["name"] == hub.user
    for call in (api.whoami, lambda token: api.dataset_info(REPO, token=token)):
        with pytest.raises(hub_errors.HfHubHTTPError) as error:
            call(token="hf_wrong")
        assert error.value.response.status_code == 401
        assert not isinstance(error.value, hub_errors.RepositoryNotFoundError)


def test_too_many_requests_are_tried_again_after_what_the_server_says(hub, api):
    hub.add_repo(REPO, FILES)
    hub.faults.set(too_many=1, path="/tree/", at_most=1)
    began = time.monotonic()
    assert list(api.list_repo_tree(REPO, repo_type="dataset"))
    assert time.monotonic() - began >= 1  # Retry-After: 0, and the client adds a second
    assert [request.status for request in hub.requests] == [429, 200]


# The Hub: uploads


@pytest.mark.parametrize("lfs_part_bytes", [None, 300_000])
def test_a_folder_is_uploaded_and_downloaded_again(tmp_path, lfs_part_bytes):
    for path, data in FILES.items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_bytes(data)
    with HubServer(lfs_part_bytes=lfs_part_bytes) as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        assert api.create_repo(REPO, repo_type="dataset", private=True).repo_id == REPO
        api.create_repo(REPO, repo_type="dataset", exist_ok=True)
        before = api.dataset_info(REPO).sha
        done = api.upload_folder(repo_id=REPO, repo_type="dataset", folder_path=tmp_path / "in")
        assert done.oid == api.dataset_info(REPO).sha != before
        assert api.dataset_info(REPO).private
        api.upload_file(path_or_fileobj=b"more", path_in_repo="m.txt", repo_id=REPO, repo_type="dataset")
        api.delete_file("data/c.bin", REPO, repo_type="dataset")
        snapshot_download(REPO, repo_type="dataset", endpoint=hub.endpoint, token=hub.token, local_dir=tmp_path / "out")
        expected = {path: data for path, data in FILES.items() if path != "data/c.bin"} | {"m.txt": b"more"}
        assert {path: (tmp_path / "out" / path).read_bytes() for path in expected} == expected
        assert not (tmp_path / "out" / "data" / "c.bin").exists()
        puts = [request.path for request in hub.requests if request.method == "PUT"]
        assert len(puts) == (2 if lfs_part_bytes is None else 5)
        api.upload_folder(repo_id=REPO, repo_type="dataset", folder_path=tmp_path / "in")
        assert len([request for request in hub.requests if request.method == "PUT"]) == len(puts)


def test_nobody_else_writes(hub, api):
    hub.add_repo(REPO, FILES)
    for token, status in ((False, 401), (hub.stranger_token, 403)):
        for call in (
            lambda token: api.upload_file(
                path_or_fileobj=b"x", path_in_repo="x", repo_id=REPO, repo_type="dataset", token=token
            ),
            lambda token: api.create_repo("somebody/else", repo_type="dataset", token=token),
        ):
            with pytest.raises(hub_errors.HfHubHTTPError) as error:
                call(token)
            assert error.value.response.status_code == status


# S3


def test_objects_are_put_listed_read_and_deleted(s3):
    store = s3.store("bucket")
    obstore.put(store, "a/one.bin", b"0123456789")
    obstore.put(store, "a/two.bin", b"2")
    obstore.put(store, "b.bin", b"b")
    assert sorted(entry["path"] for entry in obstore.list(store).collect()) == ["a/one.bin", "a/two.bin", "b.bin"]
    assert sorted(entry["path"] for entry in obstore.list(store, "a").collect()) == ["a/one.bin", "a/two.bin"]
    assert obstore.get(store, "a/one.bin").bytes() == b"0123456789"
    assert obstore.get_range(store, "a/one.bin", start=3, end=6) == b"345"
    assert (s3.folder / "bucket" / "a" / "one.bin").read_bytes() == b"0123456789"
    obstore.delete(store, "a/one.bin")
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "a/one.bin")
    with pytest.raises((GenericError, FileNotFoundError)):
        obstore.put(s3.store("nowhere"), "x", b"x")


def test_the_environment_is_enough_for_obstore(s3):
    code = "import obstore, sys; from obstore.store import from_url; store = from_url('s3://bucket/folder');"
    code += "obstore.put(store, 'x', b'there'); sys.stdout.write(bytes(obstore.get(store, 'x').bytes()).decode())"
    done = subprocess.run([sys.executable, "-c", code], env=s3.environment, capture_output=True, text=True, check=True)
    assert done.stdout == "there"
    assert (s3.folder / "bucket" / "folder" / "x").read_bytes() == b"there"


def test_a_wrong_key_is_refused(s3):
    store = s3.store("bucket", retry_config=QUICK)
    obstore.put(store, "x", b"x")
    from obstore.store import S3Store

    wrong = S3Store(
        "bucket",
        endpoint=s3.endpoint,
        access_key_id=s3.access_key,
        secret_access_key="wrong",
        region="us-east-1",
        client_options={"allow_http": True},
    )
    with pytest.raises(PermissionDeniedError):
        obstore.get(wrong, "x")


def test_30_mb_go_up_in_parts_through_the_proxy(s3, proxy):
    data = hashlib.sha256(b"seed").digest() * (30_000_000 // 32)
    store = s3.store("bucket", proxy.endpoint)
    obstore.put(store, "big.bin", data, chunk_size=5 << 20)
    parts = [request for request in proxy.requests if "partNumber=" in request.path]
    assert len(parts) == 6
    assert obstore.get(store, "big.bin").bytes() == data
    assert (s3.folder / "bucket" / "big.bin").stat().st_size == len(data)


def test_rclone_ignores_conditions_and_the_proxy_adds_them(s3, proxy):
    direct, store = s3.store("bucket"), s3.store("bucket", proxy.endpoint)
    first = obstore.put(direct, "x", b"1")
    obstore.put(direct, "x", b"2", mode="create")
    assert obstore.get(direct, "x").bytes() == b"2"
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "x", b"3", mode="create")
    with pytest.raises(PreconditionError):
        obstore.put(store, "x", b"3", mode={"e_tag": first["e_tag"]})
    second = obstore.head(store, "x")
    obstore.put(store, "x", b"3", mode={"e_tag": second["e_tag"]})
    obstore.put(store, "new", b"4", mode="create")
    assert [bytes(obstore.get(store, name).bytes()) for name in ("x", "new")] == [b"3", b"4"]


def test_the_proxy_denies_a_bucket_or_all_writes(s3, proxy):
    s3.add_bucket("locked")
    store, locked = s3.store("bucket", proxy.endpoint), s3.store("locked", proxy.endpoint)
    proxy.deny_buckets = {"locked"}
    with pytest.raises(PermissionDeniedError):
        obstore.head(locked, "x")
    with pytest.raises(GenericError, match="403 Forbidden"):  # of a listing, obstore says less
        obstore.list(locked).collect()
    obstore.put(store, "x", b"x")
    proxy.deny_writes = True
    with pytest.raises(PermissionDeniedError):
        obstore.put(store, "x", b"y")
    assert obstore.get(store, "x").bytes() == b"x"


def test_the_server_is_gone_after_the_block():
    with S3Server() as server:
        server.add_bucket("b")
        obstore.put(server.store("b"), "x", b"x")
        folder, process = server.folder, server.process
    assert process.returncode is not None
    assert not folder.exists()
    with pytest.raises(GenericError):
        obstore.get(server.store("b", retry_config={"max_retries": 0}), "x")


# Faults


@pytest.mark.parametrize("fault", ["refused", "unavailable", "too_many", "slow"])
def test_obstore_tries_again_after_faults_before_the_body(s3, proxy, fault):
    store = s3.store("bucket", proxy.endpoint, retry_config=QUICK)
    obstore.put(store, "x", b"0123456789")
    proxy.faults.set(**{fault: 1}, slow_seconds=0.05, methods=("GET",), at_most=1)
    assert obstore.get(store, "x").bytes() == b"0123456789"
    seen = [request.fault for request in proxy.requests if request.method == "GET"]
    assert seen == (["slow"] if fault == "slow" else [fault, None])


@pytest.mark.parametrize("fault", ["truncated", "padded", "corrupt"])
def test_answers_that_lie_consistently_reach_the_caller(s3, proxy, fault):
    store = s3.store("bucket", proxy.endpoint, retry_config=QUICK)
    obstore.put(store, "x", b"0123456789")
    proxy.faults.set(**{fault: 1}, methods=("GET",), at_most=1)
    found = bytes(obstore.get(store, "x").bytes())
    assert found == {"truncated": b"012", "padded": b"0123456789" + bytes(7), "corrupt": b"1123456789"}[fault]


@pytest.mark.parametrize("fault", ["cut", "short"])
def test_a_body_that_breaks_off_is_gone_on_with(s3, proxy, fault):
    data = bytes(range(256)) * 20_000
    store = s3.store("bucket", proxy.endpoint, retry_config=QUICK)
    obstore.put(store, "x", data)
    proxy.faults.set(**{fault: 1}, methods=("GET",), at_most=1)
    assert obstore.get(store, "x").bytes() == data
    broken, rest = [request for request in proxy.requests if request.method == "GET"]
    assert (broken.fault, broken.range) == (fault, None)
    assert rest.status == 206  # obstore goes on inside the same stream
    assert rest.range.endswith(f"-{len(data) - 1}")


def test_the_same_requests_meet_the_same_faults(s3):
    outcomes = []
    for _ in range(2):
        with FaultProxy(s3.endpoint) as proxy:
            store = s3.store("bucket", proxy.endpoint, retry_config=QUICK)
            for i in range(20):
                obstore.put(store, f"{i}", b"x" * i)
            proxy.faults.set(unavailable=0.3, seed=7, methods=("GET",))
            for i in range(20):
                obstore.get(store, f"{i}").bytes()
            outcomes.append([(request.path, request.status) for request in proxy.requests if request.method == "GET"])
    assert outcomes[0] == outcomes[1]
    assert 3 < len([status for _, status in outcomes[0] if status == 503]) < 15


def test_the_hub_works_behind_the_proxy(hub, tmp_path):
    hub.add_repo(REPO, FILES)
    hub.page_size = 1
    with FaultProxy(hub.endpoint) as front, FaultProxy(hub.cdn_endpoint) as cdn:
        hub.cdn_endpoint = cdn.endpoint
        front.faults.set(unavailable=0.3, path="/tree/", at_most=1)
        snapshot_download(REPO, repo_type="dataset", endpoint=front.endpoint, local_dir=tmp_path)
        assert {path: (tmp_path / path).read_bytes() for path in FILES} == FILES
        assert [request.status for request in front.requests].count(503) == 1
        assert {request.path[:5] for request in cdn.requests} == {"/cdn/"}
