# A tokenizer loaded for every document: in the mapped function, in one that it calls, in a lambda.
import tiktoken
from datasets import load_dataset
from tokenizers import Tokenizer
from transformers import AutoTokenizer


def tokenizer_for(row):
    return AutoTokenizer.from_pretrained(row["model"])  # fault: tokenizer-per-document


def process(row):
    return {"ids": tokenizer_for(row).encode(row["text"])}


def process_fast(row):
    tok = Tokenizer.from_file("tokenizer.json")  # fault: tokenizer-per-document
    return {"ids": tok.encode(row["text"]).ids}


if __name__ == "__main__":
    ds = load_dataset("text", data_files="a.txt", split="train")
    ds = ds.map(process).map(process_fast, num_proc=4)
    ds = ds.map(lambda row: {"n": len(tiktoken.get_encoding("gpt2").encode(row["text"]))})  # fault: tokenizer-per-document
