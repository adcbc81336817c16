"""Any text corpus -> train.bin and val.bin for nanoGPT, by datasets.map.

    python prepare.py --input corpus.txt --num_proc 8

Copy it to where the files should be. It needs `pip install 'tokenmill[datasets]'`.
"""

from pathlib import Path

from tokenmill.scripts.prepare import main

# The guard is for datasets' workers: under spawn and forkserver they import this file.
if __name__ == "__main__":
    main(Path(__file__).parent)
