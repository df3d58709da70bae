"""How ssh is called, and what its words mean. The words are those of OpenSSH 9.2."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.node.hosts.ssh_words import (
    CONNECT_SECONDS,
    FIRST_WORD,
    carried,
    essential,
    is_host_lost,
    problem_of_ssh,
    ssh_argv,
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


def test_nothing_of_ours_weakens_the_users_configuration():
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
def test_the_shell_there_reads_the_python_as_it_was_given(python):
    remote = ssh_argv("gpu1", python, 0.1)[-1]
    assert shlex.split(remote) == ["exec", python, "-I", "-c", FIRST_WORD]


def test_the_first_word_has_nothing_that_some_shell_minds():
    assert not set(FIRST_WORD) & set("\n!'$`\\")


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (CHANGED, "its host key has changed", "ssh-keygen -R gpu1"),
        ("No ED25519 host key is known for gpu1 and you have requested strict checking.\nHost key verification failed.",
         "its host key is not known here", "ssh gpu1 once"),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "nobody knows that name", "spelling"),
        ("ada@gpu1: Permission denied (publickey,password).", "it does not let you in without a password", "ssh-copy-id gpu1"),
        ("ssh: connect to host gpu1 port 22: Connection refused", "it refuses connections", "sshd"),
        ("ssh: connect to host gpu1 port 22: No route to host", "it does not answer", "--hosts"),
        ("ssh: connect to host gpu1 port 22: Connection timed out", "it does not answer", "--hosts"),
        ("Connection timed out during banner exchange", "it does not answer", "--hosts"),
        ("/home/ada/.ssh/config: line 3: Bad configuration option: hostnam", "your ssh configuration cannot be read", "ssh gpu1"),
        ("something new", "ssh failed", "ssh -v gpu1"),
    ],
)  # fmt: skip
def test_what_ssh_says_has_a_cause_and_a_fix(words, what, hint):
    problem = problem_of_ssh("gpu1", "python3", 255, words)
    assert problem.what == what
    assert hint in problem.hint
    assert problem.why == essential(words)
    assert is_host_lost(255, words) == (what != "ssh failed")


def test_a_python_that_is_not_there_is_no_fault_of_ssh():
    problem = problem_of_ssh("gpu1", "python4", 127, "bash: line 1: exec: python4: not found")
    assert (problem.what, problem.why) == (
        "there is no python4 that could be run",
        "bash: line 1: exec: python4: not found",
    )
    assert "--python" in problem.hint
    assert "exit code 1 " in problem_of_ssh("gpu1", "python2", 1, "TypeError").what


def test_the_banner_around_a_changed_key_is_left_out():
    assert "@@@" not in essential(CHANGED)
    assert essential(CHANGED).endswith("Host key verification failed.")


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
def test_a_lost_host_is_told_from_a_lost_agent(code, words, lost):
    assert is_host_lost(code, words) is lost


def test_what_belongs_to_this_machine_stays_here():
    environ = {
        "PATH": "/here", "HOME": "/home/ada", "SSH_AUTH_SOCK": "x", "XDG_RUNTIME_DIR": "x", "LD_PRELOAD": "x",
        "ECHELON_RUNS": "x", "WANDB_API_KEY": "k", "HF_HOME": "/data/hf", "PYTHONPATH": "lib", "SSH_TOKEN": "t",
        "A": "two\nlines",
    }  # fmt: skip
    kept = carried(environ, ("SSH_TOKEN",))
    assert sorted(kept) == ["A", "HF_HOME", "PYTHONPATH", "SSH_TOKEN", "WANDB_API_KEY"]
    assert kept["A"] == "two\nlines"
