"""An sshd on the loopback interface, and an `ssh` first on PATH that connects to it as host `smoke`."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path

from running import wait_for

SSHD_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
HOST = "smoke"


class LoopbackSsh:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o700)
        self.port = _free_port()
        for name in ("host_key", "user_key"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(argv, check=True, capture_output=True)
        (folder / "log").touch()
        self._daemon = subprocess.Popen(self._sshd_argv(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._write_client()
        wait_for(self._answers, f"sshd to listen: {(folder / 'log').read_text()}", 20)

    def close(self) -> None:
        self._daemon.terminate()
        self._daemon.wait()

    def _sshd_argv(self) -> list[str]:
        """Without a file of settings: nothing of the machine's own sshd is read or changed."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it, and only its own service makes it
        options = {
            "ListenAddress": "127.0.0.1",
            "Port": self.port,
            "HostKey": self.folder / "host_key",
            "UsePAM": "no",
            "AuthorizedKeysFile": self.folder / "user_key.pub",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "PidFile": "none",
            "PermitRootLogin": "prohibit-password",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return [sshd_program() or "", "-D", "-f", "/dev/null", "-E", str(self.folder / "log"), *words]

    def _write_client(self) -> None:
        config = self.folder / "config"
        config.write_text(
            f"Host {HOST}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.folder}/user_key\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder}/known\n"
            "  StrictHostKeyChecking accept-new\n"
        )
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        client = self.bin / "ssh"
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        client.chmod(0o755)

    def _answers(self) -> bool:
        return subprocess.run([self.bin / "ssh", HOST, "true"], capture_output=True, check=False).returncode == 0


def sshd_program() -> str | None:
    return shutil.which("sshd", path=SSHD_PATH)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
