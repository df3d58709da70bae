"""The job script of `--on pbs` in both dialects: golden files, and values that need quoting."""

import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import GOLDEN, NASTY_RUN, RUN, awkward, large, plain

from echelon.backends.pbs.script import directive, directives, mail_letters, pbs_memory, pbs_time, render
from echelon.errors import ConfigError
from echelon.job import Resources, SchedulerOptions
from echelon.run_dir import RunDir

PLAIN = plain("pbs")
CHUNKS = replace(
    large("pbs"),
    booking=SchedulerOptions(
        partition="gpu",
        account="nlp",
        dependency="afterok:1234.pbs",
        mail="ada@example.org",
        mail_type="BEGIN,FAIL",
        native={
            "place": "scatter:excl",
            "chunk.gpu_model": "a100",
            "W.group_list": "nlp",
            "software": "matlab",
            "a": "2200",
        },
    ),
)
GADI = replace(
    PLAIN,
    resources=Resources(
        nodes=2, procs_per_node=4, gpus_per_node=4, cpus=48, memory="382G", time_limit=timedelta(hours=2)
    ),
    booking=SchedulerOptions(
        partition="gpuvolta",
        account="ab12",
        pbs_dialect="totals",
        native={"wd": "", "storage": "gdata/ab12+scratch/ab12", "jobfs": "100GB"},
    ),
)
NASTY = replace(
    awkward("pbs"),
    booking=SchedulerOptions(native={"W.sandbox": "a \"b\" 'c' \\d $(e) `f` #g ; h"}),
)


@pytest.mark.parametrize(
    ("job", "run_dir", "name"),
    [
        (PLAIN, RUN, "pbs.sh"),
        (CHUNKS, RUN, "pbs-chunks.sh"),
        (GADI, RUN, "pbs-totals.sh"),
        (NASTY, NASTY_RUN, "pbs-nasty.sh"),
    ],
)
def test_script_equals_golden_file(job, run_dir, name):
    assert render(job, run_dir) == (GOLDEN / name).read_text()


# Nothing breaks out


def as_qsub_reads(line):
    """The words of a directive, by the rules of qsub's own reader (make_argv in its qsub.c)."""
    words, word, quote, started = [], "", "", False
    letters = iter(line.removeprefix("#PBS"))
    for letter in letters:
        if quote:
            if letter == quote:
                quote = ""
            else:
                word += letter
        elif letter in "\"'":
            quote, started = letter, True
        elif letter == "\\":
            word, started = word + next(letters), True
        elif letter in " \t\n\v\f\r":
            words += [word] if started or word else []
            word, started = "", False
        else:
            word += letter
    assert not quote
    return [*words, word] if started or word else words


no_utf_8 = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"])  # as Python decodes arguments
one_line = st.text(st.characters(codec="utf-8") | no_utf_8, min_size=1).filter(
    lambda text: not any(ord(c) < 32 or ord(c) == 127 for c in text)
)
nasty = st.text(" \"'\\#$`;%:=,-a", min_size=1)


@given(one_line | nasty)
def test_any_value_is_one_option_for_qsub(value):
    line = directive("W", value)
    assert "\n" not in line
    assert as_qsub_reads(line) == ["-W", value]


@given(st.text(), st.sampled_from("\n\r\0\t\x1b\x7f\x0b"), st.text())
def test_a_control_character_is_refused(before, letter, after):
    with pytest.raises(ConfigError, match="cannot be passed to PBS") as caught:
        directive("q", before + letter + after)
    assert caught.value.origin == "#PBS -q"


def test_a_line_longer_than_qsub_reads_is_refused():
    with pytest.raises(ConfigError, match="too long"):
        directive("l", "x" * 5000)


@given(nasty, nasty)
def test_script_has_only_directives_and_setup_lines(cwd, native):
    job = replace(PLAIN, cwd=f"/{cwd}", booking=SchedulerOptions(native={"begin": native}))
    lines = render(job, RUN).splitlines()
    assert lines[0] == "#!/bin/sh"
    rest = [line for line in lines[1:] if not line.startswith("#PBS -")]
    assert [line.split()[0] for line in rest] == ["exec", rest[1].split()[0], "eval", "unset", "cd", "exec"]
    assert shlex.split(rest[4])[:2] == ["cd", f"/{cwd}"]


