"""The causes of deaths, and the hint for each."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from echelon.record import record


class Cause(enum.Enum):
    # Memory
    OUT_OF_MEMORY = "out of memory"
    STEP_MEMORY = "memory limit of the scheduler"
    PROBABLY_MEMORY = "probably out of memory"
    MEMORY_ERROR = "memory allocation failed"
    GPU_MEMORY = "out of GPU memory"
    SHARED_MEMORY = "shared memory is full"
    # Other limits of the node
    PROCESS_LIMIT = "process limit"
    OPEN_FILES = "too many open files"
    NO_SPACE = "no space on the file system"
    NO_INODES = "no inodes on the file system"
    QUOTA = "disk quota exceeded"
    # Signals
    KILLED = "killed by SIGKILL"
    ENDED_BY_SIGNAL = "ended by a signal"
    SEGFAULT = "segmentation fault"
    BUS_ERROR = "bus error"
    ILLEGAL_INSTRUCTION = "illegal instruction"
    ARITHMETIC_ERROR = "arithmetic error in native code"
    ABORTED = "aborted"
    # Processes of echelon, and nodes
    STARTER_DIED = "the starter died"
    AGENT_DIED = "the agent died"
    NODE_FAILURE = "node failure"
    # Exit codes
    EXIT_TEXT = "the script exited with a text"
    EXIT_CODE = "exit code"
    USAGE = "wrong arguments"
    NOT_FOUND = "command not found"
    NOT_EXECUTABLE = "command cannot be executed"
    # Python
    EXCEPTION = "exception"
    SYNTAX_ERROR = "syntax error"
    MISSING_MODULE = "missing module"
    BROKEN_LIBRARY = "library cannot be loaded"
    MISSING_FILE = "missing file"
    PERMISSION = "permission denied"
    NOT_A_NUMBER = "not a number"
    DATA_WORKER = "a DataLoader worker died"
    FILE_SYSTEM = "file system error"
    # GPUs
    GPU_HARDWARE = "GPU hardware error"
    GPU_ASSERT = "device-side assert"
    GPU_ARCHITECTURE = "torch does not support this GPU"
    DRIVER_TOO_OLD = "GPU driver too old"
    GPU_MISSING = "no usable GPU"
    GPU_FORK = "CUDA used before fork"
    GPU_ERROR = "CUDA error"
    # Communication
    NCCL_ERROR = "NCCL error"
    COLLECTIVE_TIMEOUT = "collective timed out"
    COLLECTIVE_MISMATCH = "collectives do not match"
    RENDEZVOUS = "rendezvous failed"
    ADDRESS_IN_USE = "address already in use"
    PEER_LOST = "lost the connection to another rank"
    NETWORK = "network error"
    # Hangs. The verdict names the kind in more detail
    HANG = "hang"
    HANG_IN_SCRIPT = "hang in the script"
    HANG_ON_FILE = "hang on a file"
    RANK_STOPPED = "stopped by SIGSTOP"


HANGS = frozenset({Cause.HANG, Cause.HANG_IN_SCRIPT, Cause.HANG_ON_FILE, Cause.RANK_STOPPED})
"""Their hints are in `hangs`."""


RESTART = "--restarts N starts all ranks again after a fault"
CORRECT = "correct the script, then start it again"
LESS_MEMORY = "use fewer DataLoader workers or a smaller batch"
MORE_MEMORY = f"--mem SIZE asks for more memory per node; or {LESS_MEMORY}"
OTHER_ENVIRONMENT = "choose another one with --venv, --conda, --image or --python"

HINTS: Mapping[Cause, str] = {
    Cause.OUT_OF_MEMORY: MORE_MEMORY,
    Cause.STEP_MEMORY: MORE_MEMORY,
    Cause.PROBABLY_MEMORY: f"dmesg on that node shows kills for memory; {MORE_MEMORY}",
    Cause.MEMORY_ERROR: MORE_MEMORY,
    Cause.GPU_MEMORY: "use a smaller batch per GPU with gradient accumulation, or activation checkpointing",
    Cause.SHARED_MEMORY: "DataLoader workers need more shared memory: mount a larger /dev/shm (Docker and Podman: "
    "--shm-size=16g in --container-exec), or lower num_workers, prefetch_factor or the batch size",
    Cause.PROCESS_LIMIT: "--setup 'ulimit -u 65536' raises the limit if the hard limit allows it; fewer DataLoader "
    "workers and --set OMP_NUM_THREADS=1 need fewer processes and threads",
    Cause.OPEN_FILES: "--setup 'ulimit -n 65536' raises the limit; or close files, or call "
    "torch.multiprocessing.set_sharing_strategy('file_system')",
    Cause.NO_SPACE: "free space on the full file system, then echelon resume {run}",
    Cause.NO_INODES: "delete or pack small files on the full file system (df -i), then echelon resume {run}",
    Cause.QUOTA: "free space or files within your quota, then echelon resume {run}",
    Cause.KILLED: "find what sends SIGKILL on that node (another user, the administrator, a watchdog); " + RESTART,
    Cause.ENDED_BY_SIGNAL: RESTART,
    Cause.SEGFAULT: "check the library that the innermost call of the stack enters, and that it matches the version of "
    f"torch; if it happens rarely, {RESTART}",
    Cause.BUS_ERROR: "check for a truncated or unreachable memory-mapped file and a full file system; if it is always "
    "the same node, --exclude HOST avoids it",
    Cause.ILLEGAL_INSTRUCTION: "a library is built for another CPU: build it on this kind of node, or choose nodes "
    "with --constraint",
    Cause.ARITHMETIC_ERROR: "native code divided an integer by zero: check the call at the top of the stack for empty "
    "inputs and zero sizes",
    Cause.ABORTED: "a library called abort(): correct the cause that it printed; if it printed none, " + RESTART,
    Cause.STARTER_DIED: RESTART,
    Cause.AGENT_DIED: "--restarts N starts a new agent and all ranks; --spare-nodes N keeps a replacement for the node",
    Cause.NODE_FAILURE: "--spare-nodes N keeps a replacement for a lost node; --exclude HOST avoids this one",
    Cause.EXIT_TEXT: "the script ended itself with this text: correct what it names, then start it again",
    Cause.EXIT_CODE: "the last lines above are the rank's own output; " + RESTART,
    Cause.USAGE: "check the arguments after the script's name",
    Cause.NOT_FOUND: "check the name of the command, and that it is installed on every node",
    Cause.NOT_EXECUTABLE: "chmod +x the file, or name the program that runs it",
    Cause.EXCEPTION: CORRECT,
    Cause.SYNTAX_ERROR: "correct that line, then start it again",
    Cause.MISSING_MODULE: f"install it, in a matching version, in the environment of the ranks, or {OTHER_ENVIRONMENT}",
    Cause.BROKEN_LIBRARY: "--modules NAME loads the module with that library, --set LD_LIBRARY_PATH=DIR adds its "
    f"folder; or {OTHER_ENVIRONMENT}",
    Cause.MISSING_FILE: "check the path on that node; a relative path starts in the working directory of the run",
    Cause.PERMISSION: "check the owner and mode of that path on the node; in a container, --mount SRC:DST without :ro",
    Cause.NOT_A_NUMBER: "lower the learning rate or clip gradients; torch.autograd.set_detect_anomaly(True) names the "
    "operation",
    Cause.DATA_WORKER: "set num_workers=0 to see the worker's own error",
    Cause.FILE_SYSTEM: "check that file system on the node; " + RESTART,
    Cause.GPU_HARDWARE: "--exclude HOST avoids this node; report it to the administrator",
    Cause.GPU_ASSERT: "check indices and class labels for values out of range; --set CUDA_LAUNCH_BLOCKING=1 shows the "
    "line",
    Cause.GPU_ARCHITECTURE: "install a torch that is built for this GPU, or choose other GPUs with --gpu-type or "
    "--constraint",
    Cause.DRIVER_TOO_OLD: f"use a torch for an older CUDA ({OTHER_ENVIRONMENT}), or nodes with a newer driver "
    "(--constraint)",
    Cause.GPU_MISSING: "-g N asks for GPUs; nvidia-smi on that node shows them; --cpu runs without",
    Cause.GPU_FORK: "--cold starts each rank as a new interpreter; for a DataLoader, multiprocessing_context='spawn'",
    Cause.GPU_ERROR: "--set CUDA_LAUNCH_BLOCKING=1 shows the failing line; " + RESTART,
    Cause.NCCL_ERROR: "--set NCCL_DEBUG=INFO shows the failing call; --interface NAME chooses the network; " + RESTART,
    Cause.COLLECTIVE_TIMEOUT: "a rank did not reach the collective: a --hang-timeout below the timeout of the process "
    "group saves the stacks of all ranks first",
    Cause.COLLECTIVE_MISMATCH: "make all ranks call the same collectives with the same sizes in the same order; "
    "--set TORCH_DISTRIBUTED_DEBUG=DETAIL names the first difference",
    Cause.RENDEZVOUS: "make every rank call init_process_group with the given RANK, WORLD_SIZE, MASTER_ADDR and "
    "MASTER_PORT; --interface NAME chooses the network",
    Cause.ADDRESS_IN_USE: "use MASTER_ADDR and MASTER_PORT as given instead of a fixed port; --ports A-B gives a free "
    "range",
    Cause.PEER_LOST: "look at the rank that ended first; " + RESTART,
    Cause.NETWORK: "compute nodes often have no internet access: download before the run; if the server was down, "
    + RESTART,
}


@record
class Death:
    cause: Cause
    sentence: str
    hint: str
    details: tuple[str, ...] = ()
    """Further lines for the verdict: facts, Python frames or the last output."""
    signature: str = ""
    """Equal for the same failure at another time: without rank, host, numbers and addresses."""


def death(cause: Cause, sentence: str, *, hint: str = "", details: tuple[str, ...] = (), signature: str = "") -> Death:
    """A death with the hint of its cause, unless the evidence gives a better one."""
    return Death(
        cause=cause, sentence=sentence, hint=hint or HINTS[cause], details=details, signature=signature or cause.value
    )
