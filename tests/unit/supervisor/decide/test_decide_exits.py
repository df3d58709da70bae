"""Decisions after the exit of a rank or of its launcher."""

from story import Story, bound

from echelon.supervisor.state import Ending, Outcome, Phase, ReportFault, Send, StartRanks
from echelon.wire.messages import BindPort, Stop
from echelon.wire.reports import LauncherFailed, StoreDied

# Ranks that end well


def test_the_run_has_succeeded_when_all_ranks_left_with_zero():
    story = Story().run().all_leave(0)
    assert story.phase is Phase.STOPPING
    assert story.stopped().outcome == Outcome(ending=Ending.SUCCEEDED, exit_code=0, reason="all ranks finished")
    assert story.state.restarts_used == 0


def test_early_exit_with_zero_is_not_a_fault():
    story = Story().run().leave(0, 0)
    assert story.phase is Phase.RUNNING
    assert story.last == ()


def test_even_a_run_that_succeeded_is_swept_before_it_ends():
    assert Story().run().all_leave(0).last == (Send((0, 1), Stop(generation=0, grace=5.0)),)


def test_the_same_rank_leaving_twice_counts_once():
    story = Story(nodes=1, procs_per_node=2).run().leave(0, 0).leave(0, 0)
    assert story.phase is Phase.RUNNING


# Ranks that fail


def test_a_rank_that_fails_stops_all_the_others():
    story = Story().run().leave(3, 1)
    assert story.phase is Phase.STOPPING
    assert story.last == (Send((0, 1), Stop(generation=0, grace=5.0)),)


def test_fault_is_reported_with_the_restarts_left():
    story = Story(restarts=3).run().die(rank=1, code=-9)
    (report,) = story.done(ReportFault)
    assert (report.generation, report.restarts_left) == (0, 2)
    assert report.fault.sentence.startswith("rank 1 on host1 was killed by SIGKILL")


def test_a_fault_starts_the_next_generation_on_the_same_agents():
    story = Story(restarts=1).run().die()
    assert story.phase is Phase.BINDING
    assert story.last[1:] == (Send((0,), BindPort(generation=1)),)
    assert story.bind().last[0] == StartRanks((0, 1), "10.0.0.1", bound(1))


def test_next_generation_starts_without_exits():
    story = Story(restarts=1).run().die().bind()
    assert (story.state.exits, story.state.fault, story.state.step) == ({}, None, None)


def test_fault_without_restarts_ends_the_run():
    story = Story().run().die(code=7)
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.exit_code == 7
    assert story.outcome.reason == "--restarts is not set"
    assert "--restarts" in story.outcome.hint
    assert story.outcome.fault.exit.rank == 0


def test_fault_after_all_restarts_ends_the_run():
    story = Story(restarts=1).run().die(lines=1).again().die(lines=2)
    assert story.outcome.reason == "all 1 restarts are used"
    assert "--restarts" not in story.outcome.hint
    assert [report.restarts_left for report in story.done(ReportFault)] == [0, 0]


def test_death_by_a_signal_ends_with_the_shells_code():
    assert Story().run().die(code=-11).outcome.exit_code == 139


def test_first_failure_by_time_is_reported():
    story = Story().run().leave(2, 1, time=20.0).leave(0, 9, time=10.0).stopped()
    assert story.outcome.exit_code == 9
    assert story.outcome.fault.exit.rank == 0


def test_last_rank_failing_after_others_finished_is_a_fault():
    story = Story(nodes=1, restarts=1).run().leave(0, 0).leave(1, 1).stopped()
    assert story.generation == 1


# Launchers that end


def test_a_launcher_that_ends_before_its_ranks_is_a_fault():
    story = (
        Story(restarts=1)
        .run()
        .hear(1, LauncherFailed(generation=0, sentence="torchrun on host1 was killed by SIGKILL"))
    )
    assert story.phase is Phase.STOPPING
    story.stopped()
    assert story.done(ReportFault)[0].fault.sentence == "torchrun on host1 was killed by SIGKILL"


def test_launcher_exit_during_a_stop_is_not_the_fault():
    story = (
        Story(restarts=1)
        .run()
        .leave(0, 3)
        .hear(1, LauncherFailed(generation=0, sentence="torchrun on host1 ended with code 1"))
        .stopped()
    )
    assert story.done(ReportFault)[0].fault.sentence == "rank 0 on host0 exited with code 3"


# A store that ends


def test_store_that_dies_is_a_fault_of_its_node():
    story = Story(restarts=1).run().hear(0, StoreDied(generation=0)).stopped()
    assert story.done(ReportFault)[0].fault.sentence == "the rendezvous store on host0 died"