# Single directives


def asked(job, run_dir=RUN, letter="l"):
    return [value for name, value in directives(job, run_dir) if name == letter]


def test_one_chunk_per_node_on_separate_hosts():
    assert asked(replace(PLAIN, resources=Resources(nodes=3, spare_nodes=2)))[:2] == [
        "select=5:ncpus=1:mpiprocs=1",
        "place=scatter",
    ]


def test_default_is_one_cpu_per_rank():
    job = replace(PLAIN, resources=Resources(procs_per_node=6))
    assert asked(job)[0] == "select=1:ncpus=6:mpiprocs=1"


@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
@pytest.mark.parametrize(("cpus", "gpus", "memory"), [(48, 4, "382G"), (12, 1, "90G"), (28, 0, "128G"), (1, 0, "512")])
def test_totals_are_sums_over_all_nodes(nodes, cpus, gpus, memory):
    resources = Resources(nodes=nodes, cpus=cpus, gpus_per_node=gpus, memory=memory)
    items = dict(
        item.split("=")
        for item in asked(replace(PLAIN, resources=resources, booking=SchedulerOptions(pbs_dialect="totals")))
    )
    assert int(items["ncpus"]) == nodes * cpus
    assert int(items.get("ngpus", 0)) == nodes * gpus
    assert items["mem"] == pbs_memory(memory, nodes)
    assert "select" not in items


@pytest.mark.parametrize(
    ("text", "times", "size"),
    [
        ("64G", 1, "64gb"),
        ("64G", 2, "128gb"),
        ("512M", 3, "1536mb"),
        ("512", 1, "512mb"),
        ("8K", 1, "8kb"),
        ("2T", 2, "4tb"),
    ],
)
def test_memory_has_pbs_format(text, times, size):
    assert pbs_memory(text, times) == size


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=90), "00:01:30"),
        (timedelta(seconds=0.5), "00:00:01"),
        (timedelta(hours=2), "02:00:00"),
        (timedelta(days=3, hours=23, minutes=59, seconds=59), "95:59:59"),
        (timedelta(days=30), "720:00:00"),
    ],
)
def test_time_has_pbs_format(duration, text):
    assert pbs_time(duration) == text


@pytest.mark.parametrize(
    ("types", "letters"), [("END,FAIL", "ae"), ("BEGIN", "b"), ("all", "abe"), ("NONE", "n"), ("END, BEGIN", "be")]
)
def test_mail_types_become_letters(types, letters):
    assert mail_letters(types) == letters


def test_unsupported_mail_type_is_refused():
    with pytest.raises(ConfigError, match="TIME_LIMIT_80"):
        mail_letters("END,TIME_LIMIT_80")


@pytest.mark.parametrize("path", ["/a b", "/it's", "/a:b", "/a,b", "/$HOME", "/a\\b", "/ä"])
def test_unusual_output_path_becomes_dev_null(path):
    given = dict(directives(PLAIN, RunDir(Path(path))))
    assert given["o"] == "/dev/null"
    assert "k" not in given


def test_ordinary_output_path_is_used():
    given = dict(directives(PLAIN, RUN))
    assert (given["o"], given["k"]) == (f"{RUN.path}/", "oed")


def test_only_a_shrinkable_run_tolerates_node_failures():
    assert asked(PLAIN, letter="W") == []
    for resources in (Resources(nodes=2, spare_nodes=1), Resources(nodes=2, min_nodes=1)):
        assert asked(replace(PLAIN, resources=resources), letter="W") == ["tolerate_node_failures=all"]
        totals = SchedulerOptions(pbs_dialect="totals")
        assert asked(replace(PLAIN, resources=resources, booking=totals), letter="W") == []
    other = SchedulerOptions(native={"W.tolerate_node_failures": "none"})
    assert asked(replace(PLAIN, resources=resources, booking=other), letter="W") == ["tolerate_node_failures=none"]
