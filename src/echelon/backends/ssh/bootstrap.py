"""The program that ssh starts on a host. It reports on the host, receives missing files and becomes the agent.

It is sent as text. Any Python from 3.6 on must be able to run it, to report a version that is too old. So it imports
nothing from echelon.
"""

import contextlib
import glob
import hashlib
import importlib.machinery
import json
import os
import select
import shutil
import signal
import site
import socket
import struct
import sys
import tempfile
import threading
import time

MARK = b"\0echelon speaks\0"
"""Precedes the first message. Output before it comes from the host's shell and is ignored."""
NODE_SIDE, NODE_SCRIPT = "echelon.pyz", "node.sh"
SOCKET_NAME = "door"
"""A socket in the agent's folder. An agent inside an environment gets the connection from it."""
LENGTH = struct.Struct(">I")
NOT_ENTERED = 78  # exit code of node.sh if it cannot enter the environment
LAST_WORDS_SECONDS = 10


def main() -> None:
    asked = json.loads(read_frame().decode())
    patience = asked["patience"]
    answer = json.dumps(host_report(asked)).encode()
    os.write(1, MARK + LENGTH.pack(len(answer)) + answer)
    wanted = json.loads(read_frame(patience).decode())
    folder = tempfile.mkdtemp(prefix="echelon-" + asked["run_id"] + "-")
    try:
        os.mkdir(os.path.join(folder, asked["run_id"]), 0o700)  # noqa: PTH102, PTH118  works with old Pythons
        for name in wanted["files"]:
            save_frame(os.path.join(folder, asked["run_id"], name), patience)  # noqa: PTH118
        where = asked["run"] if wanted["shared"] else os.path.join(folder, asked["run_id"])  # noqa: PTH118
        node_side = os.path.join(where, NODE_SIDE)  # noqa: PTH118
        agent = ["-I", node_side, "remote", folder]
        ends = detach_stdio()
        if wanted["inside"]:
            enter_environment(os.path.join(where, NODE_SCRIPT), [wanted["inside"], *agent], folder, ends)  # noqa: PTH118
        for end in ends:
            os.set_inheritable(end, True)
        os.execv(sys.executable, [sys.executable, *agent, *map(str, ends)])
    finally:  # not reached after a successful exec
        shutil.rmtree(folder, ignore_errors=True)


def enter_environment(script: str, argv: list, folder: str, ends: list) -> None:  # type: ignore[type-arg]
    """Runs the agent in the job's environment and does not return.

    This process removes the agent's folder, because an agent in a container cannot. A container runtime may close
    every descriptor above 2, as enroot does, so the agent gets the connection from a socket with a path.
    """
    os.environ["ECHELON_FOLDER"] = folder
    words = os.path.join(folder, "words")  # noqa: PTH118
    listener = socket.socket(socket.AF_UNIX)
    call_with_socket_path(folder, listener.bind)
    listener.listen(2)
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/bash", ["/bin/bash", script, words, *argv])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    relaying = threading.Thread(target=relay, args=(listener, ends), daemon=True)
    relaying.start()
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(OSError):  # an agent that has ended has removed its folder
        call_with_socket_path(
            folder, socket.socket(socket.AF_UNIX).connect
        )  # unblocks `relay` if the agent never connected
    code = ssh_exit_code(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status), words)
    shutil.rmtree(folder, ignore_errors=True)
    relaying.join(LAST_WORDS_SECONDS)
    os._exit(code)


def ssh_exit_code(code: int, words: str) -> int:
    """The exit code for ssh, which reports nothing else: NOT_ENTERED if the container runtime failed.

    If the agent died instead, the file `words` no longer exists.
    """
    if code in (0, NOT_ENTERED) or 128 < code <= 192 or not os.path.exists(words):  # noqa: PTH110
        return code
    hint = "job.out in the run's folder has its output"
    sys.stderr.write("error: the command that enters it failed with exit code %d\n  try   %s\n" % (code, hint))  # noqa: UP031
    sys.stderr.flush()
    return NOT_ENTERED


