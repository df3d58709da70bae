"""Notice, time limit and requeue, rehearsed on one machine."""

import math
import os
import signal

from running import SCRIPTS, Run, patience, wait_for

STEPS = SCRIPTS / "steps.py"

STOPS_AT_THE_NOTICE = """
import os, sys, time
import echelon
attempt = int(os.environ["ECHELON_ATTEMPT"])
print("attempt", attempt, flush=True)
if attempt < 2:
    while not echelon.notice_given():
        time.sleep(0.01)
    sys.exit(75)
print("finished", flush=True)
"""


def test_a_run_that_stops_at_the_notice_is_requeued_and_finishes(echelon):
    script = echelon.script("train.py", STOPS_AT_THE_NOTICE)
    result = echelon(
        "run", "-N", "2", "-g", "2", "--cold", "--time", "30s", "--notice", "29s", "--requeues", "2", script
    )
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    assert [event["attempt"] for event in run.events("requeued")] == [0, 1]
    assert sorted(path.name for path in run.path.glob("attempt-*")) == ["attempt-0", "attempt-1", "attempt-2"]
    assert [(run.path / f"attempt-{n}" / "exit_code").read_text() for n in range(3)] == ["75\n", "75\n", "0\n"]
    assert len(run.events("submitted")) == 1, "the run keeps its id, and its supervisor its pid"
    assert len({event["pid"] for event in run.events("started")}) == 1


def test_requeues_are_counted(echelon):
    script = echelon.script("train.py", "raise SystemExit(75)")
    result = echelon("run", "-g", "2", "--cold", "--requeues", "1", script)
    assert result.returncode == 75
    assert len(echelon.only_run().events("started")) == 2
    assert "all 1 requeues are used" in result.stderr
    assert "echelon resume" in result.stderr


def test_exit_75_without_requeues_stays_75(echelon):
    script = echelon.script("train.py", "raise SystemExit(75)")
    assert echelon("run", "--cold", script).returncode == 75


HANDLER = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    def stop(*_):
        print("got USR1", flush=True)
        sys.exit(75)
    signal.signal(signal.SIGUSR1, stop)
print("ready", flush=True)
deadline = time.time() + 60
while time.time() < deadline and not os.path.exists("leave"):
    time.sleep(0.01)
"""


def test_usr1_is_sent_only_to_ranks_with_a_handler(echelon):
    script = echelon.script("train.py", HANDLER)
    run = echelon.submit("-g", "2", "--cold", script)
    wait_for(lambda: "ready" in run.rank_log(0) and "ready" in run.rank_log(1), "both ranks")
    os.kill(run.supervisor(), signal.SIGUSR1)
    wait_for(lambda: "got USR1" in run.rank_log(1), "the notice")
    (echelon.folder / "leave").touch()
    assert run.wait()["exit_code"] == 75
    assert "SIGUSR1 to rank 1" in echelon("logs", run.id).stdout
    assert run.rank_log(0) == "ready\n", "rank 0 has no handler: the signal would have been its death"


UNAWARE = """
import os, time
deadline = time.time() + 60
while time.time() < deadline and not os.path.exists("leave"):
    time.sleep(0.01)
"""


def test_a_warning_is_shown_once(echelon):
    process = echelon.start("run", "-g", "1", "--cold", echelon.script("train.py", UNAWARE))
    run = wait_for(lambda: [Run(echelon, path.name) for path in echelon.folder.glob("runs/*")], "the run")[0]
    run.pid_of(0)
    os.kill(run.supervisor(), signal.SIGUSR1)
    wait_for(lambda: run.events("warning"), "the warning that no rank handles the notice")
    (echelon.folder / "leave").touch()
    _, said = process.communicate(timeout=60)
    assert said.count("no rank handles SIGUSR1") == 1


LATE_HANDLER = HANDLER.replace("import os,", "import pathlib, os,").replace(
    'if os.environ["RANK"] == "1":', 'while not pathlib.Path("noticed").exists():\n    time.sleep(0.01)\nif True:'
)


def test_a_handler_installed_after_the_notice_gets_it(echelon):
    run = echelon.submit("-g", "1", "--cold", echelon.script("train.py", LATE_HANDLER))
    run.pid_of(0)
    os.kill(run.supervisor(), signal.SIGUSR1)
    wait_for(lambda: run.events("warning"), "the warning that no rank handles the notice")
    assert "no rank handles SIGUSR1" in run.events("warning")[0]["text"]
    (echelon.folder / "noticed").touch()
    assert run.wait()["exit_code"] == 75
    assert "got USR1" in run.rank_log(0)


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("TERM, and I stay", flush=True))
print("ready", flush=True)
deadline = time.time() + 60
while time.time() < deadline:
    time.sleep(0.01)
"""


def test_running_ranks_get_term_then_kill_at_the_limit(echelon):
    script = echelon.script("train.py", STUBBORN)
    limit = f"{math.ceil(patience(2))}s"  # the ranks must start Python within it
    result = echelon("run", "-g", "2", "--cold", "--time", limit, "--notice", "1s", "--grace", "1s", script)
    assert result.returncode == 124
    assert "the time limit was reached" in result.stderr
    assert echelon.only_run().rank_log(1) == "ready\nTERM, and I stay\n"


def test_plain_script_is_requeued_at_the_time_limit(echelon):
    script = echelon.script(
        "train.py",
        "import pathlib, time\nseen = pathlib.Path('seen')\n"
        "if not seen.exists():\n    seen.touch()\n    time.sleep(60)\nprint('went on')\n",
    )
    limit = f"{math.ceil(patience(2))}s"  # the second attempt must start Python and end within it
    result = echelon("run", "--cold", "--time", limit, "--notice", "1s", "--requeues", "1", script)
    assert result.returncode == 0, result.stderr
    assert "went on" in result.stdout


def test_usr1_to_the_supervisor_is_a_notice_too(echelon):
    script = echelon.script("train.py", STOPS_AT_THE_NOTICE)
    run = echelon.submit("--cold", script)
    run.pid_of(0)
    import os

    os.kill(run.supervisor(), signal.SIGUSR1)
    assert run.wait()["exit_code"] == 75
    assert len(run.events("notice")) == 1
