"""Host lists in the format of Slurm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.system.hostlist import MAX_HOSTS, compress, expand


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n2,n1", ["n2", "n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1,3]", ["n1", "n3"]),
        ("n[7]", ["n7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("n[1-2,05,9-10]", ["n1", "n2", "n05", "n9", "n10"]),
        ("rack[1-2]n[03-05,07]", [f"rack{r}n{n}" for r in (1, 2) for n in ("03", "04", "05", "07")]),
        ("a[1-2],b,c[3]-ib0", ["a1", "a2", "b", "c3-ib0"]),
        ("[1-2]", ["1", "2"]),
        ("n[1-2][3-4]", ["n13", "n14", "n23", "n24"]),
        ("gpu-a100[1-2].site.org", ["gpu-a1001.site.org", "gpu-a1002.site.org"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("n[0-0]", ["n0"]),
    ],
)
def test_a_list_is_every_name_in_its_order(text, hosts):
    assert expand(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "n[",
        "n]",
        "n[1-2",
        "n1-2]",
        "n[]",
        "n[1-]",
        "n[-2]",
        "n[a]",
        "n[1-2-3]",
        "n[2-1]",
        "n[1,,2]",
        "n[1,]",
        ",",
        "a,,b",
        "a,",
        ",a",
        "n[[1]]",
        "n[1 2]",
        "a b",
        " a",
        "a\n",
        "n[1-2]\n",
        "n[+1-2]",
        "n[1_0]",
        "n[\u0661]",
        f"n[0-{MAX_HOSTS}]",
        "n[0-999999999999]",
        "n[0-9999][0-9999]",
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError):
        expand(text)


def test_the_limit_counts_all_words_together():
    half = MAX_HOSTS // 2
    assert len(expand(f"a[1-{half}],b[1-{half}]")) == MAX_HOSTS
    with pytest.raises(ValueError):
        expand(f"a[1-{half}],b[0-{half}]")


names = st.text("abcxyz-._0123456789", min_size=1, max_size=8)
ranges = st.tuples(st.integers(0, 200), st.integers(0, 30), st.integers(1, 5))


@given(st.lists(names, max_size=20))
def test_plain_names_come_back_as_they_are(hosts):
    assert expand(",".join(hosts)) == hosts


@given(names, st.lists(ranges, min_size=1, max_size=5), st.one_of(st.just(""), names))
def test_bracket_equals_its_names_written_out(prefix, pieces, suffix):
    text = ",".join(f"{low:0{width}d}-{low + more}" for low, more, width in pieces)
    written = [f"{prefix}{n:0{width}d}{suffix}" for low, more, width in pieces for n in range(low, low + more + 1)]
    assert expand(f"{prefix}[{text}]{suffix}") == written


@given(st.text("n[]-,01 ", max_size=12))
def test_expand_returns_or_raises_value_error(text):
    try:
        hosts = expand(text)
    except ValueError:
        return
    assert all(host and not set(host) & set("[], ") for host in hosts)


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["login"], "login"),
        (["n1", "n2"], "n[1-2]"),
        (["n1", "n3"], "n[1,3]"),
        (["n3", "n1"], "n[3,1]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["a1", "a2", "b", "b7", "c"], "a[1-2],b,b7,c"),
        (["rack1n1", "rack1n2", "rack2n1"], "rack1n[1-2],rack2n1"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
    ],
)
def test_compress(hosts, text):
    assert compress(hosts) == text


@given(st.lists(st.from_regex(r"[a-z]{1,3}-?[0-9]{0,3}[a-z]?[0-9]{0,4}", fullmatch=True), max_size=12))
def test_expand_inverts_compress(hosts):
    assert expand(compress(hosts)) == hosts
