"""The doctor tells what in a script dies, and its patches apply and run: real patch, real scripts, golden bytes."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GOLDEN

from tokenmill.doctor.patches import script_patch
from tokenmill.doctor.script import script_faults
from tokenmill.errors import RecipeError, SourceError
from tokenmill.sources.catalog import CATALOG

SCRIPTS = Path(__file__).parent / "doctor_scripts"
# script -> the golden set, where its shards are, its arguments
SHAPES = {
    "nanogpt_shaped.py": ("nanogpt", ".", []),
    "llmc_shaped.py": ("llmc", "shards", ["-s", "100000"]),
    "npy_shaped.py": ("npy", "npy_shards", []),
}
SECONDS = 100  # of a child process, none of which may hang


def names(pattern):
    return sorted(path.name for path in SCRIPTS.glob(pattern))


def found(source):
    return {(fault.name, fault.line) for fault in script_faults(source, "script.py")}


def marked(source):
    """What the comments in a script say is to be found, and where."""
    lines = enumerate(source.splitlines(), 1)
    return {(name, n) for n, line in lines if "# fault: " in line for name in line.split("# fault: ")[1].split()}


def run(command, folder, **environment):
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def apply_patch(diff, folder):
    (folder / "way.diff").write_bytes(diff if isinstance(diff, bytes) else diff.encode())
    tool = ["patch", "-p1", "-i", "way.diff"] if shutil.which("patch") else ["git", "apply", "-p1", "way.diff"]
    run(tool, folder)


def patched(source, way, folder, name="script.py"):
    """Apply the patch with the real tool, and return the script as it then reads."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(source.encode())
    apply_patch(script_patch(source, name, way), folder)
    return (folder / name).read_bytes().decode()


def run_patched(name, way, folder, start_method=None):
    """Patch a copy of a script, run it on the sample, and return the digests of its shards."""
    shard_format, shards, arguments = SHAPES[name]
    source = (SCRIPTS / name).read_text()
    after = patched(source, way, folder, name)
    assert found(after) == set()
    shutil.copy(CATALOG["sample"], folder / "corpus.parquet")
    environment = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    if start_method is not None:
        site = folder / "site"
        site.mkdir()
        lines = [
            f"import {module}; {module}.set_start_method('{start_method}')"
            for module in ("multiprocessing", "multiprocess")
        ]
        (site / "sitecustomize.py").write_text("\n".join(lines))
        environment["PYTHONPATH"] = str(site)
    run([sys.executable, name, *arguments], folder, **environment)
    golden = GOLDEN["sets"]["sample"][shard_format]["files"]
    digests = {file: hashlib.sha256((folder / shards / file).read_bytes()).hexdigest() for file in golden}
    assert digests == golden


@pytest.mark.parametrize("name", [*names("fault_*.py"), *SHAPES])
def test_every_fault_is_found_at_its_line_and_no_other(name):
    source = (SCRIPTS / name).read_text()
    assert marked(source)
    assert found(source) == marked(source)


def test_each_of_the_seven_faults_has_a_script_that_has_it():
    assert {fault for name in names("fault_*.py") for fault, _ in marked((SCRIPTS / name).read_text())} == {
        "captured-encoder",
        "unpicklable-engine",
        "no-main-guard",
        "num-proc-one",
        "pool-hangs",
        "tokenizer-per-document",
        "tokens-to-list",
    }


@pytest.mark.parametrize("name", names("clean_*.py"))
def test_a_clean_script_is_left_in_peace(name):
    assert script_faults((SCRIPTS / name).read_text(), name) == []


@pytest.mark.parametrize("source", ["def f(:\n", "a = 1\n b = 2\n", "\0", "(" * 1000])
def test_a_file_that_is_no_python_is_refused_with_its_name(source):
    with pytest.raises(SourceError, match=r"`notes.md` is no Python"):
        script_faults(source, "notes.md")


def test_a_fault_says_what_to_write_in_the_names_of_the_script():
    faults = {fault.name: fault for fault in script_faults((SCRIPTS / "llmc_shaped.py").read_text(), "prepare.py")}
    assert faults["pool-hangs"].remedy == "tokenmill.imap(tokenize, docs, processes=nprocs, chunksize=16)"
    assert faults["tokenizer-per-document"].remedy == 'enc = tokenmill.Tokenizer("gpt2")  # above the function'
    captured = script_faults((SCRIPTS / "nanogpt_shaped.py").read_text(), "prepare.py")[0]
    assert captured.remedy == 'enc = tokenmill.Tokenizer("gpt2")'
    assert "tiktoken < 0.6" in captured.why
    assert re.search(r"Installed here: tiktoken \d", captured.why)


