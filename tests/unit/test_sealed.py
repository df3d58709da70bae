"""Environments under a seal: what goes in comes out, and nobody without the key learns anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.sealed import KEY_VARIABLE, seal, travels, unseal

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True).filter(travels)
values = st.text(st.characters(codec=None)).filter(lambda text: "\0" not in text)


@given(st.dictionaries(names, values))
def test_what_goes_in_comes_out(environ):
    data, key = seal(environ)
    assert unseal(data, key) == environ


def test_nothing_of_it_can_be_read():
    data, key = seal({"API_TOKEN": "s3cr3t"})
    assert b"s3cr3t" not in data
    assert b"TOKEN" not in data
    assert key.encode() not in data
    assert seal({"API_TOKEN": "s3cr3t"})[0] != data, "a key is used once"


@pytest.mark.parametrize("key", ["", "00" * 32, "not hexadecimal"])
def test_another_key_does_not_fit(key):
    data, _ = seal({"A": "b"})
    with pytest.raises(ValueError):
        unseal(data, key)


def test_a_seal_that_was_tampered_with_is_noticed():
    data, key = seal({"A": "b"})
    for place in (0, 31, 32, len(data) - 1):
        broken = bytearray(data)
        broken[place] ^= 1
        with pytest.raises(ValueError, match="does not fit"):
            unseal(bytes(broken), key)


@pytest.mark.parametrize(
    "name", ["PBS_JOBID", "PBS_NODEFILE", "TMPDIR", "HOSTNAME", "PWD", "SHLVL", "_", "UID", "SHELLOPTS", "BASH_FUNC_ml%%",
             "A-B", "1A", KEY_VARIABLE]
)  # fmt: skip
def test_what_belongs_to_a_machine_a_job_or_a_shell_stays(name):
    assert not travels(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "PYTHONPATH", "WANDB_API_KEY", "LD_LIBRARY_PATH", "PBSPRO", "_A"])
def test_the_rest_goes_along(name):
    assert travels(name)
