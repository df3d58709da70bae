"""Deaths by an exception: sentence, details and hint follow the facts of the node."""

import pytest

from echelon.diagnosis.deaths import Cause, DeathEvidence, DiskFacts, Limits, MemoryFacts, SharedMemory, explain_death

GIB = 1 << 30


def death(error, message="", *, traceback="", **facts):
    evidence = DeathEvidence(code=1, error_type=error, error_message=message, traceback=traceback, **facts)
    return explain_death(evidence, 3, "n1")


GPU_MEMORY = [
    (
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 12.44 MiB is "
        "free. Including non-PyTorch memory, this process has 79.13 GiB memory in use. Of the allocated memory 76.35 GiB "
        "is allocated by PyTorch, and 1.62 GiB is reserved by PyTorch but unallocated."
    ),
    (
        "CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of 12.00 GiB of which 9.02 GiB is "
        "free. Of the allocated memory 984.52 MiB is allocated by PyTorch, and 463.48 MiB is reserved by PyTorch but "
        "unallocated."
    ),
    (
        "CUDA out of memory. Tried to allocate 264.00 MiB (GPU 0; 2.00 GiB total capacity; 788.51 MiB already allocated; "
        "145.93 MiB free; 1.02 GiB reserved in total by PyTorch)"
    ),
    (
        "CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total capacity; 10.90 GiB already allocated; "
        "576.00 KiB free; 30.96 MiB cached)"
    ),
]