@pytest.mark.parametrize("way", [1, 2, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_a_patched_script_runs_and_gives_the_golden_bytes(name, way, tmp_path):
    run_patched(name, way, tmp_path)


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
@pytest.mark.parametrize("name", SHAPES)
def test_way_2_gives_the_golden_bytes_where_processes_are_not_forked(name, start_method, tmp_path):
    run_patched(name, 2, tmp_path, start_method)


@pytest.mark.parametrize("way", [1, 2])
@pytest.mark.parametrize("name", [*names("fault_*.py"), "clean_guarded.py"])
def test_a_patch_leaves_no_fault_but_those_of_its_way(name, way, tmp_path):
    source = (SCRIPTS / name).read_text()
    if (name, way) == ("fault_engine.py", 1):
        with pytest.raises(RecipeError, match=r"line 20: `executor.submit` has no counterpart"):
            script_patch(source, name, way)
        return
    if (name, way) == ("fault_num_proc.py", 2):  # a worker is what way 2 is about
        with pytest.raises(RecipeError, match="needs to change for way 2"):
            script_patch(source, name, way)
        return
    assert found(patched(source, way, tmp_path, name)) == set()


def test_way_3_keeps_expressions_of_arguments_and_constants(tmp_path):
    after = patched((SCRIPTS / "llmc_shaped.py").read_text(), 3, tmp_path)
    assert "shard_tokens=args.shard_size," in after
    assert "name=args.name," in after
    assert "out=out_dir," in after
    assert "tiktoken" not in after
    assert 'tokenmill.prepare(\n        ["corpus.parquet"],' in patched(
        (SCRIPTS / "clean_guarded.py").read_text(), 3, tmp_path / "guarded"
    )


HUB = """
import numpy as np, tiktoken
from datasets import load_dataset
enc = tiktoken.get_encoding("gpt2")
fw = load_dataset("HuggingFaceFW/fineweb-edu", name="sample-10BT", split="train")
for i, row in enumerate(fw):
    split = "val" if i == 0 else "train"
    np.save(f"edu_{split}_{i:06d}", np.array([enc.eot_token, *enc.encode_ordinary(row["text"])]))
shard_size = 10
"""


def test_data_of_the_hub_is_referred_to_the_script_for_it():
    with pytest.raises(RecipeError, match="`HuggingFaceFW/fineweb-edu` of the Hugging Face Hub") as error:
        script_patch(HUB, "fineweb.py", 3)
    assert error.value.hint == "python -m tokenmill.scripts.prepare_fineweb --version 10B --input DIR"


LOCAL = HUB.replace(
    'load_dataset("HuggingFaceFW/fineweb-edu", name="sample-10BT", split="train")',
    'load_dataset("parquet", data_files="a.parquet", split="train")',
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("np.save(", "print("), "which shards it writes cannot be told"),
        (('split="train"', 'split="train[:1%]"'), "only `train[:1%]` of the data is taken"),
        (('row["text"]', 'row["text"].strip()'), "line 8: the text is changed before it is encoded"),
        (("enumerate(fw)", "enumerate(fw.filter(len))"), "`.filter(...)` chooses, orders or renames"),
        (("    np.save", "    if i > 9: break\n    np.save"), "line 8: documents may be left out here"),
        (('"val" if i == 0 else "train"', '"train"'), "which shards are train and which are val"),
        (("shard_size = 10", ""), "how many tokens make a shard cannot be told"),
        (('enc = tiktoken.get_encoding("gpt2")', "enc = mine()"), "no tokenizer is loaded"),
        (("load_dataset(", "my_own("), "the files it reads cannot be told"),
        (('"parquet"', '"text"'), "`datasets` makes empty documents of blank lines"),
    ],
)
def test_way_3_refuses_what_cannot_be_told(change, message):
    source = LOCAL.replace(*change)
    assert source != LOCAL
    with pytest.raises(RecipeError, match=re.escape(message)) as error:
        script_patch(source, "fineweb.py", 3)
    assert error.value.hint is not None
    assert error.value.hint.startswith("tokenmill prepare FILES -o OUT")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('print(enc.encode("a", allowed_special="all"))', "special tokens spelled in the text become special ids"),
        ("print(enc._mergeable_ranks)", "tokenmill.Tokenizer has no `_mergeable_ranks`"),
        ('print(tiktoken.get_encoding("o1_base"))', "which of tokenmill's tokenizers"),
    ],
)
def test_what_a_tokenizer_of_ours_would_not_answer_alike_is_refused(line, message):
    source = f'import tiktoken\nenc = tiktoken.get_encoding("gpt2")\n{line}\n'
    with pytest.raises(RecipeError, match="line 3: ") as error:
        script_patch(source, "a.py", 2)
    assert message in error.value.message


