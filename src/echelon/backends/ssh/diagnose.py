"""The ssh command, the meaning of its messages, and the checks of a host. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from echelon.backends.ssh.connection import HostReport
from echelon.errors import RemoteError
from echelon.job import Job, ScriptKind
from echelon.record import record
from echelon.shell import Command, format_command

CONNECT_SECONDS = 8
HOST_PYTHON = "python3"
"""The Python that runs the bootstrap if the ranks' Python is inside an environment."""
FAILED = 255  # the exit code of ssh itself; any other code is from the remote command
NOT_FOUND = (126, 127)
MOST_LINES = 6
# Reads one line of Python from stdin and runs it. Code on stdin needs no shell quoting.
BOOTSTRAP_LOADER = 'exec(eval(open(0,"rb",0,closefd=False).readline()))'
# Variables of this machine or session. They would be wrong on another machine.
LOCAL_VARIABLES = frozenset(
    {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "MAIL", "HOSTNAME", "TERM", "TMPDIR"}
    | {"TMP", "TEMP", "DISPLAY", "WAYLAND_DISPLAY", "COLUMNS", "LINES", "WINDOWID", "EDITOR", "VISUAL", "PAGER"}
    | {"VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PYTHONHOME", "LS_COLORS"}
)
LOCAL_PREFIXES = ("SSH_", "XDG_", "DBUS_", "LD_", "CONDA_", "SLURM_", "PBS_", "TMUX", "STY", "VSCODE_", "ECHELON_")


def ssh_argv(host: str, python: str, heartbeat: float) -> list[str]:
    """The user's ssh configuration sets all other options: names, keys, jump hosts and host key checks.

    The command uses an open shared connection of the user (ControlMaster), but never creates one, because it would
    outlive the run.
    """
    options = (
        "BatchMode=yes",
        "ControlMaster=no",
        "ClearAllForwardings=yes",
        "RequestTTY=no",
        "RemoteCommand=none",
        "LogLevel=INFO",
        f"ConnectTimeout={CONNECT_SECONDS}",
        f"ServerAliveInterval={max(1, math.ceil(heartbeat))}",
        "ServerAliveCountMax=2",
    )
    words = [word for option in options for word in ("-o", option)]
    remote = Command(argv=(python, "-I", "-c", BOOTSTRAP_LOADER)).shell_lines(replace_shell=True)
    return ["ssh", "-T", *words, "--", host, *remote]


def variables_to_send(environ: Mapping[str, str], also: Sequence[str]) -> dict[str, str]:
    """The variables to send: the user's variables without those of this machine, plus the names in `also`."""
    return {
        name: value
        for name, value in environ.items()
        if name in also or not (name in LOCAL_VARIABLES or name.startswith(LOCAL_PREFIXES))
    }


@record
class Problem:
    """Why a host cannot be used."""

    host: str
    what: str
    why: str = ""
    """The message of ssh or of the host."""
    hint: str


@record
class Cause:
    pattern: str
    """A regular expression for the message of ssh. The first match is the cause."""
    what: str
    hint: str


CONNECTION_LOST = "closed by remote host|Connection reset|Broken pipe|Connection closed|Connection aborted"
CAUSES = (
    Cause(
        pattern="HOST IDENTIFICATION HAS CHANGED|host key .* has changed",
        what="host key has changed",
        hint="ask its administrator; if the change is expected, ssh-keygen -R {host}, then ssh {host} once",
    ),
    Cause(
        pattern="Host key verification failed|host key is known",
        what="unknown host key",
        hint="ssh {host} once, and compare the fingerprint",
    ),
    Cause(
        pattern="Could not resolve hostname|Name or service not known",
        what="cannot resolve host name",
        hint="check the spelling, or add an address to ~/.ssh/config",
    ),
    Cause(
        pattern="Permission denied|Too many authentication failures|no mutual signature",
        what="passwordless ssh login failed",
        hint="ssh-copy-id {host}, or ssh-add if the key has a passphrase",
    ),
    Cause(
        pattern="Connection refused",
        what="connection refused",
        hint="check that sshd runs there, on that port: ssh {host}",
    ),
    Cause(
        pattern="timed out|No route to host|unreachable|Host is down|not responding|Connection to .* timeout",
        what="no answer",
        hint="check that it is up, or remove it from --hosts",
    ),
    Cause(
        pattern="Bad configuration option|Bad owner or permissions|terminating, .* bad configuration",
        what="cannot read your ssh configuration",
        hint="ssh {host}",
    ),
)


def ssh_problem(host: str, python: str, code: int | None, words: str) -> Problem:
    """Why the connection or the remote Python ended before the first message."""
    why = last_lines(words)
    if code in NOT_FOUND:
        hint = f"--python PATH; the host searches the PATH of a login without a terminal for {python}"
        return Problem(host=host, what=f"cannot run {python}", why=why, hint=hint)
    if code != FAILED:
        what = f"{python} ended with exit code {code} and sent no report"
        return Problem(host=host, what=what, why=why, hint=format_command(("ssh", host, f"{python} --version")))
    for cause in CAUSES:
        if re.search(cause.pattern, words, re.IGNORECASE):
            return Problem(host=host, what=cause.what, why=why, hint=cause.hint.format(host=host))
    return Problem(host=host, what="ssh failed", why=why, hint=format_command(("ssh", "-v", host)))


