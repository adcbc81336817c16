"""datatrove's tokenization pipeline: ParquetReader and DocumentTokenizer, a task for each file, in order."""

from pathlib import Path

import numpy as np
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.tokens import DocumentTokenizer

from benchmarks.contenders.protocol import DocumentIds, Task, divided, serve


def run(task: Task) -> None:
    LocalPipelineExecutor(
        pipeline=[
            ParquetReader(str(task.source)),
            DocumentTokenizer(
                output_folder=str(task.out / "tokens"),
                tokenizer_name_or_path=task.tokenizer_json,
                eos_token="<|endoftext|>",  # noqa: S106 - a token, not a password
                shuffle_documents=False,
            ),
        ],
        tasks=len(task.files),
        workers=task.processes,
        logging_dir=str(task.out / "logs"),
    ).run()


def read(out: Path) -> DocumentIds:
    return divided(np.concatenate([np.fromfile(path, np.uint16) for path in sorted((out / "tokens").glob("*.ds"))]))


if __name__ == "__main__":
    serve(run, read)