def test_there_are_three_ways():
    with pytest.raises(RecipeError, match="there is no way 4"):
        script_patch("a = 1\n", "a.py", 4)


AWKWARD = '''#!/usr/bin/env python
# no docstring, a string of several lines at the level that is indented
import os; import sys
from multiprocessing import Pool

def work(n):
    return n * FACTOR + len(TABLE)

TABLE = {}
TABLE["a"] = 1  # workers need this too
FACTOR = 2
note = f"""one
  two {FACTOR}
three"""
with Pool(
    2,
) as pool:  # two of them
# a comment at no level
    total = sum(pool.imap_unordered(work, range(10)))
    last = """x
y"""
    pool.close()
print(total, repr(note), repr(last))'''


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("way", [1, 2])
def test_an_awkward_script_does_after_the_patch_what_it_did_before(way, ending, tmp_path):
    source = AWKWARD.replace("\n", ending)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import multiprocessing as m; m.set_start_method('spawn')")
    name = "my script.py"
    (tmp_path / name).write_bytes(source.encode())
    before = run([sys.executable, name], tmp_path)
    after = patched(source, way, tmp_path, name)
    assert found(after) == set()
    assert "# two of them" in source
    assert after.startswith("#!/usr/bin/env python")
    assert run([sys.executable, name], tmp_path, PYTHONPATH=str(tmp_path / "site")) == before


def test_a_patch_names_the_file_from_where_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = 'import tiktoken\nenc = tiktoken.get_encoding("gpt2")\n'
    names = ["data/prepare.py", str(tmp_path / "data/prepare.py"), "../prepare.py", "/elsewhere/prepare.py"]
    heads = [script_patch(source, name, 2).splitlines()[0] for name in names]
    assert heads == ["--- a/data/prepare.py"] * 2 + ["--- a/prepare.py"] * 2


EOT_AT_A_SIDE = """
import numpy as np, tiktoken
from datasets import load_dataset
enc = tiktoken.get_encoding("gpt2")
shard_size = 10
for i, row in enumerate(load_dataset("parquet", data_files="a.parquet", split="train")):
    tokens = []
    {}
    split = "val" if i == 0 else "train"
    np.save(f"edu_{{split}}_{{i:06d}}", np.array(tokens))
"""


@pytest.mark.parametrize(
    ("lines", "eot"),
    [
        ('tokens.append(enc.eot_token); tokens.extend(enc.encode_ordinary(row["text"]))', None),  # npy has it first
        ('tokens = [enc.eot_token] + enc.encode_ordinary(row["text"])', None),
        ('tokens = enc.encode_ordinary(row["text"]) + [enc.eot_token]', "last"),
        ('tokens = enc.encode_ordinary(row["text"]); tokens.append(50256)', "last"),
        ('tokens = enc.encode_ordinary(row["text"])', "none"),
    ],
)
def test_way_3_puts_end_of_text_where_the_script_does(lines, eot):
    diff = script_patch(EOT_AT_A_SIDE.format(lines), "a.py", 3)
    assert re.findall(r'eot="(\w+)"', diff) == ([eot] if eot else [])


POOLED = """
from multiprocessing import Pool
def work(n):
    return n + len("{letter}")
with Pool(2) as pool:
    print(pool.map(work, [1, 2]), "{letter}")
"""


@pytest.mark.parametrize(
    ("first", "encoding", "mark"),
    [("# -*- coding: latin-1 -*-", "latin-1", b""), ("# plain", "utf-8", b"\xef\xbb\xbf"), ("#!python", "utf-8", b"")],
)
def test_a_patch_applies_in_the_bytes_of_the_script(first, encoding, mark, tmp_path):
    source = mark + (first + POOLED.format(letter="é")).encode(encoding)
    (tmp_path / "a.py").write_bytes(source)
    before = run([sys.executable, "a.py"], tmp_path)
    command = [sys.executable, "-m", "tokenmill", "doctor", "a.py", "--patch", "2"]
    diff = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
    apply_patch(diff, tmp_path)
    assert (tmp_path / "a.py").read_bytes().startswith(mark + first.encode())
    assert b"imap" in (tmp_path / "a.py").read_bytes()
    assert run([sys.executable, "a.py"], tmp_path) == before


