"""What happens after a failure: by its cause, and by the failures of all attempts before it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.codec import decode, encode
from echelon.diagnosis.causes import Cause, death
from echelon.diagnosis.history import Attempt, Failure, History, failure_of, with_attempt, with_failure
from echelon.diagnosis.policy import (
    BAD_RESTORES,
    CRASHES,
    FAMILIES,
    FAMILY_OF,
    FEW_STEPS,
    FROM_OUTSIDE,
    LONGEST_DELAY,
    Action,
    Family,
    backoff_seconds,
    next_action,
    rejected_checkpoint,
)

EMPTY = History()
FIRST = {
    Family.SETTING: Action.STOP_AND_NAME,
    Family.NODE: Action.EXCLUDE_NODE,
    Family.SUSPECT_NODE: Action.RESTART,
    Family.SCRIPT: Action.RESTART,
    Family.UNKNOWN: Action.RESTART_WITH_BACKOFF,
}


def failed(cause=Cause.EXCEPTION, step=None, restored=None, *, signature="ValueError: bad", host="n1"):
    return Failure(cause=cause, signature=signature, step=step, restored=restored, host=host)


def history(*failures):
    return History(attempts=(Attempt(failures=failures),))


def decided(*failures):
    """The action after the last of these failures."""
    return next_action(failures[-1], history(*failures[:-1])).action


def actions(*failures):
    """The action after each of these failures."""
    return [decided(*failures[: count + 1]) for count in range(len(failures))]


def test_each_cause_belongs_to_one_family():
    assert sorted(cause.value for causes in FAMILIES.values() for cause in causes) == sorted(c.value for c in Cause)


@pytest.mark.parametrize("cause", Cause)
def test_first_failure_is_decided_by_its_family(cause):
    assert next_action(failed(cause), EMPTY).action is FIRST[FAMILY_OF[cause]]


@pytest.mark.parametrize(
    "cause", [Cause.OUT_OF_MEMORY, Cause.GPU_MEMORY, Cause.NO_SPACE, Cause.MISSING_MODULE, Cause.SHARED_MEMORY]
)
def test_wrong_setting_stops_at_once_and_names_the_setting(cause):
    rule = next_action(failed(cause), EMPTY)
    assert rule.sentence == f"{cause.value}: a restart would fail in the same way"
    assert (
        rule.change
        == "do what `try` says; echelon resume {run} continues with the same settings, other settings need a new run"
    )
    assert not rule.restarts


@pytest.mark.parametrize("cause", sorted(CRASHES, key=lambda cause: cause.value))
@pytest.mark.parametrize("step", [7, None])
def test_same_failure_at_the_same_step_twice_stops(cause, step):
    host = failed(cause, step, host="n1"), failed(cause, step, host="n2")
    rule = next_action(host[1], history(host[0]))
    assert rule.action is Action.STOP
    place = "step" if step else "place" if cause is Cause.HANG_IN_SCRIPT else "output line"
    assert f"at the same {place} twice; not restarting" in rule.sentence


def test_same_failure_in_an_earlier_attempt_counts():
    earlier = History(attempts=(Attempt(failures=(failed(step=7),)), Attempt(failures=(failed(step=9),)), Attempt()))
    assert next_action(failed(step=7), earlier).action is Action.STOP


def test_another_step_or_exception_restarts():
    assert decided(failed(step=7), failed(step=8)) is Action.RESTART
    assert decided(failed(step=7), failed(step=7, signature="KeyError: 'a'")) is Action.RESTART


def test_passing_failure_stops_only_if_it_repeats_at_once():
    lost = failed(Cause.NCCL_ERROR, 7)
    assert decided(lost, failed(step=9), lost) is Action.RESTART_WITH_BACKOFF
    assert decided(failed(step=9), lost, lost) is Action.STOP


@pytest.mark.parametrize("cause", sorted(FROM_OUTSIDE, key=lambda cause: cause.value))
def test_second_kill_at_the_same_step_is_not_a_repetition(cause):
    hosts = failed(cause, 7, host="n1"), failed(cause, 7, host="n2")
    assert next_action(hosts[1], history(hosts[0])).restarts


def test_faulty_node_is_excluded_at_once():
    rule = next_action(failed(Cause.GPU_HARDWARE, host="n7"), EMPTY)
    assert (rule.action, rule.host) == (Action.EXCLUDE_NODE, "n7")
    assert rule.sentence == "GPU hardware error on n7; excluding the node"
    assert "--spare-nodes" in rule.change


def test_suspect_node_is_excluded_after_its_second_failure():
    first, other = failed(Cause.GPU_ERROR, 7, host="n1"), failed(Cause.FILE_SYSTEM, 8, host="n2")
    again = failed(Cause.BUS_ERROR, 9, host="n1")
    assert actions(first, other, again) == [Action.RESTART, Action.RESTART, Action.EXCLUDE_NODE]


def test_suspect_node_without_a_name_is_not_excluded():
    nameless = [failed(Cause.GPU_ERROR, step, host="") for step in (7, 8, 9)]
    assert actions(*nameless) == [Action.RESTART] * 3


def test_failure_of_the_script_on_two_nodes_excludes_no_node():
    assert decided(failed(Cause.GPU_ERROR, 7, host="n1"), failed(Cause.GPU_ERROR, 7, host="n2")) is Action.STOP


@pytest.mark.parametrize("cause", [Cause.NOT_A_NUMBER, Cause.EXCEPTION, Cause.SEGFAULT])
def test_three_failures_after_a_restore_go_back_once(cause):
    soon = failed(cause, 102, restored=100)
    older = failed(cause, 52, restored=50)
    assert actions(soon, soon, soon, older) == [Action.RESTART, Action.RESTART, Action.ROLL_BACK, Action.STOP]


def test_rule_of_the_checkpoint_names_itself():
    soon = failed(Cause.NOT_A_NUMBER, 102, restored=100)
    second, third = next_action(soon, history(soon)), next_action(soon, history(soon, soon))
    assert second.sentence == "not a number within 10 steps after a restore of step 100, time 2 of 3"
    assert third.sentence == (
        "not a number within 10 steps after a restore of step 100, 3 times; going back one checkpoint"
    )
    assert (second.is_trial, third.is_trial) == (True, True)


def of_checkpoint(failure, name):
    return replace(failure, restored_name=name)


def test_checkpoint_is_rejected_by_name_in_all_attempts():
    soon = of_checkpoint(failed(step=102, restored=100), "step-00000100")
    other = of_checkpoint(failed(step=102, restored=100), "step-00000100.1")
    attempts = (Attempt(failures=(soon, soon)), Attempt(failures=(soon,)), Attempt(failures=(other,)), Attempt())
    assert rejected_checkpoint(History(attempts=attempts[:1])) == ""
    assert rejected_checkpoint(History(attempts=attempts)) == "step-00000100"


def test_run_goes_back_once_for_failures_of_any_kind():
    soon, other = failed(step=102, restored=100), failed(Cause.SEGFAULT, 52, restored=50)
    third = failed(Cause.NOT_A_NUMBER, 53, restored=50)
    found = actions(soon, soon, soon, other, third, other)
    assert found[2:] == [Action.ROLL_BACK, Action.RESTART_WITH_BACKOFF, Action.RESTART, Action.STOP]
    assert next_action(other, history(soon, soon, soon, other)).sentence == (
        "same failure at the same step twice; not restarting"
    )


def test_different_crashes_after_a_restore_are_no_endless_trial():
    crashes = [failed(step=102, restored=100, signature=str(number)) for number in range(9)]
    trials = [next_action(crash, history(*crashes[:number])).is_trial for number, crash in enumerate(crashes)]
    assert trials == [True] * 6 + [False] * 3


def test_nan_after_a_restore_counts_at_any_step_and_text():
    nan = [failed(Cause.NOT_A_NUMBER, step, restored=100, signature=f"nan {step}") for step in (101, 105, 110)]
    assert decided(*nan) is Action.ROLL_BACK


def test_failures_after_a_restore_count_over_attempts():
    soon = failed(step=102, restored=100)
    earlier = History(attempts=(Attempt(failures=(soon,)), Attempt(failures=(soon,)), Attempt()))
    assert next_action(soon, earlier).action is Action.ROLL_BACK


def test_different_crashes_after_a_restore_do_not_go_back():
    crashes = [failed(step=102, restored=100, signature=name) for name in "abc"]
    assert actions(*crashes) == [Action.RESTART] * 3


def test_crashes_after_different_restores_do_not_go_back():
    crashes = [failed(step=restored + 2, restored=restored) for restored in (100, 200, 300)]
    assert actions(*crashes) == [Action.RESTART] * 3


def test_crash_that_also_comes_without_the_restore_stops():
    assert actions(failed(step=103), failed(step=103, restored=100)) == [Action.RESTART, Action.STOP]


def test_crash_long_after_the_restore_is_an_ordinary_one():
    late = failed(step=100 + FEW_STEPS + 1, restored=100)
    assert actions(late, late) == [Action.RESTART, Action.STOP]


@pytest.mark.parametrize("cause", [Cause.KILLED, Cause.PEER_LOST, Cause.AGENT_DIED])
def test_kill_after_a_restore_does_not_go_back(cause):
    killed = [failed(cause, 102, restored=100, host=f"n{number}", signature=str(number)) for number in range(5)]
    assert Action.ROLL_BACK not in actions(*killed)


@pytest.mark.parametrize("step", [7, None])
def test_same_hang_at_the_same_place_twice_stops(step):
    hang = failed(Cause.HANG, step, signature="missing: a.py:7")
    rule = next_action(hang, history(hang))
    assert (rule.action, next_action(hang, EMPTY).action) == (Action.STOP, Action.RESTART_WITH_BACKOFF)
    assert rule.sentence == f"same hang at the same {'step' if step else 'place'} twice; not restarting"


def test_hang_in_the_script_stops_also_after_other_failures():
    hang, other = failed(Cause.HANG_IN_SCRIPT, 7, signature="mismatch"), failed(Cause.KILLED, 8)
    assert actions(hang, other, hang)[-1] is Action.STOP


def test_other_hangs_in_a_row_wait_longer():
    hangs = [failed(Cause.HANG, 7, signature=f"missing: a.py:{line}") for line in range(3)]
    assert [next_action(hang, history(*hangs[:count])).delay for count, hang in enumerate(hangs)] == [0, 1, 2]


def test_second_hang_on_a_file_excludes_its_node():
    hang = failed(Cause.HANG_ON_FILE, 7, signature="file: a.py:7", host="n1")
    assert actions(hang, failed(Cause.HANG_ON_FILE, 7, host="n2"), hang) == [
        Action.RESTART,
        Action.RESTART,
        Action.EXCLUDE_NODE,
    ]


def test_delays_double_up_to_a_bound():
    assert [backoff_seconds(count) for count in range(-1, 9)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff_seconds(10**9) == LONGEST_DELAY


def test_unknown_failures_in_a_row_wait_longer():
    delays = [next_action(failed(Cause.KILLED, 5), history(*[failed(Cause.KILLED, 5)] * n)).delay for n in range(5)]
    assert delays == [0, 1, 2, 4, 8]


@pytest.mark.parametrize("old", [failed(Cause.KILLED, 4), failed(Cause.EXCEPTION, 5)], ids=["progress", "known cause"])
def test_progress_and_known_causes_reset_the_delay(old):
    rule = next_action(failed(Cause.KILLED, 5), history(failed(Cause.KILLED, 4), old))
    assert rule.delay == 0


def test_delay_is_named():
    rule = next_action(failed(Cause.KILLED), history(failed(Cause.KILLED), failed(Cause.KILLED)))
    assert rule.sentence == "killed by SIGKILL: possibly temporary; restarting after 2 s"


steps = st.none() | st.integers(0, 30)
failures = st.builds(
    failed,
    st.sampled_from(Cause),
    steps,
    steps,
    signature=st.sampled_from(["a", "b"]),
    host=st.sampled_from(["n1", "n2"]),
)


@given(st.lists(failures, max_size=12), failures)
def test_any_history_gets_one_bounded_rule(earlier, failure):
    rule = next_action(failure, history(*earlier))
    assert rule.sentence
    assert rule.change
    assert 0 <= rule.delay <= LONGEST_DELAY
    assert rule.is_trial or rule.action is not Action.ROLL_BACK
    assert bool(rule.host) == (rule.action is Action.EXCLUDE_NODE)
    if FAMILY_OF[failure.cause] is Family.SETTING:
        assert rule.action is Action.STOP_AND_NAME


@given(st.lists(failures, max_size=12), failures)
def test_attempts_do_not_change_the_rule(earlier, failure):
    single = History(attempts=tuple(Attempt(failures=(old,)) for old in earlier))
    assert next_action(failure, single) == next_action(failure, history(*earlier))


@given(failures, st.integers(1, 5))
def test_same_failure_again_and_again_ends_the_run(failure, more):
    """A run may only continue if the failure came from outside."""
    count = 2 * BAD_RESTORES + more
    outside = FROM_OUTSIDE | {*FAMILIES[Family.NODE]}
    rules = [next_action(failure, history(*[failure] * number)) for number in range(count)]
    assert all(rule.restarts for rule in rules) == (failure.cause in outside)
    assert sum(rule.action is Action.ROLL_BACK for rule in rules) <= 1


def test_history_is_unchanged_by_json():
    kept = with_failure(with_attempt(with_failure(EMPTY, failed(step=7, restored=5))), failed(Cause.KILLED))
    assert [len(attempt.failures) for attempt in kept.attempts] == [1, 1]
    assert decode(History, json.loads(json.dumps(encode(kept)))) == kept


def test_failure_without_steps_has_its_output_line_as_place():
    found = death(Cause.EXCEPTION, "rank 1 on n1 raised ValueError: bad", signature="ValueError: bad")
    facts = {"restored": None, "host": "n1"}
    assert failure_of(found, step=7, lines=3, **facts).signature == "ValueError: bad"
    assert failure_of(found, step=None, lines=3, **facts).signature == "ValueError: bad at line 3"
