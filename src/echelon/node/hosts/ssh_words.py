"""How ssh is called, and what its words mean. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon.command import Command, typed

CONNECT_SECONDS = 8
HOST_PYTHON = "python3"
"""What a host is asked with where the ranks' own Python is inside of an environment."""
FAILED = 255  # ssh's own; every other code is the remote command's
NOT_FOUND = (126, 127)
MOST_LINES = 6

# Enough to read the rest from where nothing needs quoting: one line of Python, then whatever it asks for.
FIRST_WORD = 'exec(eval(open(0,"rb",0,closefd=False).readline()))'

# What describes this machine or this session, and would mislead a program on another one.
OWN_NAMES = frozenset(
    {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "MAIL", "HOSTNAME", "TERM", "TMPDIR"}
    | {"TMP", "TEMP", "DISPLAY", "WAYLAND_DISPLAY", "COLUMNS", "LINES", "WINDOWID", "EDITOR", "VISUAL", "PAGER"}
    | {"VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PYTHONHOME", "LS_COLORS"}
)
OWN_BEGINNINGS = ("SSH_", "XDG_", "DBUS_", "LD_", "CONDA_", "SLURM_", "PBS_", "TMUX", "STY", "VSCODE_", "ECHELON_")


def ssh_argv(host: str, python: str, heartbeat: float) -> list[str]:
    """The user's own configuration decides everything else: names, keys, jump hosts, and how strict host keys are.

    A connection that the user keeps open (ControlMaster) is used, but ours never becomes one: it would outlive the run.
    """
    options = (
        *("BatchMode=yes", "ControlMaster=no", "ClearAllForwardings=yes", "RequestTTY=no", "RemoteCommand=none"),
        *("LogLevel=INFO", f"ConnectTimeout={CONNECT_SECONDS}", f"ServerAliveInterval={max(1, math.ceil(heartbeat))}"),
        "ServerAliveCountMax=2",
    )
    words = [word for option in options for word in ("-o", option)]
    remote = Command(argv=(python, "-I", "-c", FIRST_WORD)).shell_lines(replace_shell=True)
    return ["ssh", "-T", *words, "--", host, *remote]


def carried(environ: Mapping[str, str], also: Sequence[str]) -> dict[str, str]:
    """The variables that go along: what the user exported, less what belongs to this machine."""
    return {
        name: value
        for name, value in environ.items()
        if name in also or not (name in OWN_NAMES or name.startswith(OWN_BEGINNINGS))
    }


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a host cannot be used."""

    host: str
    what: str
    why: str = ""
    """The words of ssh, or of the host."""
    hint: str


@dataclass(frozen=True, kw_only=True)
class Cause:
    says: str
    """What ssh says, as a regular expression; the first that fits is the cause."""
    what: str
    hint: str


LOST = "closed by remote host|Connection reset|Broken pipe|Connection closed|Connection aborted"
CAUSES = (
    Cause(
        says="HOST IDENTIFICATION HAS CHANGED|host key .* has changed",
        what="its host key has changed",
        hint="ask its administrator; if it is right, ssh-keygen -R {host}, then ssh {host} once",
    ),
    Cause(
        says="Host key verification failed|host key is known",
        what="its host key is not known here",
        hint="ssh {host} once, and compare the fingerprint",
    ),
    Cause(
        says="Could not resolve hostname|Name or service not known",
        what="nobody knows that name",
        hint="check the spelling, or give it an address in ~/.ssh/config",
    ),
    Cause(
        says="Permission denied|Too many authentication failures|no mutual signature",
        what="it does not let you in without a password",
        hint="ssh-copy-id {host}, or ssh-add where the key has a passphrase",
    ),
    Cause(
        says="Connection refused",
        what="it refuses connections",
        hint="is sshd running there, and on that port? ssh {host}",
    ),
    Cause(
        says="timed out|No route to host|unreachable|Host is down|not responding|Connection to .* timeout",
        what="it does not answer",
        hint="see whether it is up, or leave it out of --hosts",
    ),
    Cause(
        says="Bad configuration option|Bad owner or permissions|terminating, .* bad configuration",
        what="your ssh configuration cannot be read",
        hint="ssh {host}",
    ),
)


def problem_of_ssh(host: str, python: str, code: int | None, words: str) -> Problem:
    """Why the connection, or the Python behind it, ended before it said anything."""
    why = essential(words)
    if code in NOT_FOUND:
        hint = f"--python PATH names another one; there it is looked up by a login without a terminal ({python})"
        return Problem(host=host, what=f"there is no {python} that could be run", why=why, hint=hint)
    if code != FAILED:
        what = f"{python} ended with exit code {code} before it said anything"
        return Problem(host=host, what=what, why=why, hint=typed(("ssh", host, f"{python} --version")))
    for cause in CAUSES:
        if re.search(cause.says, words, re.IGNORECASE):
            return Problem(host=host, what=cause.what, why=why, hint=cause.hint.format(host=host))
    return Problem(host=host, what="ssh failed", why=why, hint=typed(("ssh", "-v", host)))


def is_host_lost(code: int | None, words: str) -> bool:
    """Whether ssh lost the host, or never reached it; 255 is also what it says of a program that was killed there."""
    says = (LOST, *(cause.says for cause in CAUSES))
    return code == FAILED and any(re.search(one, words, re.IGNORECASE) for one in says)


def essential(words: str) -> str:
    """Without the banner around a changed key; the end of what remains."""
    lines = [line.strip() for line in words.splitlines() if line.strip(" @\r\t")]
    return "\n".join(lines[-MOST_LINES:])
