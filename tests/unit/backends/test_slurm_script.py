"""The job script of `--on slurm`: golden files, and values that need quoting."""

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import GOLDEN, NASTY_RUN, RUN, awkward, large, plain

from echelon.backends.batch import array_run_by_variable
from echelon.backends.slurm.script import (
    ARRAY_INDEX,
    RESERVED_OPTIONS,
    directive,
    directives,
    quote_value,
    render,
    slurm_time,
)
from echelon.errors import ConfigError
from echelon.job import Policies, Resources, SchedulerOptions
from echelon.run_dir import RunDir

PLAIN = plain("slurm")
EVERYTHING = replace(
    large("slurm"),
    booking=SchedulerOptions(
        partition="gpu,long",
        account="nlp",
        qos="high",
        constraint="a100&nvlink",
        reservation="deadline",
        nodelist="gpu[01-16]",
        exclude="gpu03,gpu[07-09]",
        dependency="afterok:1234:1235,singleton",
        mail="ada@example.org",
        mail_type="BEGIN,TIME_LIMIT_80",
        comment="ablation 7",
        licenses="matlab:2",
        gpu_type="a100",
        native={"exclusive": "", "switches": "1@00:10:00", "nice": "100"},
    ),
)
GRES = replace(
    PLAIN,
    resources=Resources(nodes=2, gpus_per_node=4, procs_per_node=4),
    booking=SchedulerOptions(gres=True, gpu_type="l40s", native={"gres": "nvme:1"}, mail="ada@example.org"),
)
NASTY = replace(
    awkward("slurm"),
    booking=SchedulerOptions(comment="a \"b\" 'c' \\d $(e) `f` #g ; h", native={"container-env": "A,B C"}),
)
ARRAY = replace(PLAIN, booking=SchedulerOptions(array="0-9%2"))


@pytest.mark.parametrize(
    ("job", "run_dir", "name"),
    [
        (PLAIN, RUN, "slurm.sh"),
        (EVERYTHING, RUN, "slurm-everything.sh"),
        (GRES, RUN, "slurm-gres.sh"),
        (NASTY, NASTY_RUN, "slurm-nasty.sh"),
        (ARRAY, array_run_by_variable(NASTY_RUN.path, ARRAY_INDEX), "slurm-array.sh"),
    ],
)
def test_script_equals_golden_file(job, run_dir, name):
    assert render(job, run_dir) == (GOLDEN / name).read_text()


# CPUs


@pytest.mark.parametrize(
    ("resources", "native", "cpus"),
    [
        ({"procs_per_node": 4}, {}, "4"),
        ({"procs_per_node": 4, "cpus": 2}, {}, "2"),
        ({"procs_per_node": 1}, {}, None),
        ({"procs_per_node": 4, "gpus_per_node": 4}, {}, None),
        ({"procs_per_node": 4, "gpus_per_node": 4, "cpus": 32}, {}, "32"),
        ({"procs_per_node": 4}, {"exclusive": ""}, None),
        ({"procs_per_node": 4}, {"mincpus": "8"}, None),
        ({"procs_per_node": 4}, {"nice": "1"}, "4"),
    ],
)
def test_cpu_ranks_get_one_cpu_each_by_default(resources, native, cpus):
    job = replace(PLAIN, resources=Resources(**resources), booking=SchedulerOptions(native=native))
    assert dict(directives(job, RUN)).get("cpus-per-task") == cpus


# Nothing breaks out


def as_sbatch_reads(line):
    """The words of a directive, by the rules of sbatch's own reader (get_argument in its opt.c)."""
    words, word, quote, escaped, started = [], [], "", False, False
    for letter in line.removeprefix("#SBATCH"):
        if escaped:
            word.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = started = True
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word.append(letter)
        elif letter in "\"'":
            quote, started = letter, True
        elif letter.isspace() and letter.isascii():
            if started:
                words.append("".join(word))
            word, started = [], False
        elif letter == "#":
            break
        else:
            word.append(letter)
            started = True
    assert not quote
    return [*words, "".join(word)] if started else words


one_line = st.binary().map(os.fsdecode).filter(lambda text: not any(ord(c) < 32 or ord(c) == 127 for c in text))
nasty = st.text(" \"'\\#$`;%:=,-a", min_size=1)