def call_with_socket_path(folder: str, act) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Calls `act` with a short path of the socket, through a descriptor of its folder: the limit is 107 bytes."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        act("/proc/self/fd/" + str(fd) + "/" + SOCKET_NAME)
    finally:
        os.close(fd)


def relay(listener: socket.socket, ends: list) -> None:  # type: ignore[type-arg]
    """Copies data between the connection and the first client of the socket. The end of one side ends the other."""
    link = listener.accept()[0]
    threading.Thread(target=copy_stream, args=(ends[0], link.fileno(), link, socket.SHUT_WR), daemon=True).start()
    copy_stream(link.fileno(), ends[1], link, socket.SHUT_RDWR)


def copy_stream(source: int, target: int, link: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # either side may be closed
        piece = os.read(source, 1 << 16)
        while piece:
            piece = piece[os.write(target, piece) :] or os.read(source, 1 << 16)
    with contextlib.suppress(OSError):
        link.shutdown(how)


def detach_stdio() -> list:  # type: ignore[type-arg]
    """Moves the two ends of the connection to other descriptors, so that a starting Python neither reads from nor
    prints to them. Stdin becomes /dev/null, and stdout becomes stderr."""
    ends = [os.dup(0), os.dup(1)]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return ends


def host_report(asked: dict) -> dict:  # type: ignore[type-arg]
    """The report on this host: the facts that the job depends on."""
    return {
        "version": list(sys.version_info[:3]),
        "python": sys.executable,
        "torch": has_torch(asked["pythonpath"]),
        "time": time.time(),
        "shared": is_shared(asked["token"], asked["digest"]),
        "cwd": os.access(asked["cwd"], os.R_OK | os.X_OK),
        "script": not asked["script"] or os.path.exists(asked["script"]),  # noqa: PTH110
        "gpus": count_gpus(),
        "address": os.environ.get("SSH_CONNECTION", "- - - -").split()[2],
    }


def has_torch(pythonpath: str) -> bool:
    """Searches for torch without an import, which takes seconds. The ranks' starter imports it later."""
    carried = [entry for entry in (pythonpath + ":" + os.environ.get("PYTHONPATH", "")).split(":") if entry]
    paths = [*carried, *sys.path, site.getusersitepackages()]
    return importlib.machinery.PathFinder.find_spec("torch", paths) is not None


def is_shared(token: str, digest: str) -> bool:
    """Whether this host sees the run directory of the supervisor: only that directory has the token."""
    try:
        with open(token, "rb") as file:  # noqa: PTH123
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False


def count_gpus() -> int:
    """The number of GPUs that the kernel lists, of NVIDIA or else of AMD."""
    nvidia = len(glob.glob("/proc/driver/nvidia/gpus/*"))  # noqa: PTH207
    if nvidia:
        return nvidia
    ids = glob.glob("/sys/class/kfd/kfd/topology/nodes/*/gpu_id")  # noqa: PTH207
    return sum(1 for file in ids if is_gpu(file))


def is_gpu(file: str) -> bool:
    try:
        with open(file) as opened:  # noqa: PTH123
            return opened.read().strip() not in ("", "0")
    except OSError:
        return False


def save_frame(path: str, patience: float) -> None:
    """Writes the next frame to a file."""
    left = LENGTH.unpack(read_exactly(LENGTH.size, patience))[0]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        while left:
            file.write(read_exactly(min(left, 1 << 20), patience))
            left -= min(left, 1 << 20)


def read_frame(patience: float = 60.0) -> bytes:
    return read_exactly(LENGTH.unpack(read_exactly(LENGTH.size, patience))[0], patience)


def read_exactly(count: int, patience: float) -> bytes:
    """Reads exactly `count` bytes from the supervisor. Exits if the connection ends or no data arrives for `patience`
    seconds."""
    data = b""
    while len(data) < count:
        ready = select.select([0], [], [], patience)[0]
        piece = os.read(0, count - len(data)) if ready else b""
        if not piece:
            raise SystemExit(0)
        data += piece
    return data


if __name__ == "__main__":
    main()
