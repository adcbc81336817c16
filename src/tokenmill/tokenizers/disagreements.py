"""Where the fast engine and the reference are known to differ: documents with these code points go to the reference.

gigatoken 0.10 knows Unicode 17, tiktoken 0.14 knows Unicode 16. A letter (for o200k also a mark) that is new in 17
splits differently before `'s`, `'ll` and their like. The tables were made by encoding every Unicode scalar value
alone and in such contexts with both engines; a test makes a share of them again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.batches import Documents

# Inclusive ranges of code points.
_LETTERS = [
    (0x88F, 0x88F),
    (0xC5C, 0xC5C),
    (0xCDC, 0xCDC),
    (0xA7CE, 0xA7CF),
    (0xA7D2, 0xA7D2),
    (0xA7D4, 0xA7D4),
    (0xA7F1, 0xA7F1),
    (0x10940, 0x10959),
    (0x10EC5, 0x10EC7),
    (0x11DB0, 0x11DDB),
    (0x11DE0, 0x11DE9),
    (0x16EA0, 0x16EB8),
    (0x16EBB, 0x16ED3),
    (0x16FF2, 0x16FF6),
    (0x187F8, 0x187FF),
    (0x18D09, 0x18D1E),
    (0x18D80, 0x18DF2),
    (0x1E6C0, 0x1E6DE),
    (0x1E6E0, 0x1E6E2),
    (0x1E6E4, 0x1E6E5),
    (0x1E6E7, 0x1E6ED),
    (0x1E6F0, 0x1E6F4),
    (0x1E6FE, 0x1E6FF),
    (0x2B73A, 0x2B73F),
    (0x2CEA2, 0x2CEAD),
    (0x323B0, 0x33479),
]
_MARKS = [
    (0x1ACF, 0x1ADD),
    (0x1AE0, 0x1AEB),
    (0x10EFA, 0x10EFB),
    (0x11B60, 0x11B67),
    (0x1E6E3, 0x1E6E3),
    (0x1E6E6, 0x1E6E6),
    (0x1E6EE, 0x1E6EF),
    (0x1E6F5, 0x1E6F5),
]

ODD_CODE_POINTS: dict[str, list[tuple[int, int]]] = {
    "gpt2": _LETTERS,
    "gpt4": _LETTERS,
    "o200k": sorted(_LETTERS + _MARKS),
    # of tokenizer.json files, by the names in huggingface.py
    "llama3": _LETTERS,
    "qwen2": _LETTERS,
}
# NFC: the tables of `tokenizers` are about as old as Unicode 9. Marks that came later stand elsewhere in its canonical
# order, and pairs that compose since then do not.
# fmt: off
_NFC = [
    (0x7FD, 0x7FD), (0x897, 0x89F), (0x8CA, 0x8D3), (0x9FE, 0x9FE), (0xC3C, 0xC3C), (0xD3B, 0xD3C), (0xEBA, 0xEBA),
    (0x1715, 0x1715), (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA), (0xA82C, 0xA82C), (0x105D2, 0x105D2), (0x105DA, 0x105DA),
    (0x10D24, 0x10D27), (0x10D69, 0x10D6D), (0x10EAB, 0x10EAC), (0x10EFD, 0x10EFF), (0x10F46, 0x10F50),
    (0x10F82, 0x10F85), (0x11070, 0x11070), (0x1133B, 0x1133B), (0x11382, 0x11382), (0x11384, 0x11384),
    (0x1138B, 0x1138B), (0x11390, 0x11390), (0x113B8, 0x113B8), (0x113BB, 0x113BB), (0x113C2, 0x113C2),
    (0x113C5, 0x113C5), (0x113C7, 0x113C9), (0x113CE, 0x113D0), (0x1145E, 0x1145E), (0x11839, 0x1183A),
    (0x11930, 0x11930), (0x11935, 0x11935), (0x1193D, 0x1193E), (0x11943, 0x11943), (0x119E0, 0x119E0),
    (0x11A34, 0x11A34), (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D42), (0x11D44, 0x11D45),
    (0x11D97, 0x11D97), (0x11F41, 0x11F42), (0x1611E, 0x16129), (0x1612F, 0x1612F), (0x16D63, 0x16D63),
    (0x16D67, 0x16D69), (0x16FF0, 0x16FF1), (0x1E08F, 0x1E08F), (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE),
    (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF), (0x1E5EE, 0x1E5EF),
]
# fmt: on
ODD_UNDER_NFC = sorted(_LETTERS + _MARKS + _NFC)


FEW = 100


class OddCodePoints:
    """Finds the documents that hold one of some code points."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self._firsts = np.array([first for first, _ in ranges])
        self._lasts = np.array([last for _, last in ranges])
        self._leads = sorted({chr(point).encode()[0] for pair in ranges for point in pair})

    def documents(self, documents: Documents) -> npt.NDArray[np.int64]:
        """Return the indices of the documents that hold one of them.

        One search over the whole buffer for each first byte they can begin with (three or four, above 10 GB/s each);
        English text hardly has them, and where they are many numpy finds them all at once.
        """
        offsets = documents.text_offsets
        data = documents.text_bytes[offsets[0] : offsets[-1]]
        text = data.tobytes()
        hits = [np.empty(0, np.int64)]
        for lead in self._leads:
            places = places_of_byte(lead, text, data)
            if len(places):
                points = decoded_points(data, places, lead)
                nearest = np.searchsorted(self._firsts, points, side="right") - 1
                hits.append(places[(nearest >= 0) & (points <= self._lasts[nearest])])
        return np.unique(np.searchsorted(offsets - offsets[0], np.concatenate(hits), side="right") - 1)


def places_of_byte(byte: int, text: bytes, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Where a byte stands: one search after another while it is rare, and one pass over all of it where it is not."""
    places: list[int] = []
    place = text.find(byte)
    while place >= 0:
        if len(places) == FEW:
            return np.flatnonzero(data == byte)
        places.append(place)
        place = text.find(byte, place + 1)
    return np.array(places, dtype=np.int64)


def decoded_points(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], lead: int) -> npt.NDArray[np.int64]:
    """Decode the code points that begin at `places`, all with the first byte `lead` (valid UTF-8 is given)."""
    n_following = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
    points = np.full(len(places), lead & (0x3F >> n_following), dtype=np.int64)
    for i in range(1, n_following + 1):
        points = points << 6 | (data[places + i] & 0x3F)
    return points
