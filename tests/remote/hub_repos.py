"""The repositories of the stand-in Hub: files, commits and branches, without any HTTP."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

BLOCK = 1 << 16
GITATTRIBUTES = b"*.arrow filter=lfs diff=lfs merge=lfs -text\n*.bin filter=lfs diff=lfs merge=lfs -text\n"
LFS_SUFFIXES = {".arrow", ".bin", ".ds", ".gz", ".idx", ".mds", ".npy", ".parquet", ".zip", ".zst"}


@dataclass(frozen=True)
class Blob:
    """The content of a file; large and binary ones are in LFS, as on the Hub."""

    data: bytes | Path
    n_bytes: int
    sha256: str
    git_sha1: str  # of the content, or of the pointer where it is in LFS
    in_lfs: bool

    @property
    def etag(self) -> str:
        return self.sha256 if self.in_lfs else self.git_sha1

    def blocks(self, start: int, stop: int) -> Iterator[bytes]:
        if isinstance(self.data, bytes):
            yield from (self.data[i : min(i + BLOCK, stop)] for i in range(start, stop, BLOCK))
            return
        with self.data.open("rb") as file:
            file.seek(start)
            for i in range(start, stop, BLOCK):
                yield file.read(min(BLOCK, stop - i))


def blob_of(data: bytes | Path, *, in_lfs: bool) -> Blob:
    content = data if isinstance(data, bytes) else data.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    hashed = pointer_of(sha256, len(content)) if in_lfs else content
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(hashed) + hashed).hexdigest()  # noqa: S324
    return Blob(data, len(content), sha256, git_sha1, in_lfs)


def pointer_of(sha256: str, n_bytes: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {n_bytes}\n".encode()


def goes_to_lfs(path: str, n_bytes: int, lfs_bytes: int) -> bool:
    return n_bytes > 0 and (PurePosixPath(path).suffix in LFS_SUFFIXES or n_bytes >= lfs_bytes)


Tree = dict[str, Blob]


@dataclass
class Repo:
    """A dataset repository. Trees are never changed: a commit makes another one."""

    name: str
    private: bool = False
    gated: bool = False
    refs: dict[str, str] = field(default_factory=dict)  # branch -> sha
    trees: dict[str, Tree] = field(default_factory=dict)  # sha -> tree
    titles: list[str] = field(default_factory=list)

    def commit(self, tree: Tree, title: str, branch: str = "main") -> str:
        """Put a new tree on a branch, and return its sha."""
        listing = "".join(f"{path} {blob.sha256}\n" for path, blob in sorted(tree.items()))
        text = f"{self.name} {branch} {self.refs.get(branch)} {len(self.trees)} {title}\n{listing}"
        sha = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324
        self.trees[sha], self.refs[branch] = dict(tree), sha
        self.titles.append(title)
        return sha

    def sha_of(self, revision: str) -> str | None:
        sha = self.refs.get(revision.removeprefix("refs/heads/"), revision)
        return sha if sha in self.trees else None


def listing(tree: Tree, folder: str, *, recursive: bool) -> list[dict] | None:
    """The entries of a folder as the Hub lists them, in order of their paths; None where there is no such folder."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict] = {}
    for path, blob in tree.items():
        if not path.startswith(prefix):
            continue
        parents = [str(parent) for parent in PurePosixPath(path).parents][:-1]
        inside = [parent for parent in parents if parent.startswith(prefix)]
        for parent in inside if recursive else inside[-1:]:
            entries[parent] = folder_entry(parent)
        if recursive or not inside:
            entries[path] = file_entry(path, blob)
    if folder and not entries:
        return None
    return [entries[path] for path in sorted(entries)]


def paths_info(tree: Tree, paths: list[str]) -> list[dict]:
    """Entries of the given paths; those that are not there are left out."""
    entries = []
    for path in paths:
        if path in tree:
            entries.append(file_entry(path, tree[path]))
        elif any(other.startswith(f"{path}/") for other in tree):
            entries.append(folder_entry(path))
    return entries


def folder_entry(path: str) -> dict:
    oid = hashlib.sha1(path.encode()).hexdigest()  # noqa: S324
    return {"type": "directory", "oid": oid, "size": 0, "path": path}


def file_entry(path: str, blob: Blob) -> dict:
    entry: dict = {"type": "file", "oid": blob.git_sha1, "size": blob.n_bytes, "path": path}
    if blob.in_lfs:
        n_pointer_bytes = len(pointer_of(blob.sha256, blob.n_bytes))
        entry["lfs"] = {"oid": blob.sha256, "size": blob.n_bytes, "pointerSize": n_pointer_bytes}
    return entry
