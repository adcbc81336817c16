# Processes that are started whenever the module is imported, by way of a function.
import concurrent.futures as futures


def count(text):
    return len(text.split())


def run(texts):
    with futures.ProcessPoolExecutor(max_workers=2) as executor:
        return sum(executor.map(count, texts))


def main():
    print(run(["a b", "c"]))


if True:
    main()  # fault: no-main-guard
