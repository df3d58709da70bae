"""Exit codes and texts, printed tracebacks, and texts that no terminal may get."""

import json

import pytest

from echelon.codec import decode, encode
from echelon.diagnosis.causes import Death
from echelon.diagnosis.deaths import (
    Cause,
    DeathEvidence,
    DiskFacts,
    Limits,
    MemoryFacts,
    Parent,
    SharedMemory,
    explain_death,
    path_in_message,
)


def death(code=1, *output, **facts):
    return explain_death(DeathEvidence(code=code, output=output, **facts), 2, "n1")


def test_text_of_sys_exit_is_the_sentence():
    found = death(exit_text="the vocabulary has 50257 entries\nuse --vocab 32000")
    assert found.cause is Cause.EXIT_TEXT
    assert found.sentence == "rank 2 on n1 exited: the vocabulary has 50257 entries"
    assert found.details == ("use --vocab 32000",)


def test_text_of_sys_exit_that_names_a_cause_gets_its_hint():
    found = death(exit_text="loss is nan, stopping")
    assert (found.cause, found.sentence) == (Cause.NOT_A_NUMBER, "rank 2 on n1 exited: loss is nan, stopping")
    assert "learning rate" in found.hint


def test_exit_code_without_a_message_shows_the_last_lines():
    found = death(3, *(f"line {number}" for number in range(40)), "")
    assert (found.cause, found.sentence) == (Cause.EXIT_CODE, "rank 2 on n1 exited with code 3")
    assert found.details == tuple(f"line {number}" for number in range(30, 40))


def test_exit_code_without_output_is_reported():
    found = death(3)
    assert found.details == ("no output",)
    assert "last lines" not in found.hint


@pytest.mark.parametrize(
    ("code", "cause"),
    [(127, Cause.NOT_FOUND), (126, Cause.NOT_EXECUTABLE), (2, Cause.EXIT_CODE), (255, Cause.EXIT_CODE)],
)
def test_exit_codes_of_shells_are_known(code, cause):
    assert death(code, "last words").cause is cause


@pytest.mark.parametrize(
    "line", ["train.py: error: unrecognized arguments: --lr", "Error: No such option: --lr", "-m: error: bad"]
)
def test_wrong_arguments_are_quoted(line):
    found = death(2, "usage: train.py [-h]", line)
    assert (found.cause, found.sentence) == (Cause.USAGE, f"rank 2 on n1 exited with code 2: {line}")


def test_last_line_may_name_the_cause_of_an_exit_code():
    assert death(1, "step 7", "Loss is nan, stopping training").cause is Cause.NOT_A_NUMBER
    assert death(1, "Loss is nan", *["step"] * 9).cause is Cause.EXIT_CODE


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    run()",
    "ModuleNotFoundError: No module named 'einops'",
)


@pytest.mark.parametrize("prefix", ["", "[rank2]: ", "[rank2]:", "[default2]: "])
def test_printed_traceback_counts_as_an_exception(prefix):
    found = death(1, "step 1", *(prefix + line for line in TRACEBACK))
    assert found.cause is Cause.MISSING_MODULE
    assert found.sentence == "rank 2 on n1 raised ModuleNotFoundError: No module named 'einops'"


def test_last_printed_traceback_is_the_exception():
    first = ("Traceback (most recent call last):", "  x", "KeyError: 'a'", "", "During handling of the above exception")
    assert death(1, *first, "", *TRACEBACK).cause is Cause.MISSING_MODULE


@pytest.mark.parametrize(
    "output",
    [TRACEBACK[:3], TRACEBACK[:1], (*TRACEBACK[:3], "(a line that is no exception)")],
    ids=["cut", "head", "odd"],
)
def test_incomplete_traceback_is_not_an_exception(output):
    assert death(1, *output).cause is Cause.EXIT_CODE


def test_recorded_exception_comes_before_a_printed_one():
    assert (
        death(1, *TRACEBACK, error_type="KeyError", error_message="'a'").sentence == "rank 2 on n1 raised KeyError: 'a'"
    )


def test_traceback_before_a_signal_was_caught():
    assert death(-9, *TRACEBACK).cause is Cause.KILLED


def test_escapes_are_removed_and_texts_are_bounded():
    found = death(1, error_type="Value\x1b]0;x\x07Error", error_message="\x1b[31mred\x1b[0m " + "a" * 100_000)
    assert found.sentence.startswith("rank 2 on n1 raised ValueError: red aaa")
    assert len(found.sentence) < 400
    lines = death(3, *["\x1b[2J" + "b" * 10_000] * 1000).details
    assert len(lines) == 10
    assert all(len(line) < 600 and "\x1b" not in line for line in lines)


def test_evidence_is_unchanged_by_json():
    evidence = DeathEvidence(
        code=-9,
        error_type="E",
        output=("a", "b"),
        memory=MemoryFacts(limit=1, peak=2, kills_before=0, kills_after=1),
        shared_memory=SharedMemory(size=3),
        disk=DiskFacts(path="/x", free_inodes=0),
        limits=Limits(processes=5),
        dead_parent=Parent.AGENT,
    )
    assert decode(DeathEvidence, json.loads(json.dumps(encode(evidence)))) == evidence
    assert decode(DeathEvidence, {"code": 1}) == DeathEvidence(code=1)


def test_death_is_unchanged_by_json():
    found = death(3, "last words")
    assert decode(Death, json.loads(json.dumps(encode(found)))) == found


@pytest.mark.parametrize("key", ["unknown", "memory"])
def test_damaged_evidence_is_refused(key):
    with pytest.raises(ValueError):
        decode(DeathEvidence, {"code": 1, key: 7})


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("[Errno 28] No space left on device: '/scratch/a b.pt'", "/scratch/a b.pt"),
        ("[Errno 18] Invalid cross-device link: '/a' -> '/b'", "/a"),
        ("[Errno 28] No space left on device", None),
        ("'lr'", None),
    ],
)
def test_path_of_a_message(message, path):
    assert path_in_message(message) == path