@given(one_line | nasty)
def test_any_value_is_one_option_for_sbatch(value):
    line = directive("comment", value)
    assert "\n" not in line
    assert as_sbatch_reads(line) == [f"--comment={value}"]


@given(st.text(), st.sampled_from("\n\r\0\t\x1b\x7f\x0b"), st.text())
def test_a_control_character_is_refused(before, letter, after):
    with pytest.raises(ConfigError, match="cannot be passed to Slurm") as caught:
        directive("chdir", before + letter + after)
    assert caught.value.origin == "#SBATCH --chdir"


def test_a_value_longer_than_sbatch_reads_is_refused():
    with pytest.raises(ConfigError, match="too long"):
        directive("comment", "x" * 9000)


@given(nasty, nasty, nasty)
def test_script_has_only_directives_and_a_command(cwd, comment, native):
    job = replace(PLAIN, cwd=f"/{cwd}", booking=SchedulerOptions(comment=comment, native={"begin": native}))
    first, *middle, last = render(job, RUN).splitlines()
    assert first == "#!/bin/sh"
    assert all(line.startswith("#SBATCH --") for line in middle)
    assert last.startswith("exec ")


def test_folder_with_a_line_break_is_refused():
    with pytest.raises(ConfigError, match="control character") as caught:
        render(replace(PLAIN, cwd="/home/x\n#SBATCH --partition=stolen"), RUN)
    assert "folder" in caught.value.hint


@pytest.mark.parametrize("value", ["gpu", "a100:8", "gpu[01-16]", "1@00:10:00", "/a/b.out", "x=y", "me@example.org"])
def test_plain_values_are_not_quoted(value):
    assert quote_value(value) == value


@pytest.mark.parametrize("value", ["", " ", "a b", "a#b", "'", '"', "\\", "a;b", "$x", "a&b", "(a|b)", "~", "*"])
def test_other_values_are_quoted(value):
    assert quote_value(value).startswith('"')


# Single directives


def asked(job, run_dir=RUN):
    return dict(directives(job, run_dir))


def test_spare_nodes_are_requested():
    assert asked(EVERYTHING)["nodes"] == "5"


def test_mail_without_a_type_is_sent_at_the_end():
    assert asked(GRES)["mail-type"] == "END,FAIL"


@pytest.mark.parametrize(("seconds", "lead"), [(60, 60), (0.5, 1), (90.2, 91), (1e6, 65535)])
def test_notice_lead_is_in_whole_seconds_up_to_the_maximum(seconds, lead):
    job = replace(PLAIN, policies=Policies(notice=timedelta(seconds=seconds)))
    assert asked(job)["signal"] == f"B:USR1@{lead}"


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=90), "0-00:01:30"),
        (timedelta(seconds=0.5), "0-00:00:01"),
        (timedelta(hours=2), "0-02:00:00"),
        (timedelta(days=3, hours=23, minutes=59, seconds=59), "3-23:59:59"),
        (timedelta(days=30), "30-00:00:00"),
    ],
)
def test_time_has_slurm_format(duration, text):
    assert slurm_time(duration) == text


def test_percent_sign_in_a_path_is_escaped():
    assert asked(PLAIN, RunDir(Path("/a%j/b")))["output"] == "/a%%j/b/job.out"


def test_backslash_in_a_path_is_escaped():
    assert asked(PLAIN, RunDir(Path("/a\\b %j")))["output"] == "/a\\\\b %j/job.out"


def test_array_in_folder_with_backslash_is_refused():
    with pytest.raises(ConfigError, match="backslash") as caught:
        render(ARRAY, array_run_by_variable(Path("/a\\b/gpt"), ARRAY_INDEX))
    assert caught.value.origin == "/a\\b/gpt-"


def test_script_without_gpus_has_no_gpu_option():
    assert not {"gpus-per-node", "gres"} & set(asked(PLAIN))


def test_all_directives_are_reserved_options():
    assert set(asked(EVERYTHING)) | set(asked(GRES)) <= set(RESERVED_OPTIONS) | {
        "gres",
        "exclusive",
        "switches",
        "nice",
    }
