"""Whether a station may work: it sees what the driver sees, and has the same versions."""

from __future__ import annotations

from tokenmill.cluster.station import About
from tokenmill.errors import OutputError, SourceError, TokenmillError


def problem_with(node: str, about: About, here: About) -> TokenmillError | None:
    """Why a station is not fit for the run, if it is not. `here` is what the driver would say of itself."""
    where = f"node {node} ({about.host})"
    if not about.sees_out:
        return OutputError(
            f"{where} does not see the output: it is not on storage that all nodes share",
            hint="pass a folder on a shared file system with `-o`, or an address in a store",
        )
    if about.missing_input is not None:
        return SourceError(
            f"{where} does not see the source `{about.missing_input}` as it is here",
            hint="sources must be on storage that all nodes share, or at an address",
        )
    others = {name: about.versions.get(name, "none") for name in here.versions}
    different = [name for name, version in here.versions.items() if others[name] != version]
    if different:
        lines = [f"  {name}: {others[name]} there, {here.versions[name]} here" for name in different]
        return OutputError("\n".join([f"{where} has other versions", *lines]), hint="install the same on all nodes")
    return None
