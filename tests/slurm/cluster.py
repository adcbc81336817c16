"""A Slurm of its own on this machine: munged, slurmctld and slurmd of Debian, in a temporary folder, on loopback.

It has one node of a few processors, whether the machine has them or not, and no accounting. Its processes are ended by
the handles that started them.
"""

import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo")
N_CPUS = 3
WAIT_SECONDS = 60.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
KillWait=5
MinJobAge=600
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """Slurm while it runs. Jobs find this environment's commands, as they would in an activated one."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = {**os.environ, **environment, "SLURM_CONF": str(folder / "slurm.conf")}
        self.processes: list[subprocess.Popen[bytes]] = []
        host = socket.gethostname().partition(".")[0]
        settings = {"folder": folder, "host": host, "user": getpass.getuser(), "cpus": N_CPUS}
        controller_port, node_port = free_ports(2)
        settings |= {"controller_port": controller_port, "node_port": node_port}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**settings).lstrip())
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o400)

    def start(self) -> None:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{name}" for option, name in files.items()]
        self._start("munged", "--foreground", "--force", *options)
        wait_until(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._start("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._start("slurmd", "-D", "-f", str(self.folder / "slurm.conf"))
        wait_until(lambda: "idle" in self._said("sinfo", "--noheader", "--format=%t"), "slurmctld and slurmd", self.log)

    def stop(self) -> None:
        """End what was started here, the last one first."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self) -> str:
        """What the controller and the node have said."""
        logs = [path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(logs)

    def submit(self, folder: Path, *arguments: str) -> str:
        """Submit a job from a folder, and return its number."""
        # What the docs ask of a real machine is more than this one may have.
        small = ["--cpus-per-task=1", "--mem-per-cpu=100M"]
        return self.run("sbatch", "--parsable", *small, *arguments, cwd=folder).strip()

    def jobs(self, number: str) -> list[dict[str, str]]:
        """What Slurm says of a job: of each task, if it is an array."""
        told = self.run("scontrol", "--oneliner", "show", "job", number)
        return [dict(re.findall(r"(\w+(?:/\w+)?)=(\S*)", line)) for line in told.splitlines() if line.strip()]

    def states(self, number: str) -> list[str]:
        return sorted(job["JobState"] for job in self.jobs(number))

    def wait(self, number: str) -> list[str]:
        """Wait until a job has ended, and return how: the state of each task."""
        wait_until(lambda: all(state in ENDED for state in self.states(number)), f"job {number}", self.log)
        return self.states(number)

    def run(self, *command: str, cwd: Path | None = None) -> str:
        done = subprocess.run(command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}\n{self.log()}"
        return done.stdout

    def _said(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=30)
        return done.stdout

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            command = [str(path_of(name)), *arguments]
            self.processes.append(
                subprocess.Popen(command, env=self.environment, stdout=out, stderr=out, start_new_session=True)
            )


def path_of(name: str) -> Path | None:
    """Where a program is: Debian has daemons in /usr/sbin, which is not on everybody's path."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    return Path(found) if found else None


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


def wait_until(condition, what: str, log=lambda: "") -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < ends, f"{what}: not within {WAIT_SECONDS} s\n{log()}"
        time.sleep(0.02)
