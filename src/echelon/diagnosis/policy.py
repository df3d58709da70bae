"""Decides what happens after a failure: by its cause, and by the failures before it in all attempts. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from echelon.diagnosis.causes import HANGS, Cause
from echelon.diagnosis.history import Failure, History
from echelon.record import record

FEW_STEPS = 10
"""A failure within this many steps after a restore may be the fault of the checkpoint."""
BAD_RESTORES = 3
"""After this many failures soon after the restore of one checkpoint, the next start uses an older one."""
MOST_TRIALS = 2 * BAD_RESTORES
"""So many failures of any kind soon after the restore of one checkpoint may come without progress."""
FAULTS_OF_A_NODE = 2
"""After this many suspicious failures on one node, the node is excluded."""
LONGEST_DELAY = 60.0


class Action(enum.Enum):
    RESTART = "restart"
    RESTART_WITH_BACKOFF = "restart after a delay"
    ROLL_BACK = "restart from an older checkpoint"
    EXCLUDE_NODE = "restart without the node"
    STOP = "stop"
    STOP_AND_NAME = "stop and name the setting"


@record
class Rule:
    """What happens next, the rule that decided, and what would change it."""

    action: Action
    sentence: str
    change: str
    delay: float = 0.0
    """Seconds before the restart."""
    is_trial: bool = False
    """Whether the failure counts toward ROLL_BACK, so that another start is needed to decide."""
    host: str = ""
    """For EXCLUDE_NODE."""

    @property
    def restarts(self) -> bool:
        return self.action not in (Action.STOP, Action.STOP_AND_NAME)


class Family(enum.Enum):
    """Causes that are treated alike."""

    SETTING = "the same start fails again until a setting changes"
    NODE = "the node is faulty"
    SUSPECT_NODE = "the node may be faulty"
    SCRIPT = "the script or its data"
    UNKNOWN = "the cause is unknown, or temporary"


FAMILIES: Mapping[Family, tuple[Cause, ...]] = {
    Family.SETTING: (
        Cause.OUT_OF_MEMORY,
        Cause.STEP_MEMORY,
        Cause.PROBABLY_MEMORY,
        Cause.MEMORY_ERROR,
        Cause.GPU_MEMORY,
        Cause.SHARED_MEMORY,
        Cause.PROCESS_LIMIT,
        Cause.OPEN_FILES,
        Cause.NO_SPACE,
        Cause.NO_INODES,
        Cause.QUOTA,
        Cause.ILLEGAL_INSTRUCTION,
        Cause.USAGE,
        Cause.NOT_FOUND,
        Cause.NOT_EXECUTABLE,
        Cause.SYNTAX_ERROR,
        Cause.MISSING_MODULE,
        Cause.BROKEN_LIBRARY,
        Cause.PERMISSION,
        Cause.GPU_ARCHITECTURE,
        Cause.DRIVER_TOO_OLD,
        Cause.GPU_MISSING,
        Cause.GPU_FORK,
    ),
    Family.NODE: (Cause.GPU_HARDWARE, Cause.NODE_FAILURE),
    Family.SUSPECT_NODE: (
        Cause.AGENT_DIED,
        Cause.BUS_ERROR,
        Cause.GPU_ERROR,
        Cause.FILE_SYSTEM,
        Cause.HANG_ON_FILE,
    ),
    Family.SCRIPT: (
        Cause.EXCEPTION,
        Cause.MISSING_FILE,
        Cause.NOT_A_NUMBER,
        Cause.EXIT_TEXT,
        Cause.GPU_ASSERT,
        Cause.COLLECTIVE_MISMATCH,
        Cause.ARITHMETIC_ERROR,
        Cause.DATA_WORKER,
        Cause.HANG_IN_SCRIPT,
    ),
    Family.UNKNOWN: (
        Cause.KILLED,
        Cause.ENDED_BY_SIGNAL,
        Cause.SEGFAULT,
        Cause.ABORTED,
        Cause.EXIT_CODE,
        Cause.STARTER_DIED,
        Cause.NCCL_ERROR,
        Cause.COLLECTIVE_TIMEOUT,
        Cause.RENDEZVOUS,
        Cause.ADDRESS_IN_USE,
        Cause.PEER_LOST,
        Cause.NETWORK,
        Cause.HANG,
        Cause.RANK_STOPPED,
    ),
}
FAMILY_OF: Mapping[Cause, Family] = {cause: family for family, causes in FAMILIES.items() for cause in causes}
CRASHES = frozenset(
    {*FAMILIES[Family.SCRIPT], Cause.SEGFAULT, Cause.ABORTED, Cause.EXIT_CODE, Cause.BUS_ERROR, Cause.GPU_ERROR}
)
"""Causes that repeat if the script, its data or a checkpoint is at fault."""
FROM_OUTSIDE = frozenset(
    {
        Cause.KILLED,
        Cause.ENDED_BY_SIGNAL,
        Cause.STARTER_DIED,
        Cause.AGENT_DIED,
        Cause.RANK_STOPPED,
        Cause.HANG_ON_FILE,
    }
)
"""A second one at the same step is a coincidence."""
MORE_RESTARTS = "--restarts N allows more restarts"
RESUME = "echelon resume {run}"


def next_action(failure: Failure, history: History) -> Rule:
    """`history` has the failures before this one. The number of restarts that the job allows is checked elsewhere."""
    earlier = history.failures
    return (
        _by_setting(failure)
        or _by_faulty_node(failure)
        or _by_checkpoint(failure, earlier)
        or _by_repetition(failure, earlier)
        or _by_suspect_node(failure, earlier)
        or _by_family(failure, earlier)
    )


def backoff_seconds(count: int) -> float:
    """The delay before a restart after `count` failures of unknown cause in a row: 0, 1, 2, 4, ... 60 s."""
    return 0.0 if count <= 0 else min(2.0 ** min(count - 1, 10), LONGEST_DELAY)


def _by_setting(failure: Failure) -> Rule | None:
    if FAMILY_OF[failure.cause] is not Family.SETTING:
        return None
    return Rule(
        action=Action.STOP_AND_NAME,
        sentence=f"{failure.cause.value}: a restart would fail in the same way",
        change=f"do what `try` says; {RESUME} continues with the same settings, other settings need a new run",
    )


def _by_faulty_node(failure: Failure) -> Rule | None:
    if FAMILY_OF[failure.cause] is not Family.NODE:
        return None
    return _exclude(failure, f"{failure.cause.value} on {failure.host or 'a node'}; excluding the node")


def _by_suspect_node(failure: Failure, earlier: tuple[Failure, ...]) -> Rule | None:
    if FAMILY_OF[failure.cause] is not Family.SUSPECT_NODE or not failure.host:
        return None
    count = 1 + sum(FAMILY_OF[old.cause] is Family.SUSPECT_NODE and old.host == failure.host for old in earlier)
    if count < FAULTS_OF_A_NODE:
        return None
    return _exclude(failure, f"{failure.cause.value}: failure {count} of {failure.host}; excluding the node")


def _exclude(failure: Failure, sentence: str) -> Rule:
    change = "--spare-nodes N keeps a replacement, --min-nodes N continues with fewer nodes"
    return Rule(action=Action.EXCLUDE_NODE, sentence=sentence, change=change, host=failure.host)


def _by_checkpoint(failure: Failure, earlier: tuple[Failure, ...]) -> Rule | None:
    """Goes back one checkpoint, once, after three failures soon after the restore of one checkpoint.

    Does not apply to a failure that has come at the same step without that checkpoint: the script is at fault then.
    """
    if not _may_be_checkpoint(failure, earlier):
        return None
    what = f"{failure.cause.value} within {FEW_STEPS} steps after a restore of step {failure.restored}"
    back = _first_roll_back(earlier)
    if back is not None and _is_alike(back, failure):
        change = f"correct the script or its data, then {RESUME}"
        return Rule(action=Action.STOP, sentence=f"{what}, also after going back one checkpoint", change=change)
    if back is not None:
        return None
    count = 1 + _bad_restores(failure, earlier)
    if count < BAD_RESTORES:
        change = f"after {BAD_RESTORES} times the run goes back one checkpoint; {MORE_RESTARTS}"
        sentence, is_trial = f"{what}, time {count} of {BAD_RESTORES}", _is_trial(failure, earlier)
        return Rule(action=Action.RESTART, sentence=sentence, change=change, is_trial=is_trial)
    sentence, change = f"{what}, {count} times; going back one checkpoint", "this happens once per run"
    return Rule(action=Action.ROLL_BACK, sentence=sentence, change=change, is_trial=True)


def rejected_checkpoint(history: History) -> str:
    """The name of the checkpoint from which the run went back, in any attempt. Empty if it did not."""
    back = _first_roll_back(history.failures)
    return "" if back is None else back.restored_name


def _first_roll_back(failures: tuple[Failure, ...]) -> Failure | None:
    """The failure after which the run went back one checkpoint."""
    for index, failure in enumerate(failures):
        earlier = failures[:index]
        if _may_be_checkpoint(failure, earlier) and _bad_restores(failure, earlier) + 1 >= BAD_RESTORES:
            return failure
    return None


def _may_be_checkpoint(failure: Failure, earlier: tuple[Failure, ...]) -> bool:
    return _is_bad_restore(failure) and not any(_is_same(old, failure) and not _is_bad_restore(old) for old in earlier)


def _is_trial(failure: Failure, earlier: tuple[Failure, ...]) -> bool:
    """False after many different failures with one checkpoint: they may never be alike three times."""
    return sum(_is_bad_restore(old) and old.restored == failure.restored for old in earlier) < MOST_TRIALS


def _is_bad_restore(failure: Failure) -> bool:
    """Whether a crash came a few steps after a restore."""
    if failure.cause not in CRASHES or failure.step is None or failure.restored is None:
        return False
    return 0 <= failure.step - failure.restored <= FEW_STEPS


def _bad_restores(failure: Failure, earlier: tuple[Failure, ...]) -> int:
    """Earlier failures like this one soon after the restore of the same checkpoint."""
    alike = (old for old in earlier if _is_bad_restore(old) and _is_alike(old, failure))
    return sum(old.restored == failure.restored for old in alike)


def _is_alike(old: Failure, failure: Failure) -> bool:
    """The same crash, or NaN in both."""
    return old.cause is failure.cause and (failure.cause is Cause.NOT_A_NUMBER or old.signature == failure.signature)


def _is_same(old: Failure, failure: Failure) -> bool:
    """The same failure at the same step."""
    return bool(failure.signature) and _is_alike(old, failure) and old.step == failure.step


def _by_repetition(failure: Failure, earlier: tuple[Failure, ...]) -> Rule | None:
    """Stops after the same failure at the same step twice. Failures that may pass must follow each other directly."""
    if failure.cause in FROM_OUTSIDE:
        return None
    candidates = earlier if failure.cause in CRASHES else earlier[-1:]
    if not any(_is_same(old, failure) for old in candidates):
        return None
    what = "exception" if FAMILY_OF[failure.cause] is Family.SCRIPT else "failure"
    what = "hang" if failure.cause in HANGS else what
    place = "step" if failure.step is not None else "place" if failure.cause in HANGS else "output line"
    sentence = f"same {what} at the same {place} twice; not restarting"
    return Rule(action=Action.STOP, sentence=sentence, change=f"correct the cause, then {RESUME}")


def _by_family(failure: Failure, earlier: tuple[Failure, ...]) -> Rule:
    name = failure.cause.value
    if FAMILY_OF[failure.cause] in (Family.SCRIPT, Family.SUSPECT_NODE):
        change = f"the same failure at the same step stops the run; {MORE_RESTARTS}"
        return Rule(action=Action.RESTART, sentence=f"{name}: first failure at this step; restarting", change=change)
    delay = backoff_seconds(_unknown_in_a_row(failure, earlier))
    return Rule(
        action=Action.RESTART_WITH_BACKOFF,
        sentence=f"{name}: possibly temporary; restarting" + (f" after {delay:g} s" if delay else ""),
        change=f"each further failure of this kind doubles the delay, up to {LONGEST_DELAY:g} s; {MORE_RESTARTS}",
        delay=delay,
    )


def _unknown_in_a_row(failure: Failure, earlier: tuple[Failure, ...]) -> int:
    """How many failures of unknown cause came directly before this one, without a new step between them."""
    count, newer = 0, failure
    for old in reversed(earlier):
        gained = newer.step is not None and old.step is not None and newer.step > old.step
        if gained or FAMILY_OF[old.cause] is not Family.UNKNOWN:
            break
        count, newer = count + 1, old
    return count
