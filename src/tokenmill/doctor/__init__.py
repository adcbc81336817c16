"""What is wrong: with this machine (`machine.py`), a script (`script.py`, `patches.py`) or a corpus (`corpus.py`)."""
