"""Each check of a node: from facts to findings."""

import errno
import os

import pytest

from echelon.doctor.checks import clock, compute, gpus, limits, mounts, names, sharing, software, storage, variables
from echelon.doctor.model import Node, Plan, Result, Severity

GIB = 1 << 30
ONE = Plan()
FOUR = Plan(ranks=4, gpus=4)
HEALTHY_COMPUTE = {
    "cores": 8,
    "machine_cores": 8,
    "memory_limit": None,
    "memory_used": None,
    "memory_free": 64 * GIB,
    "shared_size": 32 * GIB,
    "shared_free": 32 * GIB,
}
HEALTHY_FOLDER = {
    "path": "/data",
    "use": "data",
    "free": 100 * GIB,
    "inodes": 10_000_000,
    "free_inodes": 9_000_000,
    "no_exec": False,
    "write_seconds": 0.01,
    "commit_problems": {},
}


def node(name, **facts):
    return Node(name=name, results={check: Result(check=check, facts=value) for check, value in facts.items()})


def only(findings):
    [finding] = findings
    return finding


# Cores, memory, shared memory


def test_healthy_node_has_no_finding():
    assert compute.judge("n1", HEALTHY_COMPUTE, FOUR) == []


def test_fewer_cores_than_ranks_is_an_error():
    found = only(compute.judge("n1", {**HEALTHY_COMPUTE, "cores": 1}, FOUR))
    assert (found.severity, found.node) == (Severity.ERROR, "n1")
    assert found.what == "1 core for 4 ranks"
    assert "--cpus" in found.fix
    assert found.excludes == ("n1",)


@pytest.mark.parametrize(("limit", "severity"), [(1 * GIB, Severity.ERROR), (3 * GIB, Severity.WARNING)])
def test_little_memory_per_rank(limit, severity):
    facts = {**HEALTHY_COMPUTE, "memory_limit": limit, "memory_used": 0}
    found = only(compute.judge("n1", facts, FOUR))
    assert found.severity is severity
    assert "memory per rank" in found.what


def test_used_memory_of_the_cgroup_counts():
    facts = {**HEALTHY_COMPUTE, "memory_limit": 8 * GIB, "memory_used": 7.9 * GIB}
    assert only(compute.judge("n1", facts, ONE)).severity is Severity.ERROR


@pytest.mark.parametrize(("free", "severity"), [(64 << 20, Severity.ERROR), (512 << 20, Severity.WARNING)])
def test_small_shared_memory(free, severity):
    found = only(compute.judge("n1", {**HEALTHY_COMPUTE, "shared_free": free, "shared_size": free}, ONE))
    assert found.severity is severity
    assert found.what.startswith("/dev/shm has")


def test_missing_shared_memory_is_an_error():
    found = only(compute.judge("n1", {**HEALTHY_COMPUTE, "shared_problem": "No such file"}, ONE))
    assert found.what == "/dev/shm cannot be used"


def test_facts_of_another_version_raise_nothing():
    odd = {"cores": "many", "memory_limit": [], "shared_free": None}
    assert compute.judge("n1", odd, FOUR) == []


# Limits


def test_usual_limits_have_no_finding():
    assert limits.judge("n1", {"open_files": 1024, "processes": 4096, "locked_memory": 8 << 20}, ONE) == []


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"open_files": 256}, "ulimit -n"),
        ({"processes": 100}, "ulimit -u"),
        ({"file_size": 1 << 20}, "ulimit -f"),
        ({"address_space": 8 * GIB}, "ulimit -v"),
        ({"cpu_seconds": 3600}, "ulimit -t"),
    ],
)
def test_limits_that_end_ranks_are_errors(facts, word):
    found = only(limits.judge("n1", facts, ONE))
    assert found.severity is Severity.ERROR
    assert word in found.what
    assert "ulimit" in found.fix


def test_locked_memory_counts_with_infiniband_only():
    assert limits.judge("n1", {"locked_memory": 65536, "infiniband": False}, ONE) == []
    assert "ulimit -l" in only(limits.judge("n1", {"locked_memory": 65536, "infiniband": True}, ONE)).what


# Folders


def folder(**facts):
    return list(storage.judge_folder("n1", {**HEALTHY_FOLDER, **facts}))


def test_healthy_folder_has_no_finding():
    assert folder() == []


