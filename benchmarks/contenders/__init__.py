"""One script for each contender, written for this benchmark as the contender's own documentation says to use it.

Each runs as `python -m benchmarks.contenders.NAME SOURCE OUT`, in an environment of its own, and with `--ids FILE` it
reads its output back instead, with the contender's own reader where there is one (protocol.py).
"""
