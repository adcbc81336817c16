"""Numbers and options as people read them."""

from __future__ import annotations


def count(n: float) -> str:
    """14_868_862 -> 14.9M."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(n) >= size * 0.9995:
            return f"{n / size:.3g}{unit}" if n / size < 999.5 else f"{n / size:.0f}{unit}"
    return f"{n:.0f}"


def size(n_bytes: float) -> str:
    """200_001_024 -> 200 MB."""
    text = count(n_bytes).replace("K", "k").replace("B", "G")
    return f"{text} B" if text[-1].isdigit() else f"{text[:-1]} {text[-1]}B"


def duration(seconds: float) -> str:
    """75.2 -> 1:15; below a minute, with a tenth."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def plural(n: int, word: str) -> str:
    """1 document, 2 documents."""
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def eot_place(eot: str) -> str:
    return {"first": "before each document", "last": "behind each document", "none": "left out"}[eot]


def order_of(shuffle: str) -> str:
    return "as in the corpus" if shuffle == "none" else f"shuffled ({shuffle})"