@pytest.mark.parametrize(
    ("facts", "severity", "what"),
    [
        ({"hung": True, "problem": "no answer"}, Severity.ERROR, "/data hangs"),
        ({"missing": "No such file or directory"}, Severity.ERROR, "no folder /data"),
        ({"write_problem": "No space left", "write_errno": errno.ENOSPC}, Severity.ERROR, "/data is full"),
        ({"write_problem": "over", "write_errno": errno.EDQUOT}, Severity.ERROR, "/data is full"),
        ({"write_problem": "Read-only", "write_errno": errno.EROFS}, Severity.ERROR, "cannot write to /data"),
        ({"free": 1 << 20}, Severity.ERROR, "/data has 1 MiB free"),
        ({"free": GIB}, Severity.WARNING, "/data has 1 GiB free"),
        ({"free_inodes": 3}, Severity.ERROR, "/data has 3 inodes left"),
        ({"write_seconds": 2.0}, Severity.WARNING, "/data takes 2.0 s per write"),
        ({"commit_problems": {"lock": "No locks available"}}, Severity.ERROR, "/data: lock fails"),
    ],
)
def test_sick_folder(facts, severity, what):
    found = only(folder(**facts))
    assert (found.severity, found.what) == (severity, what)
    assert found.fix


def test_file_systems_without_inode_counts_are_fine():
    assert folder(inodes=0, free_inodes=0) == []


def test_noexec_matters_for_the_temporary_folder_only():
    assert folder(no_exec=True) == []
    assert only(folder(no_exec=True, use="temporary")).what == "/data is mounted noexec"


def test_look_at_a_real_folder(tmp_path):
    facts = storage.look_at(tmp_path)
    assert facts["commit_problems"] == {}
    assert facts["write_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_look_at_a_missing_folder(tmp_path):
    assert storage.look_at(tmp_path / "none") == {"missing": "No such file or directory"}


# Mounts

MOUNTINFO = r"""
36 35 0:30 / / rw - ext4 /dev/vda rw
37 36 0:31 / /home rw - nfs4 server:/home rw
38 36 0:32 / /my\040data rw - fuse.sshfs host:/ rw
39 36 0:33 / /proc rw - proc proc rw
40 36 0:34 / /var/lib/lxcfs rw - fuse.lxcfs lxcfs rw
"""


def test_only_mounts_of_file_servers_are_listed():
    assert mounts.remote_mounts(MOUNTINFO) == [("/home", "nfs4"), ("/my data", "fuse.sshfs")]


def test_hung_mount_is_an_error():
    facts = {"mounts": [{"path": "/scratch", "type": "nfs4", "hung": True, "problem": "no answer within 3 s"}]}
    found = only(mounts.judge("n2", facts, ONE))
    assert (found.severity, found.node, found.what) == (Severity.ERROR, "n2", "/scratch hangs")


def test_unreadable_mount_is_an_error_only_if_it_is_used():
    facts = {"mounts": [{"path": "/scratch", "type": "nfs", "hung": False, "problem": "OSError: Stale file handle"}]}
    assert only(mounts.judge("n2", facts, ONE)).severity is Severity.WARNING
    assert only(mounts.judge("n2", facts, Plan(folders=("/scratch/me",)))).severity is Severity.ERROR


def test_mount_of_another_user_is_no_finding():
    facts = {"mounts": [{"path": "/home/x", "type": "fuse.sshfs", "hung": False, "problem": "PermissionError: 13"}]}
    assert mounts.judge("n2", facts, ONE) == []


# Software


def test_missing_torch_names_the_python():
    facts = {"executable": "/usr/bin/python3", "torch_problem": "ModuleNotFoundError: No module named 'torch'"}
    assert only(software.judge("n1", facts, ONE)).what == "no torch in /usr/bin/python3"


def test_node_with_another_torch_is_named():
    nodes = [node(f"n{i}", software={"torch": "2.13.0" if i != 2 else "2.12.1", "python": "3.11.7"}) for i in (1, 2, 3)]
    found = only(software.compare(nodes))
    assert (found.node, found.what) == ("n2", "torch 2.12.1")
    assert found.why == "2 of 3 nodes have torch 2.13.0"


def test_equal_versions_are_no_finding():
    nodes = [node(f"n{i}", software={"torch": "2.13.0", "cuda": None}) for i in (1, 2)]
    assert list(software.compare(nodes)) == []


def test_description_is_the_first_json_line():
    assert software.parse_description(b'warning\n{"torch": "2.13.0"}\n')["torch"] == "2.13.0"
    assert software.parse_description(b"", b"Illegal instruction", -4)["torch_problem"] == "Illegal instruction"
    assert software.parse_description(b"", b"", -4)["torch_problem"] == "python ended with exit code -4"


# GPUs


def test_processes_of_nvidia_smi_are_parsed():
    text = "4711, 1024, /usr/bin/python3\nNo running processes found\n, ,\n"
    assert gpus.parse_apps(text) == [{"pid": 4711, "mib": "1024", "name": "python3"}]


def test_foreign_process_on_a_gpu_is_an_error():
    facts = {"foreign": [{"pid": 4711, "mib": "1024", "name": "python3", "user": "eve"}]}
    found = only(gpus.judge("n2", facts, FOUR))
    assert found.what == "another process uses a GPU"
    assert "4711" in found.why
    assert "eve" in found.why


def test_missing_gpus_are_an_error():
    sick = node("n2", software={"torch": "2.13.0", "cuda": "12.8", "gpus": []}, gpus={"listed": 0})
    assert only(gpus.judge_torch(sick, FOUR)).what == "torch sees 0 of 4 GPUs"
    assert list(gpus.judge_torch(sick, ONE)) == []


def test_torch_without_cuda_is_named():
    sick = node("n2", software={"torch": "2.13.0+cpu", "cuda": None, "hip": None, "gpus": []})
    assert only(gpus.judge_torch(sick, FOUR)).why == "this torch has no CUDA"


def test_gpu_that_fails_or_computes_wrong_results():
    usable = [{"index": i, "exact": True, "free": 80, "total": 80} for i in range(2)]
    sick = [{"index": 2, "problem": "CUDA error: ECC"}, {"index": 3, "exact": False, "free": 80, "total": 80}]
    found = list(gpus.judge_torch(node("n1", software={"torch": "2.13.0", "gpus": [*usable, *sick]}), FOUR))
    assert [one.what for one in found] == ["GPU 2 cannot be used", "GPU 3 computes wrong results"]


# Variables


def judged(**values):
    facts = {"variables": values, "interfaces": ["lo", "eth0", "ib0"], "cores": 8}
    return variables.judge("n2", facts, FOUR)


def test_usual_variables_have_no_finding():
    assert (
        judged(NCCL_SOCKET_IFNAME="ib0", OMP_NUM_THREADS="2", NCCL_DEBUG="INFO", CUDA_VISIBLE_DEVICES="0,1,2,3") == []
    )


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("MASTER_ADDR", "10.0.0.1", Severity.WARNING),
        ("NCCL_SOCKET_IFNAME", "ib7", Severity.ERROR),
        ("GLOO_SOCKET_IFNAME", "eno1", Severity.ERROR),
        ("CUDA_LAUNCH_BLOCKING", "1", Severity.WARNING),
        ("TORCH_DISTRIBUTED_DEBUG", "detail", Severity.WARNING),
        ("CUDA_VISIBLE_DEVICES", "0", Severity.ERROR),
        ("OMP_NUM_THREADS", "64", Severity.WARNING),
        ("SLURM_CPU_BIND", "quiet,map_cpu:0", Severity.WARNING),
        ("https_proxy", "http://proxy:3128", Severity.WARNING),
        ("PYTHONHOME", "/opt/old", Severity.ERROR),
    ],
)
def test_variable_that_breaks_runs_is_named(name, value, severity):
    found = only(judged(**{name: value}))
    assert found.severity is severity
    assert name.upper() in (found.what + found.why + found.fix).upper()