def is_host_lost(code: int | None, words: str) -> bool:
    """Whether ssh lost the host or never reached it. The exit code alone is not enough: ssh also returns 255 for a
    remote program that was killed."""
    patterns = (CONNECTION_LOST, *(cause.pattern for cause in CAUSES))
    return code == FAILED and any(re.search(one, words, re.IGNORECASE) for one in patterns)


def last_lines(words: str) -> str:
    """The last MOST_LINES lines, without the banner around a changed host key."""
    lines = [line.strip() for line in words.splitlines() if line.strip(" @\r\t")]
    return "\n".join(lines[-MOST_LINES:])


OLDEST_PYTHON = (3, 10)
CLOCK_SECONDS = 5.0


def required_script(job: Job) -> str:
    """The script file that a host must have. Empty if the snapshot has it, or if the job runs no file."""
    if job.snapshot or job.script.kind is not ScriptKind.FILE:
        return ""
    return str(PurePosixPath(job.cwd) / job.script.target)


def host_problem(host: str, job: Job, report: HostReport) -> Problem | None:
    if report.version < OLDEST_PYTHON and not job.is_enclosed:
        version = ".".join(map(str, report.version))
        hint = "--python PATH names another one"
        return Problem(host=host, what=f"{report.python} is Python {version}; 3.10 or newer is needed", hint=hint)
    if job.warm and not report.torch and not job.is_enclosed:
        hint = "--python PATH names another one; --cold starts ranks that need no torch"
        return Problem(host=host, what=f"{report.python} has no torch", hint=hint)
    if not report.script:
        hint = "--snapshot sends the working directory along"
        return Problem(host=host, what=f"no script at {required_script(job)}", hint=hint)
    if 0 < report.gpus < job.resources.gpus_per_node:
        asked = job.resources.gpus_per_node
        hint = f"-g {report.gpus}"
        return Problem(host=host, what=f"{report.gpus} GPUs, but {asked} requested", hint=hint)
    return None


def clock_problem(host: str, report: HostReport, requested_at: float, received_at: float) -> Problem | None:
    """A problem if the clock is off by CLOCK_SECONDS or more: the hosts' clocks decide the order of two failures."""
    ahead = max(report.time - received_at, 0.0) + min(report.time - requested_at, 0.0)
    if abs(ahead) < CLOCK_SECONDS:
        return None
    side = "ahead of" if ahead > 0 else "behind"
    return Problem(
        host=host,
        what=f"clock is {abs(ahead):.0f} s {side} this machine",
        why="the hosts' clocks decide which failure came first",
        hint="synchronize its clock with NTP: sudo timedatectl set-ntp true, on that host",
    )


def host_remarks(hosts: Mapping[str, HostReport], job: Job) -> list[str]:
    """Remarks about unexpected facts that do not stop the run."""
    remarks = []
    bare = [host for host, report in hosts.items() if not report.gpus]
    if job.resources.gpus_per_node and bare and len(bare) < len(hosts):
        remarks.append(f"no GPU on {', '.join(bare)}, but other hosts have GPUs")
    lacking = [host for host, report in hosts.items() if not report.cwd]
    if lacking and not job.snapshot:
        remarks.append(f"no folder {job.cwd} on {', '.join(lacking)}: the ranks there start in the home folder")
    return remarks


def unusable_hosts_error(problems: Sequence[Problem], total: int) -> RemoteError:
    """One error for all problems. A hint that all problems share appears once."""
    hosts = ", ".join(problem.host for problem in problems)
    hints = {problem.hint for problem in problems}
    if len(problems) == 1:
        (problem,) = problems
        return RemoteError(f"{hosts}: {problem.what}", host=hosts, why=problem.why or None, hint=problem.hint)
    lines = [line for problem in problems for line in _problem_lines(problem, with_hint=len(hints) > 1)]
    return RemoteError(
        f"{len(problems)} of {total} hosts cannot be used",
        host=hosts,
        why="\n  " + "\n  ".join(lines),
        hint="echelon resume {run} after that, or remove them from --hosts" if len(hints) > 1 else hints.pop(),
    )


def _problem_lines(problem: Problem, *, with_hint: bool) -> list[str]:
    lines = [f"{problem.host}: {problem.what}", *(f"  | {line}" for line in problem.why.splitlines())]
    return [*lines, f"  try  {problem.hint}"] if with_hint else lines


def exclusion_remark(problem: Problem) -> str:
    """The remark about a host that the run continues without."""
    return ": ".join((f"{problem.host} is not used", problem.what, *problem.why.splitlines()[-1:]))