def test_what_means_something_in_the_first_lines_stays_there_under_a_new_guard():
    source = "#!/usr/bin/env python\n# coding: utf-8\n# a comment\nprint(1)\n" + POOLED.format(letter="a")
    added = [line[1:] for line in script_patch(source, "a.py", 2).splitlines() if line.startswith("+")][1:]
    assert added[:3] == ['if __name__ == "__main__":', "    # a comment", "    print(1)"]


INITIALIZED = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pool
def begin(*given):
    global factor
    factor = sum(given)
def work(n):
    return n * factor
if __name__ == "__main__":
    with {pool} as pool{more}:
        print(list(pool.map(work, [1, 2])))
"""


@pytest.mark.parametrize("more", ["", ', open("x", "w") as file'])
@pytest.mark.parametrize(
    "pool",
    [
        "Pool(2, begin, (3, 4))",
        "Pool(2, initializer=begin, initargs=[3, 4])",
        "ProcessPoolExecutor(2, None, begin, (3, 4))",
        "ProcessPoolExecutor(2, initializer=begin)",
    ],
)
def test_what_workers_begin_with_is_done_in_the_main_process(pool, more, tmp_path):
    source = INITIALIZED.format(pool=pool, more=more)
    (tmp_path / "script.py").write_text(source)
    before = run([sys.executable, "script.py"], tmp_path)
    patched(source, 1, tmp_path)
    assert run([sys.executable, "script.py"], tmp_path) == before


def test_names_out_of_a_star_import_are_known():
    source = "from multiprocessing import *\nif __name__ == '__main__':\n    with Pool(2) as p: p.map(len, ['a'])\n"
    assert {fault.name for fault in script_faults(source, "a.py")} == {"pool-hangs"}


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "a." * 3000 + "b\n",
        "if a: pass\n" + "elif a: pass\n" * 3000,
        "import os\nv0 = os\n" + "".join(f"v{i + 1} = v{i}\n" for i in range(3000)) + "v3000.a()\n",
    ],
)
def test_a_script_that_is_nested_too_deeply_is_refused_in_words(source):
    for read in (lambda: script_faults(source, "a.py"), lambda: script_patch(source, "a.py", 2)):
        with pytest.raises(SourceError, match=r"`a\.py` is nested too deeply"):
            read()


def test_an_encoding_that_is_none_for_text_is_told(tmp_path):
    (tmp_path / "a.py").write_bytes(b"# coding: hex\n")
    command = [sys.executable, "-m", "tokenmill", "doctor", "a.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: `a.py` is no Python: ")


CLASS = """import tiktoken
from multiprocessing import Pool
from datasets import Dataset

class Preparation:
    def __init__(self, n_processes):
        self.enc = tiktoken.get_encoding("r50k_base")
        self.pool = Pool(n_processes)

    def tokenize(self, row):
        return {"ids": self.enc.encode_ordinary(row["text"])}

    def run(self):
        rows = [{"text": "hello"}, {"text": "world"}]
        for ids in self.pool.imap(self.spare, rows):
            print(ids)
        self.pool.close()
        print(Dataset.from_list(rows).map(self.tokenize, num_proc=2)["ids"][:])

    @staticmethod
    def spare(row):
        return len(row["text"])

Preparation(2).run()
"""


def test_a_class_is_read_as_functions_are():
    assert {(fault.name, fault.line) for fault in script_faults(CLASS, "a.py")} == {
        ("captured-encoder", 7),
        ("pool-hangs", 8),
        ("no-main-guard", 24),
    }
    guarded = CLASS.replace("Preparation(2)", 'if __name__ == "__main__":\n    Preparation(2)')
    assert "no-main-guard" not in {fault.name for fault in script_faults(guarded, "a.py")}


@pytest.mark.parametrize("way", [1, 2])
def test_a_patched_class_runs(way, tmp_path):
    after = patched(CLASS, way, tmp_path)
    assert found(after) == set()
    assert run([sys.executable, "script.py"], tmp_path, HF_HOME=str(tmp_path)) == "5\n5\n[[31373], [6894]]\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("self.enc.encode_ordinary", "self.enc.encode_with_unstable"), "has no `encode_with_unstable`"),
        (("self.pool.close()", "print(self.pool)"), "what is done with the pool here cannot be told"),
    ],
)
def test_what_a_class_does_with_what_it_holds_is_refused_where_it_cannot_be_told(change, message):
    with pytest.raises(RecipeError, match=re.escape(message)):
        script_patch(CLASS.replace(*change), "a.py", 2)


def test_a_pool_whose_size_is_not_known_where_it_is_used_is_refused():
    with pytest.raises(RecipeError, match="`n_processes` of the pool is not known where it is used"):
        script_patch(CLASS.replace("Preparation(2)", "Preparation(len(__file__))"), "a.py", 2)
