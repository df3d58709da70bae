"""Finds the cause of a death by an exception: from its type, its message and its traceback."""

from __future__ import annotations

import re
from dataclasses import replace

from echelon.diagnosis.causes import Cause, Death, death
from echelon.diagnosis.death_evidence import DeathEvidence, DiskFacts
from echelon.text import format_size, plural

MOST_SENTENCE_CHARS = 300
NEARLY_FULL_BYTES = 1 << 20
RESERVED_SHARE = 0.1
"""From this share of the GPU on, memory that is reserved but unused hints at fragmentation."""

# The first pattern that matches "Type: message" decides, so special ones come before general ones.
PATTERNS: tuple[tuple[Cause, str], ...] = (
    (Cause.SHARED_MEMORY, r"out of shared memory|insufficient shared memory|killed by signal: Bus error"),
    (Cause.SHARED_MEMORY, r"unable to (write to file|allocate shared memory\(shm\) for file) </torch_"),
    (Cause.SHARED_MEMORY, r"No space left on device: '/dev/shm/"),
    (Cause.GPU_MEMORY, r"\b(CUDA|HIP|XPU|MPS backend) out of memory|CUDA error: out of memory"),
    (Cause.GPU_MEMORY, r"(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation"),
    (Cause.OPEN_FILES, r"Too many open files|received 0 items of ancdata"),
    (Cause.PROCESS_LIMIT, r"can't start new thread|[Tt]hread creation failed|pthread_create\b.*failed"),
    (Cause.QUOTA, r"Disk quota exceeded"),
    (Cause.NO_SPACE, r"No space left on device"),
    (Cause.MEMORY_ERROR, r"^(\w+\.)*_?(Array)?MemoryError\b|DefaultCPUAllocator: can't allocate|std::bad_alloc"),
    (Cause.MEMORY_ERROR, r"Cannot allocate memory"),
    (Cause.GPU_HARDWARE, r"uncorrectable (ECC|NVLink) error|GPU is lost|fallen off the bus|ECC_UNCORRECTABLE"),
    (Cause.GPU_HARDWARE, r"over nvlink or a hardware error|hardware stack error|system not yet initialized"),
    (Cause.GPU_ASSERT, r"device-side assert"),
    (Cause.GPU_ARCHITECTURE, r"no kernel image is available|not compatible with the current PyTorch installation"),
    (Cause.DRIVER_TOO_OLD, r"driver on your system is too old|driver version is insufficient|forward compatibility"),
    (Cause.GPU_FORK, r"Cannot re-initialize CUDA in forked subprocess"),
    (Cause.GPU_MISSING, r"No CUDA GPUs are available|Found no NVIDIA driver|invalid device ordinal|no CUDA-capable"),
    (Cause.GPU_MISSING, r"CUDA-capable device\(s\) is/are busy|devices are busy or unavailable|Duplicate GPU detected"),
    (Cause.COLLECTIVE_MISMATCH, r"Detected mismatch between collectives|op\.preamble\.length <= op\.nbytes"),
    (Cause.COLLECTIVE_TIMEOUT, r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (send|recv)"),
    (Cause.COLLECTIVE_TIMEOUT, r"failed to pass monitoredBarrier|[Cc]ollective [^\n]*timed out"),
    (Cause.ADDRESS_IN_USE, r"Address already in use|EADDRINUSE"),
    (Cause.PEER_LOST, r"ncclRemoteError|Connection (closed|reset|refused)|remote process exited|Broken pipe"),
    (Cause.NCCL_ERROR, r"NCCL error|\bnccl(System|Internal|Invalid|Unhandled)\w+|NCCL communicator was aborted"),
    (Cause.RENDEZVOUS, r"^(\w+\.)*Dist(Network|Store|Backend)?Error\b|clients joined|Rendezvous\w+Error"),
    (Cause.GPU_ERROR, r"CUDA error|cuDNN error|CUDNN_STATUS|CUBLAS_STATUS|^(\w+\.)*AcceleratorError"),
    (Cause.DATA_WORKER, r"DataLoader worker .*(exited unexpectedly|is killed by signal)|Pin memory thread exited"),
    (Cause.NOT_A_NUMBER, r"^FloatingPointError\b|returned nan values|is non-finite, so it cannot be clipped"),
    (Cause.NOT_A_NUMBER, r"(?i:\b(loss|grad(ient)?s?|norm|outputs?|weights?)\b[^\n]{0,60}\b(nan|non-finite)\b)"),
    (Cause.NOT_A_NUMBER, r"(?i:\bnan\b[^\n]{0,40}\b(loss|grad(ient)?s?|norm|outputs?|weights?)\b)"),
    (Cause.NOT_A_NUMBER, r"found invalid values:\s*tensor\([^a-z]*nan"),
    (Cause.ENDED_BY_SIGNAL, r"^KeyboardInterrupt\b"),
    (Cause.SYNTAX_ERROR, r"^(SyntaxError|IndentationError|TabError)\b"),
    (Cause.MISSING_MODULE, r"^ModuleNotFoundError\b"),
    (Cause.BROKEN_LIBRARY, r"cannot open shared object file|undefined symbol|version `\w+' not found|wrong ELF class"),
    (Cause.BROKEN_LIBRARY, r"^ImportError: .*\.so\b"),
    (Cause.MISSING_MODULE, r"^ImportError\b"),
    (Cause.MISSING_FILE, r"^(FileNotFoundError|NotADirectoryError)\b"),
    (Cause.PERMISSION, r"^PermissionError\b|Read-only file system"),
    (Cause.FILE_SYSTEM, r"Input/output error|Stale file handle|Transport endpoint is not connected|Remote I/O error"),
    (Cause.NETWORK, r"Name or service not known|Temporary failure in name resolution|Max retries exceeded with url"),
    (Cause.NETWORK, r"^(\w+\.)*(ConnectionError|URLError|TimeoutError|ConnectTimeout|ReadTimeout)\b|Errno 113\b"),
)
_COMPILED = tuple((cause, re.compile(pattern, re.MULTILINE)) for cause, pattern in PATTERNS)
_FORKS = re.compile(
    r"os\.fork\(|fork_exec\(|in (_execute_child|_launch|_posix_spawn|_start_new_thread|fork)$", re.MULTILINE
)
_CAUGHT = re.compile(r"Caught \S+ in (DataLoader worker process \d+|pin memory thread[^.]*)")
_AGAIN = re.compile(r"Errno 11\b|Resource temporarily unavailable")
_OF_WORKER = re.compile(r"utils/data/(dataloader|_utils)")
_BROKEN_PIPES = re.compile(r"^(Connection\w+Error|BrokenPipeError|EOFError|FileNotFoundError)\b")
"""What the main process raises if a DataLoader worker dies while it sends a batch."""
_OF_TORCH = re.compile(r"torch[./]distributed|gloo|nccl|c10d|Dist\w*Error", re.IGNORECASE)
_FULL_WRITER = re.compile(r"PytorchStreamWriter failed writing|unexpected pos \d+ vs \d+|file write failed")
_CAPACITY = re.compile(
    r"Tried to allocate (?P<wanted>[\d.]+ \w+).*?GPU (?P<gpu>\d+)(?: has a total capaci?ty of |; )"
    r"(?P<total>[\d.]+ \w+).*?(?P<free>[\d.]+ \w+) (?:is )?free",
    re.DOTALL,
)
_RESERVED = re.compile(r"([\d.]+ \w+) is reserved by PyTorch but unallocated")
_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def explain_exception(evidence: DeathEvidence, who: str) -> Death | None:
    """None without an exception."""
    if not evidence.error_type:
        return None
    cause = _cause_of_exception(evidence)
    sentence = f"{who} raised {evidence.error_type}: {_headline(evidence)}".rstrip(": ")
    found = death(cause, sentence, signature=signature(evidence.error_type, evidence.error_message))
    match cause:
        case Cause.GPU_MEMORY:
            return _gpu_memory(found, evidence.error_message, who)
        case Cause.MEMORY_ERROR:
            return _host_memory(found, evidence)
        case Cause.DATA_WORKER:
            return _data_worker(found, evidence, who)
        case Cause.PROCESS_LIMIT | Cause.OPEN_FILES:
            return _explain_limit(found, evidence)
        case Cause.NO_SPACE | Cause.NO_INODES | Cause.QUOTA:
            if _FULL_WRITER.search(evidence.error_message):
                found = replace(found, sentence=f"{found.sentence}: the file system was probably full")
            return _explain_full_disk(found, evidence.disk)
        case Cause.SHARED_MEMORY:
            return _shared_memory(found, evidence)
        case Cause.SYNTAX_ERROR:
            return replace(found, details=_last_place(evidence.traceback))
    return found


def _headline(evidence: DeathEvidence) -> str:
    """The first line of the message. For an error of a DataLoader worker the last line, which is the error itself."""
    head = first_line(evidence.error_message)
    caught = _CAUGHT.match(head)
    if caught is None:
        return head
    original = first_line(evidence.error_message.strip().splitlines()[-1]).removeprefix(f"{evidence.error_type}: ")
    return f"{original} (in {caught[1]})" if original != head else head


def cause_of_text(text: str) -> Cause | None:
    """The cause that the text of an exception or of a native library names."""
    return next((cause for cause, pattern in _COMPILED if pattern.search(text)), None)


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:MOST_SENTENCE_CHARS]