def test_proxy_with_exceptions_is_fine():
    assert judged(https_proxy="http://proxy:3128", no_proxy=".cluster") == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("ib", True),
        ("=ib", False),
        ("=ib0", True),
        ("eth0,ib0", True),
        ("^lo", True),
        ("^lo,eth,ib", False),
        ("x", False),
    ],
)
def test_patterns_of_nccl(pattern, expected):
    assert variables.interface_matches(pattern, ["lo", "eth0", "ib0"]) is expected


def test_secrets_are_not_collected():
    facts = variables.describe({"AWS_SECRET_ACCESS_KEY": "x", "MASTER_ADDR": "a"})
    assert facts["variables"] == {"MASTER_ADDR": "a"}
    facts = variables.describe({"https_proxy": "http://me:hunter2@proxy:3128"})
    assert "hunter2" not in facts["variables"]["https_proxy"]


# Names


def resolved(**host):
    return names.judge("n2", {"own": "n2", "hosts": [host]}, ONE)


def test_wrong_entry_in_hosts_is_an_error_of_the_node_that_has_it():
    found = only(resolved(name="n3", found="10.9.9.9", addresses=["10.0.0.3"]))
    assert (found.node, found.what) == ("n2", "n3 resolves to 10.9.9.9")
    assert "10.0.0.3" in found.why


def test_any_address_of_the_host_is_right():
    assert resolved(name="n3", found="192.168.0.3", addresses=["10.0.0.3", "192.168.0.3"]) == []


def test_own_name_may_be_loopback_but_no_other():
    assert resolved(name="n2", found="127.0.1.1", addresses=["10.0.0.2"]) == []
    assert only(resolved(name="n3", found="127.0.1.1", addresses=["10.0.0.3"])).severity is Severity.ERROR


