"""prepare.py: a corpus to nanoGPT's train.bin and val.bin by `datasets.map`.

Run it as `python -m tokenmill.scripts.prepare`, or copy `data/fineweb/prepare.py` beside your data.
"""

from __future__ import annotations

from pathlib import Path


def main(folder: Path | None = None) -> None:
    """Run the script and exit; shards go to `folder` unless `--out` says otherwise."""
    from tokenmill.cli import run_command
    from tokenmill.cli.scripts import prepare_command

    run_command(prepare_command(folder or Path()))


if __name__ == "__main__":
    main()
