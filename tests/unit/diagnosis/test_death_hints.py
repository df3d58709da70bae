"""Each cause has a hint, and each flag in a hint or rule exists."""

import re

import pytest

from echelon.config.options import OPTIONS
from echelon.diagnosis import policy
from echelon.diagnosis.causes import HANGS, HINTS, Cause
from echelon.diagnosis.history import Failure, History

FLAGS = {option.flag for option in OPTIONS} | {option.short for option in OPTIONS if option.short}
OF_OTHERS = {"--shm-size"}
WORDS_OF_MEMORY = {Cause.OUT_OF_MEMORY, Cause.STEP_MEMORY, Cause.PROBABLY_MEMORY, Cause.MEMORY_ERROR}
NO_RESTART = {"KeyError": Cause.EXCEPTION, "syntax": Cause.SYNTAX_ERROR, "usage": Cause.USAGE}


def flags_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in HANGS])
def test_each_cause_has_a_hint_with_flags_that_exist(cause):
    assert HINTS[cause]
    assert flags_in(HINTS[cause]) <= FLAGS | OF_OTHERS


@pytest.mark.parametrize("cause", Cause)
def test_each_rule_names_flags_that_exist(cause):
    rule = policy.next_action(Failure(cause=cause, host="n1"), History())
    assert rule.sentence
    assert rule.change
    assert flags_in(rule.change) <= FLAGS


def test_hints_differ_by_cause():
    shared = [cause for cause in HINTS if list(HINTS.values()).count(HINTS[cause]) > 1]
    assert set(shared) <= WORDS_OF_MEMORY | {Cause.STARTER_DIED, Cause.ENDED_BY_SIGNAL}


@pytest.mark.parametrize("cause", NO_RESTART.values(), ids=NO_RESTART)
def test_mistake_of_the_script_gets_no_restart_hint(cause):
    assert "--restarts" not in HINTS[cause]
