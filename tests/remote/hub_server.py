"""A stand-in for the Hugging Face Hub: datasets, for the real client, on a loopback port.

It speaks what huggingface_hub 2.4 says: repository info, tree (in pages), paths-info, resolve (a redirect to signed
addresses on another origin, the CDN, for what is in LFS), whoami, create, preupload, LFS (basic and multipart) and
commit. It announces no Xet, so downloads are plain HTTP; for uploads the client asks nobody, and has to be told with
HF_HUB_DISABLE_XET=1, which is in `environment`.
"""

import base64
import json
import re
import threading
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from hub_repos import GITATTRIBUTES, Blob, Repo, blob_of, goes_to_lfs, listing, paths_info
from wire import Faults, Handler, Headers, Request, Server

API = re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree|paths-info|preupload|commit|refs)(?:/(.*))?)?")
RESOLVE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
BATCH = re.compile(r"/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch")
OBJECT = re.compile(r"/lfs/([0-9a-f]{64})(?:/(\d+|complete|verify))?")
CDN = re.compile(r"/cdn/([0-9a-f]{64})")
HARNESSES = "/api/agent-harnesses"  # asked by every process of the client once a day: neither logged nor faulty


class HubServer:
    """The Hub as a context manager.

    `token` belongs to `user`, who owns the namespaces in `namespaces` and may read every repository;
    `stranger_token` is valid, and its owner may read what is public and write nothing.
    """

    user, token, stranger_token = "tester", "hf_tester", "hf_stranger"

    def __init__(self, page_size: int = 1000, lfs_bytes: int = 100_000, lfs_part_bytes: int | None = None) -> None:
        self.page_size, self.lfs_bytes, self.lfs_part_bytes = page_size, lfs_bytes, lfs_part_bytes
        self.namespaces = {self.user}
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, Blob] = {}  # what is in LFS, by SHA-256
        self.parts: dict[tuple[str, int], bytes] = {}
        self.requests: list[Request] = []
        self.faults = Faults()
        self.lock = threading.Lock()

    def __enter__(self) -> "HubServer":
        self.server, self.cdn = Server(HubHandler, self), Server(HubHandler, self)
        self.endpoint, self.cdn_endpoint = self.server.endpoint, self.cdn.endpoint
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.cdn.stop()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to take this for the Hub, logged in."""
        return {"HF_ENDPOINT": self.endpoint, "HF_TOKEN": self.token, "HF_HUB_DISABLE_XET": "1"}

    def add_repo(
        self, name: str, files: dict[str, bytes | Path] | None = None, *, private: bool = False, gated: bool = False
    ) -> str:
        """Make a repository with these files, and return the sha of `main`."""
        repo = self.repos[name] = Repo(name, private, gated)
        repo.commit({".gitattributes": self.blob(".gitattributes", GITATTRIBUTES)}, "initial commit")
        return self.add_commit(name, files or {})

    def add_commit(self, name: str, files: dict[str, bytes | Path | None], branch: str = "main") -> str:
        """Change files (None: delete) of a repository, and return the new sha; old ones go on being served."""
        repo = self.repos[name]
        tree = dict(repo.trees[repo.refs.get(branch, repo.refs["main"])])
        for path, data in files.items():
            if data is None:
                del tree[path]
            else:
                tree[path] = self.blob(path, data)
        return repo.commit(tree, "change files", branch)

    def blob(self, path: str, data: bytes | Path) -> Blob:
        n_bytes = len(data) if isinstance(data, bytes) else data.stat().st_size
        blob = blob_of(data, in_lfs=goes_to_lfs(path, n_bytes, self.lfs_bytes))
        if blob.in_lfs:
            self.objects[blob.sha256] = blob
        return blob

    def content(self, name: str, path: str, revision: str = "main") -> bytes:
        repo = self.repos[name]
        blob = repo.trees[repo.sha_of(revision)][path]
        return b"".join(blob.blocks(0, blob.n_bytes))


class RefusalError(Exception):
    """An answer that is an error: status, the Hub's code for it, and its message."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        self.status, self.message = status, message
        self.headers: Headers = {"X-Error-Message": message, **headers} | ({"X-Error-Code": code} if code else {})