def signature(kind: str, message: str) -> str:
    plain = re.sub(r"0x[0-9a-f]+|\d+", "#", first_line(message))
    return f"{kind}: {plain}"


def _cause_of_exception(evidence: DeathEvidence) -> Cause:
    text = f"{evidence.error_type}: {evidence.error_message}"
    if _AGAIN.search(text) and _FORKS.search(evidence.traceback):
        return Cause.PROCESS_LIMIT
    if _BROKEN_PIPES.search(text) and "multiprocessing/connection.py" in evidence.traceback:
        return Cause.DATA_WORKER if _OF_WORKER.search(evidence.traceback) else Cause.EXCEPTION
    cause = cause_of_text(text) or Cause.EXCEPTION
    if cause is Cause.PEER_LOST and evidence.traceback and not _OF_TORCH.search(f"{text}\n{evidence.traceback}"):
        return Cause.NETWORK  # a connection of the script itself
    if cause is Cause.NO_SPACE and _has_no_inodes(evidence.disk):
        return Cause.NO_INODES
    if cause is Cause.EXCEPTION and _FULL_WRITER.search(text):
        return Cause.NO_SPACE  # torch.save does not name the reason
    return cause


def _has_no_inodes(disk: DiskFacts) -> bool:
    return bool(disk.inodes) and disk.free_inodes == 0 and (disk.free_bytes or 0) > NEARLY_FULL_BYTES


