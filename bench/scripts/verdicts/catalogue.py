"""The catalogue of injected failures: for each script, the cause and the rank that a verdict must name.

By hand, one rank of two: RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python errors.py KeyError
CULPRIT chooses the rank at fault (default 1), WAIT_SECONDS how long the others wait, NO_REPORTS=1 leaves out steps.
"""

import enum
from dataclasses import dataclass

from echelon.diagnosis.causes import Cause
from echelon.diagnosis.hangs import HangCause

CULPRIT = 1


class Kind(enum.Enum):
    CRASH = "crash"
    HANG = "hang"
    SLOW = "slow"
    """Nothing fails. The verdict is an event of the kind `slow`."""


class Need(enum.Enum):
    """What the machine must provide."""

    MEMORY_LIMIT = "a memory limit below 2 GiB"
    SMALL_FOLDER = "SMALL_FOLDER on a file system of at most 64 MiB"
    FEW_INODES = "SMALL_FOLDER on a file system with few inodes"
    SMALL_SHM = "/dev/shm of at most 64 MiB"


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    script: str
    kind: Kind
    cause: str
    """What error.json must name: the value of a Cause for a crash, `hang_` and the value of a HangCause for a hang,
    the reason in the event for a slow rank."""
    rank: int | None = CULPRIT
    """The rank that the verdict must name; None for any rank or none."""
    arguments: tuple[str, ...] = ()
    says: str = ""
    """A part of the verdict, as a regular expression."""
    need: Need | None = None


def hang(name: str, cause: HangCause, says: str, *, rank: int | None = CULPRIT) -> Case:
    return Case(name=name, script=f"{name}.py", kind=Kind.HANG, cause=f"hang_{cause.value}", rank=rank, says=says)


def crash(
    script: str,
    cause: Cause,
    *arguments: str,
    says: str = "",
    rank: int | None = CULPRIT,
    need: Need | None = None,
) -> Case:
    return Case(
        name="-".join((script, *(word.strip("-") for word in arguments))),
        script=f"{script}.py",
        kind=Kind.CRASH,
        cause=cause.value,
        rank=rank,
        arguments=arguments,
        says=says,
        need=need,
    )


