"""The verdict: what the ranks did, the rule that decided, files and what to try."""

import json

import pytest

from echelon.codec import encode
from echelon.diagnosis.evidence import (
    Child,
    Collective,
    Frame,
    GroupStatus,
    ProcessState,
    RankEvidence,
    ThreadStack,
)
from echelon.observe.full_verdict import format_full, verdict_json
from echelon.observe.status import RunStatus
from echelon.observe.verdict import format_verdict
from echelon.run_dir import RunDir
from echelon.states import JobState
from why_schema import problems

STACKS = """2026-01-15 10:15:00, generation 0

pid 7  State: S (sleeping)  waits in futex_wait  python train.py

Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007e (most recent call first):
  File "/home/ada/train.py", line 9 in main
  File "/home/ada/train.py", line 12 in <module>
"""
HANG = {
    "sentence": "no progress for 4 s: rank 1 on n0 did not reach all_reduce #6",
    "cause": "hang_missing",
    "ranks": [1],
    "details": ["ranks 0, 2: waiting in all_reduce at train.py:61", "rank 1: in train.py:60 (time.sleep)"],
    "hint": "look at that line",
    "rule": "a hang restarts all ranks",
    "change": "--restarts N",
}
CRASH = {
    "sentence": "rank 0 on n1 raised KeyError",
    "rank": 0,
    "code": 1,
    "log": "/runs/train-1/attempt-0/rank-0.out",
    "error": {"traceback": "Traceback (most recent call last):\n  File 'a.py'\nKeyError: 'lr'\n"},
}


def frames(*lines):
    return tuple(Frame(file="/home/ada/train.py", line=line, function=f"f{line}") for line in lines)


def evidence(rank, *lines, **changes):
    thread = ThreadStack(
        frames=(*frames(*lines), Frame(file="/home/ada/train.py", line=90, function="<module>")), is_main=True
    )
    process = ProcessState(pid=100 + rank, state="S", system_call="futex", command="python train.py")
    return RankEvidence(**{"rank": rank, "host": "n0", "process": process, "threads": (thread,), **changes})


class Run:
    """A run directory with what the node side has written."""

    def __init__(self, folder):
        self.dir = RunDir(folder / "train-1")
        self.attempt = self.dir.attempt(0)
        self.attempt.path.mkdir(parents=True)

    def save(self, *ranks, text=STACKS, generation=0):
        self.attempt.evidence_of(generation).mkdir(parents=True, exist_ok=True)
        for one in ranks:
            rank = one if isinstance(one, int) else one.rank
            self.attempt.rank_stacks(rank, generation).write_text(text)
            if not isinstance(one, int):
                self.attempt.rank_evidence(rank, generation).write_text(json.dumps(encode(one)))
        return self

    def fail(self, error):
        self.attempt.error.write_text(json.dumps(error))
        return self

    def status(self, **changes):
        facts = {"state": JobState.CANCELLED, "reason": "cancelled by SIGTERM", "ended": 1.0}
        return RunStatus(**{"run_id": "train-1", "path": "/x", **facts, **changes})

    def failed(self, error=HANG, **changes):
        self.fail(error)
        return self.status(
            **{"state": JobState.FAILED, "reason": "--restarts is not set", "fault": error["sentence"], **changes}
        )

    def why(self, status):
        return format_verdict(self.dir, status).splitlines()


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_hang_shows_verdict_details_rule_files_and_hint(run):
    run.save(evidence(0, 61), evidence(1, 60))
    assert run.why(run.failed(hint="look at that line")) == [
        "train-1 failed: no progress for 4 s: rank 1 on n0 did not reach all_reduce #6",
        "  ranks 0, 2: waiting in all_reduce at train.py:61",
        "  rank 1: in train.py:60 (time.sleep)",
        "  rule    a hang restarts all ranks",
        "  change  --restarts N",
        "  end     --restarts is not set",
        f"  files   {run.attempt.evidence_of(0)}",
        "  stacks  echelon why --full train-1",
        "  try     look at that line",
    ]


def test_rule_that_is_the_reason_is_shown_once(run):
    lines = run.why(run.failed({**HANG, "rule": "--restarts is not set"}))
    assert [line for line in lines if "--restarts is not set" in line] == ["  rule    --restarts is not set"]


