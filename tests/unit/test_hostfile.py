"""Lists of hosts, in files and in groups: what is read, and what is refused with its line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.backends.ssh.hostfile import parse_hostfile, resolve_hosts

NAMES = st.from_regex(re.compile(r"[a-z][a-z0-9.-]{0,8}", re.ASCII), fullmatch=True)
SLOTS = st.none() | st.integers(1, 99_999)


def written(hosts, gap, comment):
    lines = (f"{host}{'' if slots is None else f'{gap}slots={slots}'}{comment}" for host, slots in hosts.items())
    return "\n\n".join(["# hosts", *lines])


@given(st.dictionaries(NAMES, SLOTS), st.sampled_from([" ", "\t", "   "]), st.sampled_from(["", " # old", "#"]))
def test_hostfile_is_read_in_order(hosts, gap, comment):
    read = parse_hostfile(written(hosts, gap, comment))
    assert list(read.items()) == list(hosts.items())


@given(st.text())
def test_any_text_is_read_or_refused_with_its_line(text):
    try:
        hosts = parse_hostfile(text)
    except ValueError as error:
        said, hosts = str(error), {}
    else:
        said = "1: "
    assert re.match(r"[0-9]+: ", said)
    assert all(host and not host.startswith("-") and "/" not in host for host in hosts)


def test_brackets_stand_for_many():
    assert parse_hostfile("gpu[1-2] slots=4\nada@10.0.0.1") == {"gpu1": 4, "gpu2": 4, "ada@10.0.0.1": None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu1 slots=0", "1: 'slots=0' is not slots=N"),
        ("\ngpu1 slots=four", "2: 'slots=four' is not slots=N"),
        ("gpu1 slots=4 max_slots=8", "1: 'slots=4 max_slots=8' is not slots=N"),
        ("gpu1 4", "1: '4' is not slots=N"),
        ("gpu1\ngpu[1-2]", "2: gpu1 is listed twice"),
        ("-oProxyCommand=id", "1: '-oProxyCommand=id' is not a valid host name"),
        ("a/b", "1: 'a/b' is not a valid host name"),
        ("../x", "1: '../x' is not a valid host name"),
        ("gpu[1-", "1: 'gpu[1-'"),
    ],
)
def test_error_names_the_line(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_hostfile(text)


def test_groups_and_hosts_may_be_mixed():
    groups = {"lab": ("gpu[1-2]", "big"), "other": ("x",)}
    assert resolve_hosts("lab,y[01-02]", groups) == ["gpu1", "gpu2", "big", "y01", "y02"]
    assert resolve_hosts("labs", groups) == ["labs"]


@pytest.mark.parametrize("text", ["lab,gpu1", "a,a", "-v", "a b", "a,,b"])
def test_hosts_that_cannot_be_meant_are_refused(text):
    with pytest.raises(ValueError):
        resolve_hosts(text, {"lab": ("gpu1",)})