def _gpu_memory(found: Death, message: str, who: str) -> Death:
    facts = _CAPACITY.search(message)
    if facts is None:
        return found
    sentence = (
        f"{who} ran out of GPU memory: tried to allocate {facts['wanted']}; "
        f"GPU {facts['gpu']} has {facts['total']}, {facts['free']} free"
    )
    reserved = _RESERVED.search(message)
    hint = found.hint
    if reserved is not None and _parse_size(reserved[1]) > RESERVED_SHARE * _parse_size(facts["total"]):
        hint += "; --set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True reduces fragmentation"
    return replace(found, sentence=sentence, hint=hint)


def _parse_size(text: str) -> float:
    amount, _, unit = text.partition(" ")
    return float(amount) * _UNITS.get(unit, 1)


def _host_memory(found: Death, evidence: DeathEvidence) -> Death:
    limit = evidence.limits.address_space
    if limit is None:
        return found
    hint = f"--setup 'ulimit -v unlimited' removes the limit on address space (now {format_size(limit)})"
    return replace(found, hint=hint)


def _data_worker(found: Death, evidence: DeathEvidence, who: str) -> Death:
    if evidence.memory.kills:
        limit = evidence.memory.limit
        named = f" (limit {format_size(limit)})" if limit is not None else ""
        sentence = f"the kernel killed a DataLoader worker of {who} for memory{named}"
        return death(Cause.OUT_OF_MEMORY, sentence, details=(found.sentence,), signature=found.signature)
    if "DataLoader" in found.sentence:
        return found
    return replace(found, sentence=f"a DataLoader worker of {who} died", details=(found.sentence,))


def _explain_limit(found: Death, evidence: DeathEvidence) -> Death:
    limits = evidence.limits
    if found.cause is Cause.OPEN_FILES:
        named = f"ulimit -n is {limits.open_files}" if limits.open_files is not None else ""
    elif limits.refused_forks and limits.cgroup_processes is not None:
        named = f"pids.max of the cgroup is {limits.cgroup_processes}"
        hint = "use fewer DataLoader workers and threads (--set OMP_NUM_THREADS=1), or ask for a higher pids.max"
        found = replace(found, hint=hint)
    else:
        named = f"ulimit -u is {limits.processes}" if limits.processes is not None else ""
    return replace(found, details=(named,) if named else ())


def _explain_full_disk(found: Death, disk: DiskFacts) -> Death:
    if not disk.path:
        return found
    details = []
    if disk.free_bytes is not None:
        details.append(f"{format_size(disk.free_bytes)} free on the file system of {disk.path}")
    if found.cause is Cause.NO_INODES:
        details.append(f"no free inode of {plural(disk.inodes or 0, 'inode')}")
    hint = found.hint.replace("the full file system", f"the file system of {disk.path}")
    return replace(found, hint=hint, details=tuple(details))


def _last_place(traceback: str) -> tuple[str, ...]:
    places = re.findall(r'^ *(File "[^"]+", line \d+)', traceback, re.MULTILINE)
    return tuple(places[-1:])


def _shared_memory(found: Death, evidence: DeathEvidence) -> Death:
    size = evidence.shared_memory.size
    return replace(found, details=(f"size of /dev/shm: {format_size(size)}",)) if size is not None else found
