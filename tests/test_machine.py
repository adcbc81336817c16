"""Facts about the machine, read from small trees of the files that Linux has."""

import pytest

from tokenmill import machine
from tokenmill.recipe import RunOptions

NO_LIMIT = "9223372036854771712\n"


def tree(root, files):
    """Write files below a root: a machine as far as our code can see."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = {
    "proc/self/cgroup": "0::/jobs/a\n",
    "sys/fs/cgroup/memory.stat": "anon 1\n",
    "sys/fs/cgroup/jobs/memory.max": "4000000000\n",
    "sys/fs/cgroup/jobs/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/jobs/memory.events": "low 0\nhigh 0\nmax 7\noom 9\noom_kill 9\n",
    "sys/fs/cgroup/jobs/a/memory.max": "max\n",
    "sys/fs/cgroup/jobs/a/cpu.max": "max 100000\n",
    "sys/fs/cgroup/jobs/a/memory.events": "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n",
}
V1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/docker/0a\n4:memory:/docker/0a\n1:name=systemd:/docker/0a\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT,
    "sys/fs/cgroup/memory/docker/0a/memory.limit_in_bytes": "2000000000\n",
    "sys/fs/cgroup/memory/docker/0a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
    "sys/fs/cgroup/cpu,cpuacct/docker/0a/cpu.cfs_quota_us": "250000\n",
    "sys/fs/cgroup/cpu,cpuacct/docker/0a/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
}


def test_version_2_takes_the_smallest_limit_on_the_way_up_and_its_own_kills(tmp_path):
    root = tree(tmp_path, V2)
    assert machine.memory_limit(root) == 4_000_000_000
    assert machine.cpu_quota(root) == 1.5
    assert machine.oom_kills(root) == 2


def test_version_1_is_read_too(tmp_path):
    root = tree(tmp_path, V1)
    assert machine.memory_limit(root) == 2_000_000_000
    assert machine.cpu_quota(root) == 2.5
    assert machine.oom_kills(root) == 5


def test_version_1_beside_version_2_is_read_where_its_files_are(tmp_path):
    root = tree(tmp_path, V1 | {"proc/self/cgroup": V1["proc/self/cgroup"] + "0::/\n"})
    tree(root, {"sys/fs/cgroup/unified/memory.max": "1000000000\n"})
    assert machine.memory_limit(root) == 1_000_000_000
    assert machine.oom_kills(root) == 5


def test_a_container_that_sees_the_path_of_the_host_reads_the_root_of_the_hierarchy(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/kubepods/pod1/0a\n0::/../../elsewhere\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "3000000000\n",
        "sys/fs/cgroup/memory/memory.stat": "cache 0\nhierarchical_memory_limit 2500000000\n",
        "sys/fs/cgroup/memory/memory.oom_control": "oom_kill 1\n",
        "elsewhere/memory.max": "1\n",
    }
    root = tree(tmp_path, files)
    assert machine.memory_limit(root) == 2_500_000_000
    assert machine.oom_kills(root) == 1


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/a\n",
            "sys/fs/cgroup/a/memory.max": "max\n",
            "sys/fs/cgroup/a/cpu.max": "max 100000\n",
        },
        {
            "proc/self/cgroup": "4:memory:/\n5:cpu:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT,
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        {"proc/self/cgroup": "garbage\n\n0:\n", "sys/fs/cgroup/memory.max": "", "sys/fs/cgroup/cpu.max": "\n"},
    ],
)
def test_no_limit_is_none(files, tmp_path):
    root = tree(tmp_path, files)
    assert machine.memory_limit(root) is None
    assert machine.cpu_quota(root) is None
    assert machine.cpu_count(root) == machine.usable_cores()


def test_what_a_system_without_proc_does_not_tell_is_none(tmp_path):
    for fact in (
        machine.cpu_quota,
        machine.physical_memory,
        machine.available_memory,
        machine.memory_limit,
        machine.oom_kills,
        machine.system_oom_kills,
        machine.shared_memory,
    ):
        assert fact(tmp_path) is None
    assert machine.cpu_count(tmp_path) == machine.usable_cores() >= 1


def test_memory_and_kills_of_the_whole_machine(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n",
            "proc/vmstat": "nr_free_pages 1\noom_kill 3\n",
            "dev/shm/x": "",
        },
    )
    assert machine.physical_memory(root) == 16_384_000_000
    assert machine.available_memory(root) == 8_192_000_000
    assert machine.system_oom_kills(root) == 3
    size, free = machine.shared_memory(root)
    assert size >= free > 0


def test_workers_by_default_are_the_cores_within_the_quota_rounded_up(tmp_path):
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}
    assert machine.cpu_count(tree(tmp_path, files)) == 1
    files["sys/fs/cgroup/cpu.max"] = "110000 100000\n"
    assert machine.cpu_count(tree(tmp_path, files)) == min(2, machine.usable_cores())
    assert RunOptions().n_workers == machine.cpu_count()
    assert RunOptions(workers=7).n_workers == 7
