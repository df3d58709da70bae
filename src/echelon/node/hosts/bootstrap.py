"""What ssh starts on a host: sent there as text, it says what there is, takes what is missing and becomes the agent.

Any Python from 3.6 on must be able to read it, if only to say that it is too old; so it imports nothing of ours.
"""

import glob
import hashlib
import importlib.machinery
import json
import os
import select
import shutil
import signal
import site
import struct
import sys
import tempfile
import time

MARK = b"\0echelon speaks\0"
"""Before the first message: whatever the host's shell prints before it is none of ours."""
NODE_SIDE, NODE_SCRIPT = "echelon.pyz", "node.sh"
LENGTH = struct.Struct(">I")


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
        agent = ["-I", node_side, "remote", folder, *set_aside()]
        if wanted["inside"]:
            enter(os.path.join(where, NODE_SCRIPT), [wanted["inside"], *agent], folder)  # noqa: PTH118
        os.execv(sys.executable, [sys.executable, *agent])
    finally:  # not reached where all goes well
        shutil.rmtree(folder, ignore_errors=True)


def enter(script: str, argv: list, folder: str) -> None:  # type: ignore[type-arg]
    """Runs the agent in the job's environment. In a container it could not remove its own folder, so that is for us."""
    os.environ["ECHELON_FOLDER"] = folder
    words = os.path.join(folder, "words")  # noqa: PTH118
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/bash", ["/bin/bash", script, words, *argv])
    for end in argv[-2:]:
        os.close(int(end))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    status = os.waitpid(pid, 0)[1]
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def set_aside() -> list:  # type: ignore[type-arg]
    """The connection's two ends, where nothing that prints or reads while a Python starts can touch them."""
    ends = [os.dup(0), os.dup(1)]
    for end in ends:
        os.set_inheritable(end, True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return [str(end) for end in ends]


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
