"""Facts of a node: cgroups of both versions in fake trees, and the real files of this machine."""

import errno
import os
import resource
from pathlib import Path

import pytest

from echelon.agent.deaths import NodeWatch, disk_facts, machine_bytes, machine_kills, memory_limit
from echelon.system.cgroups import find_cgroup, read_number, smallest_limit

PID = 77
GIB = 1 << 30
UNLIMITED = "9223372036854771712"
V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 23 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
)
STEP = "slurm/uid_1000/job_7/step_0"


class Tree:
    """A fake root folder."""

    def __init__(self, root):
        self.root = root

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def process(self, mounts, cgroup):
        self.write(f"proc/{PID}/mountinfo", f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{mounts}")
        self.write(f"proc/{PID}/cgroup", cgroup)

    def memory(self, folder, **files):
        for name, text in files.items():
            self.write(f"sys/fs/cgroup/{folder}/memory.{name}", text)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def v2(tree):
    tree.process(V2, f"0::/{STEP}/task_0")
    tree.memory(f"{STEP}/task_0", max="max", peak="500", current="400", events="low 0\noom 0\noom_kill 3")
    tree.memory(STEP, max=str(16 * GIB), peak=str(2 * GIB), events="oom_kill 9")
    tree.memory("slurm/uid_1000/job_7", max=str(32 * GIB), peak="1")
    tree.memory("slurm", max="max")
    return tree


@pytest.fixture
def v1(tree):
    tree.process(V1, f"9:pids:/{STEP}\n4:memory:/{STEP}\n0::/")
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 3"
    own = f"memory/{STEP}"
    tree.memory(own, limit_in_bytes=str(16 * GIB), max_usage_in_bytes=str(GIB), usage_in_bytes="5", oom_control=control)
    tree.memory("memory", limit_in_bytes=UNLIMITED, max_usage_in_bytes=UNLIMITED)
    return tree


def test_limit_of_the_nearest_limited_ancestor(v2):
    facts = NodeWatch(PID, v2.root).memory()
    assert (facts.limit, facts.peak, facts.kills_before) == (16 * GIB, 2 * GIB, 3)


def test_limit_of_version_1(v1):
    facts = NodeWatch(PID, v1.root).memory()
    assert (facts.limit, facts.peak, facts.kills_before) == (16 * GIB, GIB, 3)


def test_smallest_limit_counts_if_an_ancestor_has_less(v2):
    v2.memory("slurm/uid_1000/job_7", max=str(8 * GIB), peak=str(7 * GIB))
    facts = NodeWatch(PID, v2.root).memory()
    assert (facts.limit, facts.peak) == (8 * GIB, 7 * GIB)


def test_version_1_names_a_limit_outside_the_container(v1):
    v1.memory(f"memory/{STEP}", limit_in_bytes=UNLIMITED, stat=f"cache 1\nhierarchical_memory_limit {4 * GIB}")
    facts = NodeWatch(PID, v1.root).memory()
    assert (facts.limit, facts.peak) == (4 * GIB, GIB)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_kills_before_and_after_are_compared(version, request):
    tree = request.getfixturevalue(version)
    watch = NodeWatch(PID, tree.root)
    assert watch.memory().kills == 0
    if version == "v1":
        tree.memory(f"memory/{STEP}", oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4")
    else:
        tree.memory(f"{STEP}/task_0", events="oom_kill 4")
    assert watch.memory().kills == 1


def test_counts_survive_the_death_of_the_process(v2):
    watch = NodeWatch(PID, v2.root)
    (v2.root / f"proc/{PID}/cgroup").unlink()
    v2.memory(f"{STEP}/task_0", events="oom_kill 5")
    assert watch.memory(rank_peak=7).kills == 2
    assert watch.memory(rank_peak=7).rank_peak == 7


def test_peak_of_an_old_kernel_is_the_highest_measured_use(v2):
    for folder in (STEP, f"{STEP}/task_0"):
        (v2.root / f"sys/fs/cgroup/{folder}/memory.peak").unlink()
    watch = NodeWatch(PID, v2.root)
    for used in (900, 300):
        v2.memory(f"{STEP}/task_0", current=str(used))
        watch.look()
    assert watch.memory().peak == 900


def test_no_limit_is_none_and_the_own_peak_counts(tree):
    tree.process(V2, "0::/user.slice")
    tree.memory("user.slice", max="max", peak="500", events="oom_kill 0")
    facts = NodeWatch(PID, tree.root).memory()
    assert (facts.limit, facts.peak, facts.kills) == (None, 500, 0)


def test_container_with_its_own_mount_of_the_cgroup(tree):
    tree.process(V2.replace(" / /sys", " /docker/abc /sys"), "0::/docker/abc/inner")
    tree.memory("inner", max=str(GIB), peak="5", events="oom_kill 1")
    assert NodeWatch(PID, tree.root).memory().limit == GIB


@pytest.mark.parametrize("path", ["/", "/../../other", "/not/visible/here"])
def test_cgroup_outside_the_mount_is_the_mount(tree, path):
    tree.process(V2, f"0::{path}")
    tree.memory(".", max=str(GIB), events="oom_kill 1")
    assert NodeWatch(PID, tree.root).memory().limit == GIB


def test_hybrid_hierarchy_takes_the_version_with_the_controller(tree):
    unified = V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    tree.process(unified + V1, "4:memory:/\n0::/user.slice")
    tree.write("sys/fs/cgroup/unified/user.slice/cgroup.procs", "")
    tree.memory("memory", limit_in_bytes=str(GIB), oom_control="oom_kill 0")
    assert find_cgroup(PID, "memory", tree.root).version == 1
    assert find_cgroup(PID, "pids", tree.root).folders == ()


def test_mount_point_with_a_space(tree):
    tree.process(V2.replace("/sys/fs/cgroup", r"/sys/fs/c\040g"), "0::/")
    tree.write("sys/fs/c g/memory.max", str(GIB))
    assert memory_limit(find_cgroup(PID, "memory", tree.root)) == GIB


@pytest.mark.parametrize("text", ["", "nonsense", ":::", "0::relative", "\x00\xff:a:b"])
def test_damaged_files_give_no_facts(tree, text):
    tree.process("nonsense - - -\n", text)
    facts = NodeWatch(PID, tree.root).memory()
    assert (facts.limit, facts.peak, facts.kills, facts.machine_bytes) == (None, None, None, None)


def test_missing_process_gives_no_facts(tree):
    watch = NodeWatch(PID, tree.root)
    assert watch.memory().kills is None
    assert watch.limits().processes is None
    assert watch.shared_memory().size is None


@pytest.mark.parametrize(("text", "number"), [("12", 12), ("max", None), ("-1", None), ("", None), ("1 2", None)])
def test_number_of_a_file(tree, text, number):
    tree.write("file", text)
    assert read_number(tree.root / "file") == number


def test_process_limit_of_the_cgroup_and_its_refusals(tree):
    tree.process(V2, "0::/job/step")
    tree.write("sys/fs/cgroup/job/step/pids.max", "max")
    tree.write("sys/fs/cgroup/job/step/pids.events", "max 2")
    tree.write("sys/fs/cgroup/job/pids.max", "512")
    watch = NodeWatch(PID, tree.root)
    assert watch.limits().refused_forks == 0
    tree.write("sys/fs/cgroup/job/step/pids.events", "max 5")
    limits = watch.limits()
    assert (limits.cgroup_processes, limits.refused_forks) == (512, 3)


def test_nearest_folder_of_equal_limits(v2):
    v2.memory("slurm/uid_1000/job_7", max=str(16 * GIB))
    limit, folder = smallest_limit(find_cgroup(PID, "memory", v2.root), "memory.max")
    assert (limit, folder.name) == (16 * GIB, "step_0")


def test_counters_of_the_machine(tree):
    tree.write("proc/vmstat", "pgfault 1\noom_kill 4\n")
    tree.write("proc/meminfo", "MemTotal:       24684096 kB\nMemFree: 1 kB\n")
    assert (machine_kills(tree.root), machine_bytes(tree.root)) == (4, 24684096 << 10)


# The real files of this machine, read only


def test_real_cgroup_of_this_process_is_found():
    paths = [line.split(":", 2)[2].rstrip("/") for line in Path("/proc/self/cgroup").read_text().splitlines()]
    folders = find_cgroup(os.getpid(), "memory").folders
    assert not folders or any(str(folders[0]).endswith(path) for path in paths)
    facts = NodeWatch(os.getpid()).memory()
    assert facts.kills in (0, None)
    assert facts.machine_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_real_limits_equal_those_of_the_shell():
    limits = NodeWatch(os.getpid()).limits()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert limits.open_files == (None if soft == resource.RLIM_INFINITY else soft)


def test_real_shared_memory_has_its_lowest_free_size():
    shared = NodeWatch(os.getpid()).shared_memory()
    facts = os.statvfs("/dev/shm")
    assert shared.size == facts.f_blocks * facts.f_frsize
    assert 0 <= shared.least_free <= shared.size


def test_disk_of_a_path_that_does_not_exist(tmp_path):
    facts = disk_facts("new/model.pt", tmp_path)
    real = os.statvfs(tmp_path)
    assert facts.path == "new/model.pt"
    assert facts.inodes == real.f_files
    assert facts.free_bytes is not None


def test_disk_of_a_path_with_a_name_that_is_too_long(tmp_path):
    name = "a" * 5000
    with pytest.raises(OSError) as error:
        (tmp_path / name).stat()
    assert error.value.errno == errno.ENAMETOOLONG
    assert disk_facts(name, tmp_path).free_bytes is not None


def test_disk_of_an_absolute_path_ignores_the_working_directory(tmp_path):
    assert disk_facts("/proc", tmp_path).inodes == os.statvfs(Path("/proc")).f_files
