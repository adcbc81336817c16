# Token arrays made lists of Python integers on their way to a file.
import json

import numpy as np
import tiktoken

enc = tiktoken.get_encoding("gpt2")


def save(path, values):
    with open(path, "wb") as file:
        file.write(np.asarray(values, dtype=np.uint16).tobytes())


if __name__ == "__main__":
    text = open("a.txt").read()
    encoded = np.array(enc.encode_ordinary(text))
    buffer = np.empty((1000,), dtype=np.uint16)
    all_tokens_np = np.concatenate([encoded, encoded])
    save("a.bin", encoded.tolist())  # fault: tokens-to-list
    save("b.bin", buffer[:10].tolist())  # fault: tokens-to-list
    save(
        "c.bin",
        all_tokens_np[:100].astype(np.uint32).tolist(),  # fault: tokens-to-list
    )
    doc_lengths = np.array([1, 2, 3])
    json.dump({"lengths": doc_lengths.tolist(), "token_counts": np.bincount(encoded).tolist()}, open("m.json", "w"))