def test_crash_shows_its_traceback_and_log(run):
    assert run.why(run.failed(CRASH))[1:] == [
        "  | Traceback (most recent call last):",
        "  |   File 'a.py'",
        "  | KeyError: 'lr'",
        "  end     --restarts is not set",
        "  log     /runs/train-1/attempt-0/rank-0.out",
    ]


def test_details_of_a_death_are_not_repeated_by_its_traceback(run):
    lines = run.why(run.failed({**CRASH, "cause": "exception", "details": ["KeyError: 'lr'", "limit 2 GiB"]}))
    assert lines[1] == "  | limit 2 GiB"
    assert sum("KeyError: 'lr'" in line for line in lines) == 1


def test_stacks_of_an_earlier_hang_are_not_shown_for_a_crash(run):
    lines = run.save(0).why(run.failed(CRASH))
    assert not any("train.py" in line or "stacks" in line for line in lines)


def test_ranks_of_a_run_without_a_verdict_are_described(run):
    run.save(evidence(1, 9), evidence(2, process=ProcessState(pid=7, state="T")))
    assert run.why(run.status())[1:4] == [
        "  rank 1: in train.py:9",
        "  rank 2: stopped by a signal (SIGSTOP)",
        f"  files   {run.attempt.evidence_of(0)}",
    ]


@pytest.mark.parametrize("text", ["", "{", '{"rank": "x"}', "[]", '{"rank": 3, "unknown": 1}'])
def test_stacks_are_used_if_the_evidence_cannot_be_read(run, text):
    run.save(3)
    run.attempt.rank_evidence(3, 0).write_text(text)
    assert "  rank 3: in train.py:9" in run.why(run.status())


def test_no_stacks_are_shown_for_a_run_that_succeeded(run):
    assert run.save(3).why(run.status(state=JobState.SUCCEEDED, reason="")) == ["train-1 succeeded"]


def test_stacks_of_an_earlier_generation_are_not_shown(run):
    assert len(run.save(3).why(run.status(generation=1))) == 1


def test_stacks_of_this_generation_are_shown_after_earlier_ones(run):
    later = STACKS.replace("10:15:00, generation 0", "10:20:00, generation 1").replace("line 9", "line 5")
    assert run.save(3, text=STACKS + later, generation=1).why(run.status(generation=1))[1] == "  rank 3: in train.py:5"


def test_fault_that_the_run_recovered_from_is_shown(run):
    lines = run.why(run.status(last_fault="rank 1 on n0 was killed by SIGKILL"))
    assert lines[1:] == ["  before  rank 1 on n0 was killed by SIGKILL"]


def test_equal_stacks_are_printed_once_with_their_ranks(run):
    run.save(evidence(0, 61, 70), evidence(1, 60), evidence(2, 61, 70))
    lines = format_full(run.dir, run.failed()).splitlines()
    at = lines.index("ranks 0, 2:")
    assert lines[at + 1 : at + 6] == [
        "  /home/ada/train.py:61 in f61",
        "  /home/ada/train.py:70 in f70",
        "  /home/ada/train.py:90 in <module>",
        "",
        "rank 1:",
    ]
    assert "  rank 1 on n0: pid 101, state S, futex" in lines


def test_other_threads_and_children_are_printed_in_full(run):
    worker = ProcessState(pid=55, state="S", system_call="clock_nanosleep", name="pt_data_worker")
    child = Child(process=worker, threads=(ThreadStack(frames=frames(33), is_main=True),))
    other = ThreadStack(frames=frames(44))
    one = evidence(0, 61)
    run.save(evidence(0, threads=(other, *one.threads), children=(child,)))
    lines = format_full(run.dir, run.failed()).splitlines()
    at = lines.index("  another thread:")
    assert lines[at - 1] == "  /home/ada/train.py:90 in <module>"
    assert lines[at + 1] == "    /home/ada/train.py:44 in f44"
    assert lines[lines.index("pt_data_worker (pid 55) of rank 0:") + 1] == "  /home/ada/train.py:33 in f33"
    assert "    child: pid 55, state S, clock_nanosleep" in lines


