"""What ssh starts on a host: sent there as text, it says what there is, takes what is missing and becomes the agent.

Any Python from 3.6 on must be able to read it, if only to say that it is too old; so it imports nothing of ours.
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
"""Before the first message: whatever the host's shell prints before it is none of ours."""
NODE_SIDE, NODE_SCRIPT = "echelon.pyz", "node.sh"
DOOR = "door"
"""A socket in the agent's folder, where it comes for the connection if it is in an environment."""
LENGTH = struct.Struct(">I")
NOT_ENTERED = 78  # node.sh's own word for it
LAST_WORDS_SECONDS = 10


def main() -> None:
    asked = json.loads(frame().decode())
    patience = asked["patience"]
    answer = json.dumps(look(asked)).encode()
    os.write(1, MARK + LENGTH.pack(len(answer)) + answer)
    wanted = json.loads(frame(patience).decode())
    folder = tempfile.mkdtemp(prefix="echelon-" + asked["run_id"] + "-")
    try:
        os.mkdir(os.path.join(folder, asked["run_id"]), 0o700)  # noqa: PTH102, PTH118  plain for old Pythons
        for name in wanted["files"]:
            keep(os.path.join(folder, asked["run_id"], name), patience)  # noqa: PTH118
        where = asked["run"] if wanted["shared"] else os.path.join(folder, asked["run_id"])  # noqa: PTH118
        node_side = os.path.join(where, NODE_SIDE)  # noqa: PTH118
        agent = ["-I", node_side, "remote", folder]
        ends = set_aside()
        if wanted["inside"]:
            enter(os.path.join(where, NODE_SCRIPT), [wanted["inside"], *agent], folder, ends)  # noqa: PTH118
        for end in ends:
            os.set_inheritable(end, True)
        os.execv(sys.executable, [sys.executable, *agent, *map(str, ends)])
    finally:  # not reached where all goes well
        shutil.rmtree(folder, ignore_errors=True)


def enter(script: str, argv: list, folder: str, ends: list) -> None:  # type: ignore[type-arg]
    """Runs the agent in the job's environment. In a container it could not remove its own folder, so that is for us.
    A runtime may close every descriptor above 2, as enroot does, so the agent comes for the connection by a path."""
    os.environ["ECHELON_FOLDER"] = folder
    words = os.path.join(folder, "words")  # noqa: PTH118
    door = socket.socket(socket.AF_UNIX)
    at_door(folder, door.bind)
    door.listen(2)
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/bash", ["/bin/bash", script, words, *argv])
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    relaying = threading.Thread(target=relay, args=(door, ends), daemon=True)
    relaying.start()
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(OSError):  # one that came and went has cleared its folder
        at_door(folder, socket.socket(socket.AF_UNIX).connect)  # in place of an agent that never came
    code = verdict(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status), words)
    shutil.rmtree(folder, ignore_errors=True)
    relaying.join(LAST_WORDS_SECONDS)
    os._exit(code)


def verdict(code: int, words: str) -> int:
    """Words that are still there tell a runtime that failed from an agent that died; ssh has but the code to tell."""
    if code in (0, NOT_ENTERED) or 128 < code <= 192 or not os.path.exists(words):  # noqa: PTH110
        return code
    hint = "job.out in the run's folder has what it said"
    sys.stderr.write("error: what leads into it ended with exit code %d\n  try   %s\n" % (code, hint))  # noqa: UP031
    sys.stderr.flush()
    return NOT_ENTERED


def at_door(folder: str, act) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """By way of its folder: the path of a socket may have no more than 107 bytes."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        act("/proc/self/fd/" + str(fd) + "/" + DOOR)
    finally:
        os.close(fd)


def relay(door: socket.socket, ends: list) -> None:  # type: ignore[type-arg]
    """Between the connection and whoever comes first; its end is the other's end, either way."""
    link = door.accept()[0]
    threading.Thread(target=pump, args=(ends[0], link.fileno(), link, socket.SHUT_WR), daemon=True).start()
    pump(link.fileno(), ends[1], link, socket.SHUT_RDWR)


def pump(source: int, target: int, link: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # either of them may be gone
        piece = os.read(source, 1 << 16)
        while piece:
            piece = piece[os.write(target, piece) :] or os.read(source, 1 << 16)
    with contextlib.suppress(OSError):
        link.shutdown(how)


def set_aside() -> list:  # type: ignore[type-arg]
    """The connection's two ends, where nothing that prints or reads while a Python starts can touch them."""
    ends = [os.dup(0), os.dup(1)]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return ends


def look(asked: dict) -> dict:  # type: ignore[type-arg]
    """What there is on this host, of what the job needs."""
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
    """Found, not imported: that takes seconds, and the ranks' starter does it anyway."""
    carried = [entry for entry in (pythonpath + ":" + os.environ.get("PYTHONPATH", "")).split(":") if entry]
    paths = [*carried, *sys.path, site.getusersitepackages()]
    return importlib.machinery.PathFinder.find_spec("torch", paths) is not None


def is_shared(token: str, digest: str) -> bool:
    """Whether the run directory of the supervisor's machine is seen here: its token is nowhere else."""
    try:
        with open(token, "rb") as file:  # noqa: PTH123
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False


def count_gpus() -> int:
    """As the kernel lists them."""
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


def keep(path: str, patience: float) -> None:
    """The next frame, as a file."""
    left = LENGTH.unpack(take(LENGTH.size, patience))[0]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        while left:
            file.write(take(min(left, 1 << 20), patience))
            left -= min(left, 1 << 20)


def frame(patience: float = 60.0) -> bytes:
    return take(LENGTH.unpack(take(LENGTH.size, patience))[0], patience)


def take(count: int, patience: float) -> bytes:
    """Exactly so much of what comes from the supervisor, and not a byte of what follows; leaves with it."""
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
