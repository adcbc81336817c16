# What the doctor recommends is what the doctor finds healthy.
import numpy as np
import tokenmill


def main():
    enc = tokenmill.Tokenizer("gpt2")

    def inner(row):
        return {"ids": enc.encode(row["text"])}

    return inner


def tokenize(text):
    return np.array(tokenmill.Tokenizer("gpt2").encode(text), dtype=np.uint16)


if __name__ == "__main__":
    for tokens in tokenmill.imap(tokenize, ["a", "b"], processes=2):
        print(len(tokens), main()({"text": "a"}))

# prepare starts its workers by itself, and needs no guard
tokenmill.prepare("sample", out="out", workers=2)