class HubHandler(Handler):
    def answer_or_fail(self) -> None:
        if self.path == HARNESSES:
            self.fault = None
            self.send_json({"standardEnvVars": [], "harnesses": {}})
        else:
            super().answer_or_fail()

    def log(self, status: int, fault: str | None = None, n_bytes: int = 0) -> None:
        if self.path != HARNESSES:
            super().log(status, fault, n_bytes)

    def answer(self) -> None:
        hub = self.server.owner
        address = urlsplit(self.path)
        self.query = {key: values[0] for key, values in parse_qs(address.query).items()}
        try:
            if self.server is hub.cdn:
                self.answer_cdn(hub, address.path)
            else:
                self.answer_hub(hub, address.path)
        except RefusalError as refusal:
            self.read_body()
            self.send_json({"error": refusal.message}, refusal.status, refusal.headers)

    def answer_hub(self, hub: HubServer, path: str) -> None:
        if match := OBJECT.fullmatch(path):  # signed addresses: no token
            self.answer_object(hub, match[1], match[2])
            return
        self.user = self.user_of(hub)
        if path == "/api/whoami-v2":
            if self.user is None:
                raise RefusalError(401, "Invalid username or password.")
            self.send_json({"type": "user", "name": self.user, "orgs": [], "auth": {"type": "access_token"}})
        elif path == "/api/repos/create":
            self.create(hub, json.loads(self.read_body()))
        elif path == "/api/validate-yaml":
            self.read_body()
            self.send_json({"errors": [], "warnings": []})
        elif match := BATCH.fullmatch(path):
            self.writable(hub, match[1])
            self.answer_batch(hub, json.loads(self.read_body()))
        elif match := RESOLVE.fullmatch(path):
            self.answer_resolve(hub, match[1], unquote(match[2]), unquote(match[3]))
        elif match := API.fullmatch(path):
            self.answer_api(hub, *match.groups(default=""))
        else:
            raise RefusalError(404, "Sorry, we can't find the page you are looking for.")

    def answer_api(self, hub: HubServer, name: str, verb: str, rest: str) -> None:
        repo = self.writable(hub, name) if verb in ("preupload", "commit") else self.readable(hub, name)
        revision, _, folder = rest.partition("/")
        if verb == "refs":
            branches = [
                {"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": sha} for ref, sha in repo.refs.items()
            ]
            self.send_json({"branches": branches, "tags": [], "converts": []})
            return
        sha = self.sha_of(repo, unquote(revision) or "main")
        tree = repo.trees[sha]
        match verb:
            case "" | "revision":
                self.send_json(repo_info(repo, sha))
            case "tree":
                entries = listing(tree, unquote(folder), recursive=self.query.get("recursive", "").lower() == "true")
                if entries is None:
                    raise RefusalError(404, f'{unquote(folder)} does not exist on "main"', "EntryNotFound")
                self.send_page(hub, entries)
            case "paths-info":
                form = parse_qs(self.read_body().decode())
                self.send_json(paths_info(tree, form.get("paths", [])))
            case "preupload":
                self.answer_preupload(hub, tree, json.loads(self.read_body()))
            case "commit":
                with hub.lock:
                    self.answer_commit(hub, repo, unquote(revision))

    def send_page(self, hub: HubServer, entries: list[dict]) -> None:
        """Send one page of a listing, with the address of the next."""
        start = int(self.query.get("cursor", 0))
        stop = start + hub.page_size
        headers = {}
        if stop < len(entries):
            query = "&".join(f"{key}={quote(value)}" for key, value in (self.query | {"cursor": str(stop)}).items())
            headers["Link"] = f'<{self.base}{urlsplit(self.path).path}?{query}>; rel="next"'
        self.send_json(entries[start:stop], headers=headers)

    def answer_resolve(self, hub: HubServer, name: str, revision: str, path: str) -> None:
        repo = self.readable(hub, name)
        if repo.gated and self.user != hub.user:
            message = f"Access to dataset {name} is restricted. You must have access to it and be authenticated."
            raise RefusalError(401 if self.user is None else 403, message, "GatedRepo")
        sha = self.sha_of(repo, revision)
        blob = repo.trees[sha].get(path)
        if blob is None:
            raise RefusalError(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": sha})
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob.etag}"', "Accept-Ranges": "bytes"}
        if not blob.in_lfs:
            self.send_range(blob, headers)
            return
        headers |= {"X-Linked-Size": str(blob.n_bytes), "X-Linked-Etag": f'"{blob.sha256}"'}
        signed = f"{hub.cdn_endpoint}/cdn/{blob.sha256}?Expires=4102444800&Signature=not-so-secret&Key-Pair-Id=K1"
        self.send(302, b"Found. Redirecting", {**headers, "Location": signed})

    def answer_cdn(self, hub: HubServer, path: str) -> None:
        match = CDN.fullmatch(path)
        if not match or match[1] not in hub.objects:
            raise RefusalError(404, "NoSuchKey")
        if "Signature" not in self.query or "Authorization" in self.headers:  # a token must not get here
            raise RefusalError(403, "AccessDenied")
        blob = hub.objects[match[1]]
        self.send_range(blob, {"ETag": f'"{blob.sha256}"', "Accept-Ranges": "bytes"})

    def send_range(self, blob: Blob, headers: Headers) -> None:
        """Send a blob, or the range of it that was asked for."""
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked or not (asked[1] or asked[2]):
            self.send_blocks(200, blob.blocks(0, blob.n_bytes), blob.n_bytes, headers)
            return
        if asked[1]:
            start, stop = int(asked[1]), min(int(asked[2] or blob.n_bytes) + 1, blob.n_bytes)
        else:
            start, stop = max(blob.n_bytes - int(asked[2]), 0), blob.n_bytes
        if start >= stop:
            self.send(416, b"", {"Content-Range": f"bytes */{blob.n_bytes}"})
            return
        headers = {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{blob.n_bytes}"}
        self.send_blocks(206, blob.blocks(start, stop), stop - start, headers)

    def create(self, hub: HubServer, wanted: dict) -> None:
        if self.user is None:
            raise RefusalError(401, "Invalid username or password.")
        namespace = wanted.get("organization") or self.user
        name = f"{namespace}/{wanted['name']}"
        if self.user != hub.user or namespace not in hub.namespaces:
            raise RefusalError(403, f'You don\'t have the rights to create a dataset under the namespace "{namespace}"')
        url = {"url": f"{self.base}/datasets/{name}", "name": name, "id": name}
        with hub.lock:
            if name in hub.repos:
                self.send_json({"error": "You already created this dataset repo", **url}, 409)
                return
            hub.add_repo(name, private=wanted.get("visibility") == "private")
        self.send_json(url)

    def answer_preupload(self, hub: HubServer, tree: dict[str, Blob], wanted: dict) -> None:
        files = []
        for file in wanted["files"]:
            in_lfs = goes_to_lfs(file["path"], file["size"], hub.lfs_bytes)
            there = tree.get(file["path"])
            entry = {"path": file["path"], "uploadMode": "lfs" if in_lfs else "regular", "shouldIgnore": False}
            files.append(entry | ({"oid": there.etag} if there else {}))
        self.send_json({"files": files})

    def answer_batch(self, hub: HubServer, wanted: dict) -> None:
        """Tell where to put each object; nothing is told of those that are there."""
        objects = []
        for entry in wanted["objects"]:
            oid, n_bytes = entry["oid"], entry["size"]
            answer: dict = {"oid": oid, "size": n_bytes}
            if oid not in hub.objects:
                address, header = f"{self.base}/lfs/{oid}", {}
                if hub.lfs_part_bytes and n_bytes > hub.lfs_part_bytes:
                    n_parts = -(-n_bytes // hub.lfs_part_bytes)
                    header = {str(i): f"{address}/{i}" for i in range(1, n_parts + 1)}
                    header["chunk_size"] = str(hub.lfs_part_bytes)
                    address += "/complete"
                verify = {"href": f"{self.base}/lfs/{oid}/verify"}
                answer["actions"] = {"upload": {"href": address, "header": header}, "verify": verify}
            objects.append(answer)
        transfer = "multipart" if hub.lfs_part_bytes else "basic"
        self.send_json({"transfer": transfer, "objects": objects})

    def answer_object(self, hub: HubServer, oid: str, step: str | None) -> None:
        """Take an object or a part of one, or tell whether it is there."""
        body = self.read_body()
        if step == "verify":
            if oid not in hub.objects:
                raise RefusalError(404, "Object not found")
        elif step and step.isdigit():
            hub.parts[oid, int(step)] = body
        else:
            if step == "complete":
                numbers = [part["partNumber"] for part in json.loads(body)["parts"]]
                body = b"".join(hub.parts[oid, number] for number in numbers)
            blob = blob_of(body, in_lfs=True)
            if blob.sha256 != oid:
                raise RefusalError(400, "The content is not what its SHA-256 says")
            hub.objects[oid] = blob
        self.send_json({}, headers={"ETag": f'"{oid[:32]}"'})

    def answer_commit(self, hub: HubServer, repo: Repo, branch: str) -> None:
        header, *operations = [json.loads(line) for line in self.read_body().splitlines()]
        parent = header["value"].get("parentCommit")
        if branch not in repo.refs:
            raise RefusalError(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        if parent is not None and not repo.refs[branch].startswith(parent):
            raise RefusalError(412, "A commit has happened since. Please refresh and try again.")
        tree = dict(repo.trees[repo.refs[branch]])
        for operation in operations:
            value, path = operation["value"], operation["value"]["path"]
            match operation["key"]:
                case "file":
                    tree[path] = blob_of(base64.b64decode(value["content"]), in_lfs=False)
                case "lfsFile":
                    if value["oid"] not in hub.objects:
                        raise RefusalError(400, f"LFS pointer of {path} points to a file that does not exist")
                    tree[path] = hub.objects[value["oid"]]
                case "deletedFile":
                    if tree.pop(path, None) is None:
                        raise RefusalError(404, "A file with this name doesn't exist", "EntryNotFound")
                case "deletedFolder":
                    tree = {other: blob for other, blob in tree.items() if not other.startswith(path.rstrip("/") + "/")}
        sha = repo.commit(tree, header["value"]["summary"], branch)
        url = f"{self.base}/datasets/{repo.name}/commit/{sha}"
        self.send_json({"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})

    def user_of(self, hub: HubServer) -> str | None:
        """Who asks; None for nobody. A token that is not one of ours is refused everywhere, as on the Hub."""
        authorization = self.headers.get("Authorization")
        if authorization is None:
            return None
        users = {f"Bearer {hub.token}": hub.user, f"Bearer {hub.stranger_token}": "stranger"}
        if authorization not in users:
            raise RefusalError(401, "Invalid credentials in Authorization header")
        return users[authorization]

    def readable(self, hub: HubServer, name: str) -> Repo:
        repo = hub.repos.get(name)
        if repo is None or (repo.private and self.user != hub.user):
            if self.user is None:
                raise RefusalError(401, "Invalid username or password.", "RepoNotFound")
            raise RefusalError(404, "Repository not found", "RepoNotFound")
        return repo

    def writable(self, hub: HubServer, name: str) -> Repo:
        repo = self.readable(hub, name)
        if self.user is None:
            raise RefusalError(401, "Invalid username or password.")
        if self.user != hub.user or name.split("/")[0] not in hub.namespaces:
            raise RefusalError(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
        return repo

    def sha_of(self, repo: Repo, revision: str) -> str:
        sha = repo.sha_of(revision)
        if sha is None:
            raise RefusalError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def send_json(self, value: object, status: int = 200, headers: Headers | None = None) -> None:
        self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    @property
    def base(self) -> str:
        """The address that the client used, which is a proxy's where there is one."""
        return f"http://{self.headers['Host']}"


def repo_info(repo: Repo, sha: str) -> dict:
    when = "2026-01-01T00:00:00.000Z"
    return {
        "id": repo.name,
        "author": repo.name.split("/")[0],
        "sha": sha,
        "lastModified": when,
        "createdAt": when,
        "private": repo.private,
        "gated": "auto" if repo.gated else False,
        "disabled": False,
        "tags": [],
        "siblings": [{"rfilename": path} for path in sorted(repo.trees[sha])],
    }
