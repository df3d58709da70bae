"""The ssh command, and the meaning of its messages (OpenSSH 9.2)."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.backends.ssh.diagnose import (
    BOOTSTRAP_LOADER,
    CONNECT_SECONDS,
    is_host_lost,
    last_lines,
    ssh_argv,
    ssh_problem,
    variables_to_send,
)

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Offending ED25519 key in /home/ada/.ssh/known_hosts:1
Host key for gpu1 has changed and you have requested strict checking.
Host key verification failed.
"""


def test_ssh_options_keep_the_users_security_settings():
    argv = ssh_argv("gpu1", "python3", 15.0)
    assert argv[:2] == ["ssh", "-T"]
    assert argv[-3:-1] == ["--", "gpu1"]
    options = argv[3:-3:2]
    assert set(argv[2:-3:2]) == {"-o"}
    assert not [
        option for option in options if "HostKey" in option or "KnownHosts" in option or "ControlPath" in option
    ]
    assert {"BatchMode=yes", f"ConnectTimeout={CONNECT_SECONDS}", "ServerAliveInterval=15"} <= set(options)


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1))
def test_remote_shell_gets_the_python_path_unchanged(python):
    remote = ssh_argv("gpu1", python, 0.1)[-1]
    assert shlex.split(remote) == ["exec", python, "-I", "-c", BOOTSTRAP_LOADER]


def test_bootstrap_loader_has_no_special_characters():
    assert not set(BOOTSTRAP_LOADER) & set("\n!'$`\\")


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (CHANGED, "host key has changed", "ssh-keygen -R gpu1"),
        (
            "No ED25519 host key is known for gpu1 and you have requested strict checking.\nHost key verification failed.",
            "unknown host key",
            "ssh gpu1 once",
        ),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "cannot resolve host name", "spelling"),
        ("ada@gpu1: Permission denied (publickey,password).", "passwordless ssh login failed", "ssh-copy-id gpu1"),
        ("ssh: connect to host gpu1 port 22: Connection refused", "connection refused", "sshd"),
        ("ssh: connect to host gpu1 port 22: No route to host", "no answer", "--hosts"),
        ("ssh: connect to host gpu1 port 22: Connection timed out", "no answer", "--hosts"),
        ("Connection timed out during banner exchange", "no answer", "--hosts"),
        (
            "/home/ada/.ssh/config: line 3: Bad configuration option: hostnam",
            "cannot read your ssh configuration",
            "ssh gpu1",
        ),
        ("something new", "ssh failed", "ssh -v gpu1"),
    ],
)
def test_ssh_messages_have_cause_and_hint(words, what, hint):
    problem = ssh_problem("gpu1", "python3", 255, words)
    assert problem.what == what
    assert hint in problem.hint
    assert problem.why == last_lines(words)
    assert is_host_lost(255, words) == (what != "ssh failed")


def test_missing_python_is_not_an_ssh_failure():
    problem = ssh_problem("gpu1", "python4", 127, "bash: line 1: exec: python4: not found")
    assert (problem.what, problem.why) == (
        "cannot run python4",
        "bash: line 1: exec: python4: not found",
    )
    assert "--python" in problem.hint
    assert "exit code 1 " in ssh_problem("gpu1", "python2", 1, "TypeError").what


def test_banner_of_a_changed_key_is_removed():
    assert "@@@" not in last_lines(CHANGED)
    assert last_lines(CHANGED).endswith("Host key verification failed.")


@pytest.mark.parametrize(
    ("code", "words", "lost"),
    [
        (255, "Connection to gpu1 closed by remote host.", True),
        (255, "client_loop: send disconnect: Broken pipe", True),
        (255, "Timeout, server gpu1 not responding.", True),
        (255, "", False),  # the agent was killed by a signal
        (255, "some warning of the agent's own", False),
        (-9, "", False),  # ssh itself was
        (1, "Connection reset by peer", False),
        (None, "Connection reset by peer", False),
    ],
)
def test_lost_host_and_lost_agent_are_distinct(code, words, lost):
    assert is_host_lost(code, words) is lost


def test_variables_of_this_machine_are_not_sent():
    environ = {
        "PATH": "/here",
        "HOME": "/home/ada",
        "SSH_AUTH_SOCK": "x",
        "XDG_RUNTIME_DIR": "x",
        "LD_PRELOAD": "x",
        "ECHELON_RUNS": "x",
        "WANDB_API_KEY": "k",
        "HF_HOME": "/data/hf",
        "PYTHONPATH": "lib",
        "SSH_TOKEN": "t",
        "A": "two\nlines",
    }
    kept = variables_to_send(environ, ("SSH_TOKEN",))
    assert sorted(kept) == ["A", "HF_HOME", "PYTHONPATH", "SSH_TOKEN", "WANDB_API_KEY"]
    assert kept["A"] == "two\nlines"
