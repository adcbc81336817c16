"""FineWeb's shards, on the Hub or on disk -> the files of nanoGPT or llm.c.

    python prepare_fineweb.py --type edu --version 10B --num_proc 8
    python prepare_fineweb.py --version 10B --input fineweb-edu --num_proc 8

Copy it to where the files should be. It needs `pip install tokenmill`.
"""

from pathlib import Path

from tokenmill.scripts.prepare_fineweb import main

if __name__ == "__main__":
    main(Path(__file__).parent)
