"""prepare_fineweb.py: FineWeb's shards, on disk or on the Hub, to the files of nanoGPT or llm.c, without `datasets`.

Run it as `python -m tokenmill.scripts.prepare_fineweb`, or copy `data/fineweb/prepare_fineweb.py` beside your data.
"""

from __future__ import annotations

from pathlib import Path


def main(folder: Path | None = None) -> None:
    """Run the script and exit; shards go to `folder` unless `--out` says otherwise."""
    from tokenmill.cli import run_command
    from tokenmill.cli.scripts import prepare_fineweb_command

    run_command(prepare_fineweb_command(folder or Path()))


if __name__ == "__main__":
    main()