def test_frames_with_which_echelon_starts_a_script_are_left_out(run):
    start = (
        Frame(file="echelon/agent/run_script.py", line=3, function="run"),
        Frame(file="<frozen runpy>", line=8, function="x"),
    )
    run.save(evidence(0, threads=(ThreadStack(frames=(*frames(5), *start), is_main=True),)))
    assert "run_script" not in format_full(run.dir, run.failed())


def test_full_verdict_on_a_crash_has_no_stacks(run):
    assert format_full(run.dir, run.failed(CRASH)).endswith("no stacks: they are saved only for hangs")


def test_full_verdict_is_bounded(run):
    run.save(*(evidence(rank, *range(rank, rank + 3)) for rank in range(1, 400)))
    text = format_full(run.dir, run.failed())
    assert "... and 349 groups more" in text
    assert "... and 99 ranks more" in text


def test_escape_sequences_and_secrets_are_not_shown(run):
    bad = "\x1b]0;title\x07\x1b[2J HF_TOKEN=hf_1234567890abcdef"
    process = ProcessState(pid=1, state="S", command=f"python --api-key abc {bad}")
    run.save(evidence(0, process=process))
    status = run.failed({**HANG, "details": [bad], "sentence": bad}, hint=bad, reason=bad)
    everything = [*run.why(status), format_full(run.dir, status), json.dumps(verdict_json(run.dir, status))]
    assert not any("\x1b" in text or "\\u001b" in text or "1234567890" in text or "abc" in text for text in everything)


def test_long_lines_of_a_rank_are_cut(run):
    lines = run.why(run.failed({**CRASH, "details": ["x" * 100_000]}))
    assert max(map(len, lines)) < 1000


def test_long_traceback_keeps_its_end(run):
    error = {"traceback": "Traceback\n" + "  File 'a.py'\n" * 10_000 + "KeyError: 'lr'\n"}
    assert "  | KeyError: 'lr'" in run.why(run.failed({**CRASH, "error": error}))


def test_json_has_stacks_by_group_and_a_record_for_each_rank(run):
    run.save(evidence(0, 61), evidence(1, 60), evidence(2, 61))
    found = verdict_json(run.dir, run.failed())
    assert [group["ranks"] for group in found["evidence"]["stacks"]] == [[0, 2], [1]]
    assert [one["process"]["pid"] for one in found["evidence"]["ranks"]] == [100, 101, 102]
    assert found["verdict"]["rule"] == "a hang restarts all ranks"


def test_json_of_a_run_without_a_verdict_has_only_its_status(run):
    found = verdict_json(run.dir, run.status())
    assert (found["schema"], found["verdict"], found["evidence"]) == (1, None, None)


def test_json_of_a_hang_matches_the_documented_schema(run):
    child = Child(process=ProcessState(pid=5), threads=(ThreadStack(frames=frames(3)),))
    group = GroupStatus(group="0", ranks=(0, 1))
    entry = Collective(group="0", sequence=4, operation="all_reduce", sizes=((2, 3),), dtypes=("float32",))
    run.save(evidence(0, 61, children=(child,), groups=(group,), collectives=(entry,)), evidence(1, process=None))
    assert problems(verdict_json(run.dir, run.failed())) == []


@pytest.mark.parametrize("error", [CRASH | {"error": None}, HANG])
def test_json_without_evidence_matches_the_documented_schema(run, error):
    assert problems(verdict_json(run.dir, run.failed(error))) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": "1"}, "schema is '1'"),
        ({"more": 1}, "more is not in the table"),
        ({"status": {}}, "status.run_id is missing"),
        ({"evidence": {"ranks": [{"rank": "0"}]}}, "evidence.ranks[].rank is '0'"),
    ],
)
def test_schema_check_finds_differences(run, change, problem):
    assert problem in problems({**verdict_json(run.dir, run.failed()), **change})


def test_slow_ranks_are_in_the_text(run):
    slow = ("rank 6 on n2 is 1.8x slower than the median since step 400: waiting for input",)
    assert f"  slow    {slow[0]}" in run.why(run.status(slow=slow))
