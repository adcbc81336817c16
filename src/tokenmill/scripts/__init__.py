"""The scripts that people know, over tokenmill: what `data/fineweb/*.py` of the repository run.

prepare.py            datasets.map over any corpus     nanoGPT's train.bin and val.bin
prepare_fineweb.py    straight from FineWeb's shards   nanoGPT's or llm.c's files
"""