@pytest.mark.parametrize("message", GPU_MEMORY, ids=range(len(GPU_MEMORY)))
@pytest.mark.parametrize("error", ["torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "RuntimeError"])
def test_gpu_memory_is_named_with_its_sizes(error, message):
    found = death(error, message)
    assert found.cause is Cause.GPU_MEMORY
    wanted = message.partition("allocate ")[2].partition(" ")[0]
    assert found.sentence.startswith(f"rank 3 on n1 ran out of GPU memory: tried to allocate {wanted} ")
    assert found.sentence.endswith(" free")


def test_fragmented_gpu_memory_gets_another_hint():
    much = GPU_MEMORY[0].replace("1.62 GiB is reserved", "17.62 GiB is reserved")
    assert "expandable_segments" in death("torch.OutOfMemoryError", much).hint
    assert "expandable_segments" not in death("torch.OutOfMemoryError", GPU_MEMORY[0]).hint


def test_ordinary_exception_is_quoted_with_its_first_line():
    found = death("ValueError", "bad batch\nmore")
    assert found.sentence == "rank 3 on n1 raised ValueError: bad batch"
    assert found.hint == "correct the script, then start it again"
    assert death("AssertionError").sentence == "rank 3 on n1 raised AssertionError"


def test_error_of_a_worker_is_quoted_with_its_last_line():
    message = "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback:\n  x\nKeyError: 'label'\n"
    assert (
        death("KeyError", message).sentence == "rank 3 on n1 raised KeyError: 'label' (in DataLoader worker process 0)"
    )
    alone = death("KeyError", "Caught KeyError in DataLoader worker process 0.")
    assert alone.sentence.endswith("KeyError: Caught KeyError in DataLoader worker process 0.")


FORK = '  File "/usr/lib/python3.11/multiprocessing/popen_fork.py", line 66, in _launch\n    self.pid = os.fork()\n'
SPAWN = '  File "/usr/lib/python3.11/subprocess.py", line 1883, in _execute_child\n'


@pytest.mark.parametrize("traceback", [FORK, SPAWN])
def test_failed_fork_names_the_limit_on_processes(traceback):
    error = ("BlockingIOError", "[Errno 11] Resource temporarily unavailable")
    found = death(*error, traceback=traceback, limits=Limits(processes=4096))
    assert (found.cause, found.details) == (Cause.PROCESS_LIMIT, ("ulimit -u is 4096",))
    assert "ulimit -u" in found.hint


def test_failed_fork_names_the_limit_of_the_cgroup():
    limits = Limits(processes=4096, cgroup_processes=512, refused_forks=1)
    found = death("RuntimeError", "can't start new thread", limits=limits)
    assert found.details == ("pids.max of the cgroup is 512",)
    assert "ulimit" not in found.hint


def test_unavailable_resource_without_a_fork_is_an_exception():
    assert death("BlockingIOError", "[Errno 11] Resource temporarily unavailable").cause is Cause.EXCEPTION


def test_limit_on_address_space_gets_its_own_hint():
    found = death("MemoryError", limits=Limits(address_space=2 * GIB))
    assert found.hint == "--setup 'ulimit -v unlimited' removes the limit on address space (now 2 GiB)"
    assert "--mem" in death("MemoryError").hint


def test_limit_on_open_files_is_named():
    found = death("OSError", "[Errno 24] Too many open files", limits=Limits(open_files=1024))
    assert found.details == ("ulimit -n is 1024",)


NO_SPACE = ("OSError", "[Errno 28] No space left on device: '/scratch/a'")


def test_no_space_with_free_bytes_and_no_inode_is_no_inodes():
    disk = DiskFacts(path="/scratch/a", free_bytes=5 * GIB, inodes=1000, free_inodes=0)
    found = death(*NO_SPACE, disk=disk)
    assert found.cause is Cause.NO_INODES
    assert found.details == ("5 GiB free on the file system of /scratch/a", "no free inode of 1000 inodes")
    assert "df -i" in found.hint


@pytest.mark.parametrize(
    "disk",
    [
        DiskFacts(path="/scratch/a", free_bytes=0, inodes=1000, free_inodes=0),
        DiskFacts(path="/scratch/a", free_bytes=0, inodes=1000, free_inodes=10),
        DiskFacts(path="/scratch/a", free_bytes=5 * GIB, inodes=0, free_inodes=0),
        DiskFacts(),
    ],
)
def test_no_space_without_proof_of_missing_inodes_is_no_space(disk):
    assert death(*NO_SPACE, disk=disk).cause is Cause.NO_SPACE


def test_hint_for_no_space_names_the_file_system():
    disk = DiskFacts(path="/scratch/a", free_bytes=4096)
    assert death(*NO_SPACE, disk=disk).hint == "free space on the file system of /scratch/a, then echelon resume {run}"
    assert death(*NO_SPACE).hint == "free space on the full file system, then echelon resume {run}"


def test_failed_torch_save_is_probably_a_full_file_system():
    found = death("RuntimeError", "unexpected pos 704 vs 598")
    assert found.sentence.endswith("unexpected pos 704 vs 598: the file system was probably full")


WORKER_TRACE = (
    '  File "/x/torch/utils/data/dataloader.py", line 1\n  File "/x/multiprocessing/connection.py", line 395\n'
)


@pytest.mark.parametrize("error", ["ConnectionResetError", "EOFError", "FileNotFoundError", "BrokenPipeError"])
def test_broken_pipe_of_a_data_loader_is_a_dead_worker(error):
    found = death(error, "[Errno 104] Connection reset by peer", traceback=WORKER_TRACE)
    assert (found.cause, found.sentence) == (Cause.DATA_WORKER, "a DataLoader worker of rank 3 on n1 died")
    assert error in found.details[0]


def test_data_worker_that_the_kernel_killed_is_out_of_memory():
    memory = MemoryFacts(limit=16 * GIB, kills_before=0, kills_after=1)
    found = death("RuntimeError", "DataLoader worker (pid 812) is killed by signal: Killed. ", memory=memory)
    assert found.cause is Cause.OUT_OF_MEMORY
    assert found.sentence == "the kernel killed a DataLoader worker of rank 3 on n1 for memory (limit 16 GiB)"
    assert "--mem" in found.hint


def test_refused_connection_of_the_script_is_a_network_error():
    refused = "[Errno 111] Connection refused"
    own = death("ConnectionRefusedError", refused, traceback='  File "train.py", line 3\n    fetch(url)\n')
    torch = death("ConnectionRefusedError", refused, traceback='  File "/x/torch/distributed/rendezvous.py", line 1\n')
    assert (own.cause, torch.cause) == (Cause.NETWORK, Cause.PEER_LOST)


def test_shared_memory_is_named_with_its_size():
    found = death(
        "RuntimeError", "unable to write to file </torch_7_1>: No space", shared_memory=SharedMemory(size=64 << 20)
    )
    assert found.details == ("size of /dev/shm: 64 MiB",)
    assert found.hint.startswith("DataLoader workers need more shared memory")


def test_syntax_error_is_named_with_its_file():
    traceback = '  File "/a/train.py", line 2, in <module>\n  File "/a/model.py", line 7\n    def f(x:\n'
    assert death("SyntaxError", "'(' was never closed", traceback=traceback).details == ('File "/a/model.py", line 7',)


def test_signature_ignores_numbers_and_addresses():
    assert (
        death("ValueError", "bad batch 7 at 0x7f12").signature == death("ValueError", "bad batch 8 at 0x9f").signature
    )
    assert death("ValueError", "bad batch").signature != death("KeyError", "bad batch").signature
