"""What the stand-ins for container runtimes share: a real root of its own, made by a real bubblewrap.

An image of theirs is a real squashfs file with the skeleton of a root in it: /etc/environment, maybe /etc/rc, and
whatever a test looks for. Programs and libraries come from the machine, and so do the folders of STANDIN_FOLDERS,
because an image with torch in it would be gigabytes.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
OF_THE_HOST = ("/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group")  # every one of the real ones does that


def fail(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr, flush=True)
    sys.exit(code)


def unpack(image: str, target: Path, *options: str, log=None) -> int:
    """unsquashfs as enroot calls it: it prints 8 lines of statistics after any error. They go to `log`, or stderr."""
    argv = ["unsquashfs", *options, "-no-progress", "-d", str(target), image]
    output = log or sys.stderr
    return subprocess.run(argv, stdout=output, stderr=output, restore_signals=False, check=False).returncode


def failing_hook(inner: dict) -> str:
    """What enroot's hook for GPUs complains about before any command runs; a variable of its own process wins over
    one of the container."""
    devices = os.environ.get("NVIDIA_VISIBLE_DEVICES", inner.get("NVIDIA_VISIBLE_DEVICES", ""))
    if devices in ("", "void") or shutil.which("nvidia-container-cli"):
        return ""
    return "[ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container"


def is_no(name: str, default: str) -> bool:
    """How enroot reads its switches."""
    return re.fullmatch("no?|N[oO]?|[fF](alse)?|FALSE", os.environ.get(name) or default) is not None


def is_squashfs(image: str) -> bool:
    return subprocess.run(["unsquashfs", "-s", image], capture_output=True, check=False).returncode == 0


def environment_of(root: Path) -> dict[str, str]:
    file = root / "etc" / "environment"
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(line.partition("=")[::2] for line in lines if "=" in line)


def bwrap(root: Path, mounts, *, writable: bool, fresh=("/tmp", "/run"), as_root=False) -> list[str]:
    """The words that run a command in that root; `mounts` are (source, target, read_only)."""
    words = ["/usr/bin/bwrap", "--bind", str(root), "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    for folder in (*SYSTEM, *OF_THE_HOST):
        if Path(folder).exists():
            words += ["--ro-bind", folder, folder]
    words += [word for folder in fresh for word in ("--tmpfs", folder)]
    for folder in filter(None, os.environ.get("STANDIN_FOLDERS", "").split(":")):
        words += ["--ro-bind", folder, folder]
    for source, target, read_only in mounts:
        words += ["--ro-bind" if read_only else "--bind", source, target]
    words += [] if writable else ["--remount-ro", "/"]
    return [*words, *(("--unshare-user", "--uid", "0", "--gid", "0") if as_root else ()), "--chdir", "/"]


def temporary(image: str) -> Path:
    """A root that goes with whoever asked for it."""
    import tempfile

    root = Path(tempfile.mkdtemp(prefix="standin-")) / "root"
    if unpack(image, root) != 0:
        shutil.rmtree(root.parent)
        fail(f"cannot unpack {image}", 255)
    return root
