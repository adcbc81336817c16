"""One run of tokenmill in a process of its own, told by JSON: `python run.py SPEC`, or many by `python run.py --serve`.

A spec is {"recipe": {...}, "out": "...", "options": {...}} or {"argv": [...]} for the command line; "fault" names an
injection point, "env" is set before, "modules" are folders to import from, "constants" are magnitudes of the code
that a small corpus would never come to. The exit code is that of the command line.

`--serve` has everything imported already, and the modules that are named behind it: for each line of standard input
it forks a child in a session of its own, and answers with how that ended. A run takes a tenth of a second there, and
is as real a process as any other.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path


def carry_out(spec: dict) -> int:
    from tokenmill import cli, errors, faults
    from tokenmill.manifest import Manifest
    from tokenmill.mill import prepare_recipe
    from tokenmill.recipe import RunOptions, recipe_from_mapping

    os.environ.update(spec.get("env", {}))
    if settings := sys.modules.get("huggingface_hub.constants"):  # it was imported with another environment
        importlib.reload(settings)
    sys.path += spec.get("modules", [])
    faults.arm(spec.get("fault", ""))
    for name, value in spec.get("constants", {}).items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    if "argv" in spec:
        sys.argv = ["tokenmill", *spec["argv"]]
        return cli.exit_code()
    try:
        recipe = recipe_from_mapping(spec["recipe"], where="the spec")
        done = prepare_recipe(recipe, spec["out"], RunOptions(**spec.get("options", {})))
    except errors.TokenmillError as error:
        sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return 70
    return 4 if isinstance(done, Manifest) and done.excluded else 0  # or else a share


def serve(modules: list[str]) -> None:
    import tokenmill.cli
    import tokenmill.executors.inline
    import tokenmill.executors.processes
    import tokenmill.mill
    import tokenmill.shuffle  # noqa: F401

    for module in modules:
        importlib.import_module(module)
    for line in sys.stdin:
        spec = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = 70
            try:
                code = carry_out(spec)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(json.dumps(waited_for(pid, spec["limit_seconds"])), flush=True)


def waited_for(pid: int, limit_seconds: float) -> int | None:
    """The exit status as subprocess gives it; None for a process that had to be ended."""
    ends = time.monotonic() + limit_seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2:])
    else:
        sys.exit(carry_out(json.loads(Path(sys.argv[1]).read_text())))
