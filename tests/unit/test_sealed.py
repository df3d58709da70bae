"""Environments under a seal: what goes in comes out, and nobody without the key learns anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.backends.pbs.environment import KEY_VARIABLE, decrypt_environ, encrypt_environ, is_propagated

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True).filter(is_propagated)
values = st.text(st.characters(codec=None)).filter(lambda text: "\0" not in text)


@given(st.dictionaries(names, values))
def test_sealed_environ_is_restored(environ):
    data, key = encrypt_environ(environ)
    assert decrypt_environ(data, key) == environ


def test_sealed_environ_is_unreadable():
    data, key = encrypt_environ({"API_TOKEN": "s3cr3t"})
    assert b"s3cr3t" not in data
    assert b"TOKEN" not in data
    assert key.encode() not in data
    assert encrypt_environ({"API_TOKEN": "s3cr3t"})[0] != data, "a key is used once"


@pytest.mark.parametrize("key", ["", "00" * 32, "not hexadecimal"])
def test_another_key_is_refused(key):
    data, _ = encrypt_environ({"A": "b"})
    with pytest.raises(ValueError):
        decrypt_environ(data, key)


def test_changed_seal_is_refused():
    data, key = encrypt_environ({"A": "b"})
    for place in (0, 31, 32, len(data) - 1):
        broken = bytearray(data)
        broken[place] ^= 1
        with pytest.raises(ValueError, match="does not match"):
            decrypt_environ(bytes(broken), key)


@pytest.mark.parametrize(
    "name",
    [
        "PBS_JOBID",
        "PBS_NODEFILE",
        "TMPDIR",
        "HOSTNAME",
        "PWD",
        "SHLVL",
        "_",
        "UID",
        "SHELLOPTS",
        "BASH_FUNC_ml%%",
        "A-B",
        "1A",
        KEY_VARIABLE,
    ],
)
def test_machine_job_and_shell_variables_are_not_sent(name):
    assert not is_propagated(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "PYTHONPATH", "WANDB_API_KEY", "LD_LIBRARY_PATH", "PBSPRO", "_A"])
def test_other_variables_are_sent(name):
    assert is_propagated(name)
