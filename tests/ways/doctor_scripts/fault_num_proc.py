# One worker, thought to be the main process: written out, by a constant, and by a default.
from datasets import load_dataset

WORKERS = 1
num_proc = WORKERS


def lower(row):
    return {"text": row["text"].lower()}


def mapped(ds, processes=1):
    return ds.map(lower, num_proc=processes)  # fault: num-proc-one


if __name__ == "__main__":
    ds = load_dataset("text", data_files="a.txt", split="train", num_proc=1)
    ds = ds.map(lower, num_proc=1)  # fault: num-proc-one
    ds = ds.filter(
        lambda row: len(row["text"]) > 3,
        num_proc=num_proc,  # fault: num-proc-one
    )
    ds = mapped(ds)
    ds = ds.map(lower, num_proc=8)
