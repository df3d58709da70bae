"""The first process of a node: sets up its mounts, starts its daemons, then reaps processes.

Runs inside the node's fresh namespaces. The plan of the node comes on stdin, as JSON. Two open files are
inherited: `ready`, a pipe on which to say that everything answers, and `switch`, the network namespace to plug into.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

BIND = 0x1000 | 0x4000  # MS_BIND | MS_REC
READ_ONLY = 0x1  # MS_RDONLY
DEADLINE_SECONDS = 20
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    plan = json.load(sys.stdin)
    socket.sethostname(plan["name"])
    mount("sysfs", "/sys", "sysfs")  # so that /sys/class/net shows this node's network
    lay_out(plan["mounts"])
    lay_out_devices(plan["gpus"])
    plug_in(plan)
    for daemon in plan["daemons"]:
        start(daemon, f"/run/log/{plan['name']}")
    os.write(plan["ready"], b"ready\n")
    os.close(plan["ready"])
    reap()


def lay_out(mounts: list[list[str]]) -> None:
    """Covers are [target, mode], the others [source, target, kind]; sources are opened before anything is hidden."""
    sources = {step[0]: os.open(step[0], os.O_PATH) for step in mounts if len(step) == 3}
    for step in mounts:
        if len(step) == 2:
            cover(*step)
        elif step[2] == "overlay":
            overlay(sources[step[0]], step[1])
        else:
            bind(sources[step[0]], step[1])
    for fd in sources.values():
        os.close(fd)


def cover(target: str, mode: str) -> None:
    Path(target).mkdir(parents=True, exist_ok=True)
    mount("tmpfs", target, "tmpfs", data=f"mode={mode}")


def overlay(source: int, target: str) -> None:
    mount("overlay", target, "overlay", READ_ONLY, f"lowerdir=/proc/self/fd/{source}:{target}")


def bind(source: int, target: str) -> None:
    inside = f"/proc/self/fd/{source}"
    if Path(inside).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    mount(inside, target, "", BIND)


def lay_out_devices(gpus: int) -> None:
    """A /dev of the node's own. Slurm hands out a GPU only if its file is a character device; /dev/null is one."""
    plain = ["null", "zero", "full", "random", "urandom", "tty"]
    sources = {name: os.open(f"/dev/{name}", os.O_PATH) for name in plain}
    cover("/dev", "755")
    for name, fd in sources.items():
        bind(fd, f"/dev/{name}")
    for gpu in range(gpus):
        bind(sources["null"], f"/dev/nvidia{gpu}")
    for fd in sources.values():
        os.close(fd)
    cover("/dev/shm", "1777")
    Path("/dev/pts").mkdir()
    mount("devpts", "/dev/pts", "devpts", data="newinstance,ptmxmode=666,mode=620")
    for name, link in {
        "ptmx": "pts/ptmx",
        "fd": "/proc/self/fd",
        "stdin": "fd/0",
        "stdout": "fd/1",
        "stderr": "fd/2",
    }.items():
        Path(f"/dev/{name}").symlink_to(link)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    arguments = [text.encode() for text in (source, target, kind)]
    if LIBC.mount(*arguments, ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or 'bind'}: {os.strerror(number)}", target)


def plug_in(plan: dict) -> None:
    """One end of the cable is this node's eth0, the other a port of the switch, which is named after the node."""
    port, switch = f"p-{plan['name']}", f"/proc/self/fd/{plan['switch']}"
    across = ["nsenter", f"--net={switch}", "ip", "link"]
    card = ["name", "eth0", "address", hardware_address(plan["address"]), "netns", "1"]
    call([*across, "add", port, "type", "veth", "peer", *card], pass_fds=[plan["switch"]])
    call([*across, "set", port, "master", "br0", "up"], pass_fds=[plan["switch"]])
    os.close(plan["switch"])
    call(["ip", "link", "set", "lo", "up"])
    call(["ip", "address", "add", plan["address"] + "/24", "dev", "eth0"])
    call(["ip", "link", "set", "eth0", "up"])


def hardware_address(address: str) -> str:
    """The same after every boot, as a real card's: others remember it for a while."""
    return ":".join(["02", "00", *(f"{int(part):02x}" for part in address.split("."))])


def call(argv: list[str], **options) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, **options)


def start(daemon: dict, logs: str) -> None:
    """Starts one daemon in the foreground, as our child, and waits until it answers; or one command, and its end."""
    program = Path(daemon["argv"][0]).name
    with Path(f"{logs}.{program}.log").open("ab") as log:
        options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen(daemon["argv"], **options)
    if daemon["answers"] is None:
        if process.wait(timeout=DEADLINE_SECONDS) != 0:
            sys.exit(f"{program} left with exit code {process.returncode}")
        return
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not answers(daemon["answers"]):
        if process.poll() is not None:
            sys.exit(f"{program} left with exit code {process.returncode}")
        if time.monotonic() > deadline:
            sys.exit(f"{program} did not answer within {DEADLINE_SECONDS} s")
        time.sleep(0.01)


def answers(where: str | int) -> bool:
    """Whether a process listens at a path or a TCP port of this node."""
    family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client:
        return client.connect_ex(where if isinstance(where, str) else (socket.gethostname(), where)) == 0


def reap() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main()