HANGS = (
    hang("hang_sleep", HangCause.MISSING, r"all_reduce.*hang_sleep\.py:\d+"),
    hang("hang_other_op", HangCause.MISMATCH, r"barrier|all_reduce"),
    hang("hang_size", HangCause.MISMATCH, r"4000000 float32.*1000000 float32"),
    hang("hang_dtype", HangCause.MISMATCH, r"float64.*float32"),
    hang("hang_fewer_steps", HangCause.MESSAGE, r"recv|hang_fewer_steps\.py:\d+"),
    hang("hang_recv", HangCause.MESSAGE, r"recv|hang_recv\.py:\d+"),
    hang("hang_worker", HangCause.DATA_LOADER, r"DataLoader|hang_worker\.py:\d+"),
    hang("hang_lock", HangCause.LOCK, r"hang_lock\.py:\d+"),
    hang("hang_stopped", HangCause.STOPPED, r"SIGSTOP|stopped"),
    hang("hang_fifo", HangCause.FILE, r"hang_fifo\.py:\d+|samples\.bin"),
    hang("hang_exit", HangCause.EXIT, r"exit|threading"),
    hang("hang_atexit", HangCause.EXIT, r"exit"),
    hang("hang_main_first", HangCause.MAIN_FIRST, r"main_first|hang_main_first\.py:\d+", rank=0),
    hang("hang_loop", HangCause.MISSING, r"running in hang_loop\.py:\d+"),
    hang("hang_gil", HangCause.MISSING, r"hang_gil\.py:\d+|GIL|did not answer"),
    hang("hang_child", HangCause.MISSING, r"hang_child\.py:\d+|sleep"),
    hang("hang_socket", HangCause.MISSING, r"hang_socket\.py:\d+"),
    hang("hang_queue", HangCause.LOCK, r"hang_queue\.py:\d+"),
    hang("hang_file_lock", HangCause.FILE, r"hang_file_lock\.py:\d+"),
    hang("hang_group", HangCause.MISMATCH, r"new_group|hang_group\.py:\d+"),
    hang("hang_join", HangCause.MISSING, r"hang_join\.py:\d+"),
    hang("hang_store", HangCause.MISSING, r"hang_store\.py:\d+"),
    hang("hang_silent", HangCause.MISSING, r"all_reduce|hang_silent\.py:\d+"),
)
SIGNALS = (
    crash("signals", Cause.KILLED, "KILL", says="SIGKILL"),
    crash("signals", Cause.SEGFAULT, "SEGV", says="SIGSEGV"),
    crash("signals", Cause.BUS_ERROR, "BUS", says="SIGBUS"),
    crash("signals", Cause.ILLEGAL_INSTRUCTION, "ILL", says="SIGILL"),
    crash("signals", Cause.ARITHMETIC_ERROR, "FPE", says="SIGFPE"),
    crash("signals", Cause.ABORTED, "ABRT", says="SIGABRT"),
    crash("signals", Cause.ENDED_BY_SIGNAL, "TERM", says="SIGTERM"),
    crash("signals", Cause.ENDED_BY_SIGNAL, "INT", says="KeyboardInterrupt|SIGINT"),
    crash("segfault", Cause.SEGFAULT, says=r"segfault\.py:\d+|string_at"),
    crash("bus_error", Cause.BUS_ERROR, says=r"SIGBUS.*bus_error\.py:\d+"),
    crash("abort", Cause.ABORTED, says="terminate called without an active exception"),
    crash("double_free", Cause.ABORTED, says=r"free\(\): double free"),
)
LIMITS = (
    crash("memory_error", Cause.MEMORY_ERROR, says="MemoryError"),
    crash("allocator", Cause.MEMORY_ERROR, says="allocate"),
    crash("out_of_memory", Cause.OUT_OF_MEMORY, says="for memory: limit", need=Need.MEMORY_LIMIT),
    crash("open_files", Cause.OPEN_FILES, says="Too many open files"),
    crash("fork_limit", Cause.PROCESS_LIMIT, says="ulimit -u"),
    crash("thread_limit", Cause.PROCESS_LIMIT, says="ulimit -u"),
    crash("no_space", Cause.NO_SPACE, says="No space left", need=Need.SMALL_FOLDER),
    crash("save_no_space", Cause.NO_SPACE, need=Need.SMALL_FOLDER),
    crash("no_inodes", Cause.NO_INODES, says="inode", need=Need.FEW_INODES),
    crash("worker_shared_memory", Cause.SHARED_MEMORY, says="shared memory", need=Need.SMALL_SHM),
)
EXITS = (
    crash("exit_text", Cause.EXIT_TEXT, says="the vocabulary has 50257 entries"),
    crash("exit_code", Cause.EXIT_CODE, "3", says="the licence server refused"),
    crash("exit_code", Cause.EXIT_CODE, "7", "silent", says="exited with code 7"),
    crash("exit_nan", Cause.NOT_A_NUMBER, says="Loss is nan"),
    crash("usage", Cause.USAGE, "--learning-rat", "x", says="invalid float value|unrecognized arguments", rank=None),
)
ORDINARY_ERRORS = (
    *("KeyError", "IndexError", "ValueError", "TypeError", "AttributeError", "ZeroDivisionError", "AssertionError"),
    *("RecursionError", "UnicodeDecodeError", "JSONDecodeError", "NotImplementedError", "DataError"),
    "IsADirectoryError",
)
ERRORS = (
    *(crash("errors", Cause.EXCEPTION, name, says=name) for name in ORDINARY_ERRORS),
    crash("errors", Cause.MISSING_FILE, "FileNotFoundError", says=r"data/train\.csv"),
    crash("errors", Cause.NETWORK, "URLError", says="Connection refused"),
    crash("missing_module", Cause.MISSING_MODULE, says="flash_attention_3"),
    crash("import_name", Cause.MISSING_MODULE, says="loads_all"),
    crash("broken_library", Cause.BROKEN_LIBRARY, says=r"libcublas\.so\.99"),
    crash("syntax_error", Cause.SYNTAX_ERROR, says=r"my_model\.py"),
    crash("permission", Cause.PERMISSION, says=r"/usr/model\.pt"),
    crash("address_in_use", Cause.ADDRESS_IN_USE, says="Address already in use"),
)
TORCH = (
    crash("shapes", Cause.EXCEPTION, says="shapes cannot be multiplied"),
    crash("nan_loss", Cause.NOT_A_NUMBER, "raise", says="loss is nan"),
    crash("nan_loss", Cause.NOT_A_NUMBER, "clip", says="non-finite"),
    crash("nan_loss", Cause.NOT_A_NUMBER, "anomaly", says="returned nan values"),
    crash("worker_error", Cause.EXCEPTION, "raise", says="KeyError"),
    crash("worker_error", Cause.DATA_WORKER, "kill", says="DataLoader worker"),
    crash("shape_mismatch", Cause.COLLECTIVE_MISMATCH, rank=None),
    crash("collective_timeout", Cause.COLLECTIVE_TIMEOUT, says="Timed out", rank=None),
    crash("leaves_early", Cause.PEER_LOST, rank=None),
    crash("crash_in_step", Cause.EXCEPTION, says="bad batch at step 7"),
    crash("gpu_errors", Cause.GPU_MEMORY, "memory", says="out of GPU memory: tried to allocate 20.00 MiB"),
    crash("gpu_errors", Cause.GPU_HARDWARE, "ecc", says="uncorrectable ECC"),
    crash("gpu_errors", Cause.GPU_ASSERT, "assert", says="device-side assert"),
    crash("gpu_errors", Cause.GPU_ARCHITECTURE, "architecture", says="no kernel image"),
    crash("gpu_errors", Cause.DRIVER_TOO_OLD, "driver", says="too old"),
    crash("gpu_errors", Cause.GPU_ERROR, "access", says="illegal memory access"),
    crash("gpu_errors", Cause.NCCL_ERROR, "nccl", says="ncclSystemError|NCCL error"),
)
PARENTS = (
    crash("parent_dies", Cause.STARTER_DIED, "1", says="the starter on .* died", rank=None),
    crash("parent_dies", Cause.AGENT_DIED, "2", says="its agent died", rank=None),
)
SLOW = (
    Case(
        name="slow_rank",
        script="slow_rank.py",
        kind=Kind.SLOW,
        cause="in its own code or its input",
        says=r"rank 1 on \S+ is .*slower",
    ),
)
CASES = (*HANGS, *PARENTS, *SLOW, *SIGNALS, *LIMITS, *EXITS, *ERRORS, *TORCH)