def test_unknown_name_is_a_warning():
    assert only(resolved(name="n3", found=None, addresses=["10.0.0.3"])).what == "cannot resolve n3"


# Clock


def test_offset_is_measured_from_the_middle_of_the_question():
    assert clock.offset_seconds(10.0, 15.5, 11.0) == (5.0, 0.5)


def clocks(**offsets):
    return list(clock.compare([node(name, clock={"offset": value, "error": 0.001}) for name, value in offsets.items()]))


def test_equal_clocks_are_no_finding():
    assert clocks(n1=0.0, n2=0.2, n3=-0.3) == []


def test_skewed_clock_is_named():
    found = only(clocks(n1=0.0, n2=30.0, n3=0.01))
    assert (found.severity, found.node, found.what) == (Severity.WARNING, "n2", "its clock is 30.0 s ahead")


def test_clock_that_is_minutes_off_is_an_error():
    assert only(clocks(n1=0.0, n2=-300.0, n3=0.0)).severity is Severity.ERROR


def test_skewed_first_node_is_named_itself():
    assert only(clocks(n1=0.0, n2=-30.0, n3=-30.0)).node == "n1"


# Shared folder

NAMES = {0: "n1", 1: "n2", 2: "n3"}


def shares(*seen):
    return [
        node(NAMES[rank], sharing={"seen": {"/runs": found}, "ranks": [0, 1, 2]}) for rank, found in enumerate(seen)
    ]


def test_shared_folder_is_no_finding():
    assert list(sharing.compare(shares([0, 1, 2], [0, 1, 2], [0, 1, 2]), NAMES)) == []


def test_node_with_another_folder_is_named():
    found = only(sharing.compare(shares([0, 2], [1], [0, 2]), NAMES))
    assert (found.node, found.what) == ("n2", "/runs is not shared")


def test_node_that_cannot_write_is_left_to_the_check_of_storage():
    assert list(sharing.compare(shares([0, 2], [0, 2], [0, 2]), NAMES)) == []


def test_marks_are_seen_and_removed(tmp_path):
    folders = [str(tmp_path)]
    for rank in (0, 1):
        sharing.leave_marks(folders, "doctor-x", rank)
    assert sharing.look_for_marks(folders, "doctor-x", [0, 1])["seen"] == {str(tmp_path): [0, 1]}
    for rank in (0, 1):
        sharing.remove_marks(folders, "doctor-x", rank)
    assert list(tmp_path.iterdir()) == []


# Collectors


def test_limit_of_the_cgroup_is_read(tmp_path):
    import os

    own = tmp_path / "proc" / str(os.getpid())
    job = tmp_path / "sys/fs/cgroup/job"
    own.mkdir(parents=True)
    job.mkdir(parents=True)
    (own / "mountinfo").write_text("30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (own / "cgroup").write_text("0::/job\n")
    (job / "memory.max").write_text(f"{GIB}\n")
    (job / "memory.current").write_text(f"{GIB - (100 << 20)}\n")
    (tmp_path / "proc/meminfo").write_text("MemAvailable:   50000000 kB\n")
    facts = compute.collect(ONE, tmp_path)
    assert compute.memory_available(facts) == 100 << 20
    found = [one.what for one in compute.judge("n1", facts, ONE)]
    assert found == ["100 MiB of memory per rank", "/dev/shm cannot be used"]


@pytest.mark.parametrize("check", [compute.CHECK, limits.CHECK, mounts.CHECK, variables.CHECK, gpus.CHECK])
def test_collectors_return_json(check):
    import json

    facts = json.loads(json.dumps(check.collect(ONE)))
    assert all(one.severity is not Severity.ERROR or one.fix for one in check.judge("here", facts, ONE))


@pytest.mark.parametrize(
    "module", [compute, limits, mounts, storage, variables, gpus, software, names], ids=lambda one: one.NAME
)
def test_check_that_hangs_is_an_error_of_its_node(module):
    found = module.hung("n3")
    assert (found.severity, found.node, found.excludes) == (Severity.ERROR, "n3", ("n3",))
    assert found.fix


def test_files_of_a_killed_doctor_job_are_removed_later(tmp_path):
    old, young, other = tmp_path / ".echelon-doctor-run-0", tmp_path / ".echelon-doctor-run-1", tmp_path / "mine"
    folder = tmp_path / ".echelon-doctor-abc"
    folder.mkdir()
    for path in (old, young, other, folder / "probe"):
        path.touch()
    for path in (old, other, folder):
        os.utime(path, (0, 0))
    storage.try_writing(tmp_path)
    assert sorted(tmp_path.iterdir()) == [young, other]
