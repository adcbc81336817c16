"""The three ways of "My prepare.py dies": a script in nanoGPT's shape as it is, and patched by `tokenmill doctor`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.contenders.protocol import nanogpt_ids
from benchmarks.corpus import first_difference
from benchmarks.environments import ROOT, python_of
from benchmarks.field import FIELD, contender_case
from benchmarks.measure import Case
from tokenmill.doctor.patches import script_patch

SHAPE = ROOT / "tests/ways/doctor_scripts/nanogpt_shaped.py"
WAYS = {"as it is": 0, "patched to way 1": 1, "patched to way 2": 2, "patched to way 3": 3}
SCRIPTS = ("prepare-1", "prepare-2", "prepare-fineweb")


def ways_cases(bench: Bench) -> list[Case]:
    """The script, its three patched forms, and the drop-in scripts."""
    right, python = bench.right(), python_of("scripts", bench.venvs)
    patched = [
        Case(
            name=name,
            title=name,
            command=lambda source, out: [str(python), str(out / "prepare.py")],
            source=bench.corpus.parquet,
            n_bytes=bench.corpus.n_text_bytes,
            check=lambda out: first_difference(right, nanogpt_ids(out)),
            before=script_writer(way),
        )
        for name, way in WAYS.items()
    ]
    ours = [one for one in FIELD if one.name in SCRIPTS]
    return [
        *patched,
        *(contender_case(one, bench.corpus, bench.small, right, bench.vocabulary, bench.venvs) for one in ours),
    ]


def script_writer(way: int) -> Callable[[Path, Path], None]:
    def write(source: Path, out: Path) -> None:
        shape = SHAPE.read_text().replace('"gpt2"', '"r50k_base"')
        script = shape.replace('"corpus.parquet"', repr(f"{source}/*.parquet"))
        (out / "prepare.py").write_text(script)
        if way:
            patch = script_patch(script, "prepare.py", way)
            subprocess.run(["patch", "-p1", "-s"], cwd=out, input=patch, text=True, check=True)

    return write
