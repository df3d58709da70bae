"""The commands around a run: submit, ls, status, logs, why, cancel, resume, init; and Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from echelon.shell import format_command
from running import SCRIPTS, wait_for

STEPS = SCRIPTS / "steps.py"
LONG = ("--steps", "2000", "--seconds", "0.05")


def test_submitted_run_continues_without_its_submitter(echelon):
    run = echelon.submit("-N", "2", "-g", "2", "--cold", STEPS)
    assert run.wait()["outcome"] == "succeeded"
    assert run.status()["state"] == "SUCCEEDED"


def test_output_is_tagged_and_in_order(echelon):
    result = echelon("run", "-N", "2", "-g", "2", "--cold", STEPS, "--steps", "5", "--seconds", "0")
    for rank in range(4):
        lines = [line for line in result.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert lines == [f"[{rank}] generation 0 step {step}" for step in range(5)] + [f"[{rank}] done"]


def test_ls_status_and_logs_work_from_any_folder(echelon, tmp_path):
    run = echelon.submit("-N", "2", "-g", "2", "--cold", "--name", "lab", STEPS)
    run.wait()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here = {"ECHELON_RUNS": ""}
    listed = json.loads(echelon("ls", "--json", cwd=elsewhere, env=here).stdout)
    assert [row["run_id"] for row in listed] == [run.id]
    for word in (run.id, run.id[:8], "lab", str(run.path)):
        assert json.loads(echelon("status", "--json", word, cwd=elsewhere, env=here).stdout)["run_id"] == run.id
    table = echelon("ls", cwd=elsewhere, env=here).stdout
    assert run.id in table
    assert "SUCCEEDED" in table
    assert echelon("logs", "--rank", "3", "lab", cwd=elsewhere, env=here).stdout == run.rank_log(3)
    node = echelon("logs", "--node", "node1", "lab", cwd=elsewhere, env=here).stdout
    assert set(node.splitlines()) == {f"[{r}] {line}" for r in (2, 3) for line in run.rank_log(r).splitlines()}


def test_logs_follow_until_the_end(echelon):
    run = echelon.submit("-g", "2", "--cold", STEPS, "--steps", "30", "--seconds", "0.02")
    followed = echelon("logs", "-f", run.id)
    assert followed.stdout.count("done\n") == 2


def test_cancel_ends_a_run_but_refuses_a_finished_one(echelon):
    run = echelon.submit("-N", "2", "-g", "2", "--cold", STEPS, *LONG)
    run.pid_of(3)
    assert echelon("cancel", run.id).returncode == 0
    assert run.status()["state"] == "CANCELLED"
    again = echelon("cancel", run.id)
    assert again.returncode == 2
    assert "has already ended" in again.stderr


def test_resume_makes_the_next_attempt_of_the_same_run(echelon):
    script = echelon.script("train.py", "import os\nprint('attempt', os.environ['ECHELON_ATTEMPT'])\n")
    run = echelon.submit("--cold", script)
    run.wait()
    resumed = echelon("resume", run.id)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == "[0] attempt 1\n"
    assert run.status()["attempt"] == 1


def test_a_running_run_cannot_be_resumed(echelon):
    run = echelon.submit("--cold", STEPS, *LONG)
    run.pid_of(0)
    refused = echelon("resume", run.id)
    assert refused.returncode == 2
    assert "still RUNNING" in refused.stderr
    assert echelon("cancel", run.id).returncode == 0


def test_second_supervisor_exits_without_changes(echelon):
    run = echelon.submit("--cold", STEPS, *LONG)
    run.pid_of(0)
    before = sorted(path.name for path in run.path.iterdir())
    second = subprocess.run(
        [sys.executable, run.path / "echelon.pyz", "supervise", run.path],
        env=echelon.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 73
    assert "another supervisor" in second.stderr
    assert sorted(path.name for path in run.path.iterdir()) == before
    assert echelon("cancel", run.id).returncode == 0


def test_why_prints_the_verdict(echelon):
    run = echelon.submit("-g", "2", "--cold", STEPS, "--do", "raise")
    run.wait()
    told = echelon("why", run.id).stdout
    assert "rank 1 on node0 raised ValueError" in told
    assert "rank-1.out" in told
    assert json.loads(echelon("why", "--json", run.id).stdout)["verdict"]["rank"] == 1


def test_init_writes_a_file_that_works_and_never_overwrites(echelon):
    assert echelon("init").returncode == 0
    text = (echelon.folder / "echelon.toml").read_text()
    again = echelon("init")
    assert again.returncode == 2
    assert (echelon.folder / "echelon.toml").read_text() == text
    assert echelon("render", "--cold", STEPS).returncode == 0


def test_version_is_printed(echelon):
    assert echelon("--version").stdout.startswith("echelon, version ")


def test_ctrl_c_without_a_terminal_cancels(echelon):
    process = echelon.start("run", "--cold", STEPS, *LONG)
    run = wait_for(lambda: list(echelon.folder.glob("runs/*/attempt-0/rank-0.out")), "the first output")
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "cancelled by echelon cancel or Ctrl-C" in talk
    assert run


class Terminal:
    """A person at a terminal, as far as the program can tell."""

    def __init__(self, tool, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(tool.folder)
            os.execve(sys.executable, tool.argv(*args), tool.env)
        self.seen = ""

    def read_until(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.seen and time.monotonic() < deadline:
            self.seen += os.read(self.fd, 4096).decode(errors="replace")
        assert text in self.seen

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def exit_code(self) -> int:
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:
            pass  # how a pty says that the other side has gone
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_on_a_terminal_asks_and_detach_keeps_the_run(echelon):
    terminal = Terminal(echelon, "run", "--cold", STEPS, "--steps", "150", "--seconds", "0.05")
    terminal.read_until("step 2")
    terminal.type("\x03")
    terminal.read_until("[d]etach or [c]ancel?")
    terminal.type("d\n")
    terminal.read_until("detached")
    assert terminal.exit_code() == 0
    assert echelon.only_run().wait()["outcome"] == "succeeded"


def test_a_second_ctrl_c_cancels(echelon):
    terminal = Terminal(echelon, "run", "--cold", STEPS, *LONG)
    terminal.read_until("step 2")
    terminal.type("\x03")
    terminal.read_until("[d]etach or [c]ancel?")
    terminal.type("\x03")
    assert terminal.exit_code() == 128 + signal.SIGTERM
    assert echelon.only_run().wait()["outcome"] == "cancelled"


def test_closed_reader_does_not_stop_the_run(echelon):
    process = echelon.start("run", "--cold", STEPS, "--steps", "50", "--seconds", "0.02")
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=60)
    process.stderr.close()
    assert echelon.only_run().wait()["outcome"] == "succeeded"


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1, 0.3])
def test_a_cancel_at_any_moment_of_the_start_is_a_cancel(echelon, delay):
    run = echelon.submit("--cold", STEPS, *LONG)
    time.sleep(delay)
    assert echelon("cancel", run.id).returncode == 0
    assert run.status()["state"] == "CANCELLED"


def test_one_of_two_simultaneous_resumes_starts_the_run(echelon):
    run = echelon.submit("--cold", STEPS, "--steps", "1")
    run.wait()
    both = [echelon.start("resume", "--detach", run.id) for _ in range(4)]
    codes = sorted(process.wait(60) for process in both)
    for process in both:
        process.communicate()
    assert codes[0] == 0
    wait_for(lambda: run.status()["state"] == "SUCCEEDED", "the winner to finish")
    attempts = {event["attempt"] for event in run.events("started")}
    assert len(run.events("started")) == len(attempts), "no attempt was started twice"


def test_three_hundred_ranks_start_and_end(echelon):
    result = echelon("run", "-g", "300", "--", "true")
    assert result.returncode == 0, result.stderr
    assert len(echelon.only_run().events("rank_ready")) == 300


@pytest.mark.parametrize("redirect", ["> /dev/full", ">&-", "<&-", "2>&-", "2> >(true)"])
def test_failing_streams_do_not_stop_the_follower(echelon, redirect):
    command = f"{format_command(echelon.argv('run', '--cold', STEPS, '--steps', '3'))} {redirect}"
    result = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {command}"],
        env=echelon.env,
        cwd=echelon.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in result.stderr
    assert result.returncode == 0, result.stderr
    assert echelon.only_run().wait()["outcome"] == "succeeded"


def test_status_shows_the_last_step_of_a_short_run(echelon):
    assert echelon("run", "--cold", STEPS, "--steps", "5", "--report").returncode == 0
    assert "step        4" in echelon("status", echelon.only_run().id).stdout.splitlines()


def test_ls_and_status_show_the_fault_as_the_reason(echelon):
    echelon("run", "--cold", STEPS, "--do", "raise", "--who", "0", "--report")
    run = echelon.only_run()
    fault = "rank 0 on node0 raised ValueError: rank 0 is unhappy"
    assert echelon("ls").stdout.splitlines()[1].endswith(fault)
    shown = echelon("status", run.id).stdout.splitlines()
    assert f"reason      {fault}" in shown
    assert "step        3" in shown


@pytest.mark.parametrize("both", ["", "2>&1"])
def test_a_closed_pipe_detaches_from_the_run(echelon, both):
    """Even if the ranks write nothing more. The run continues; the exit code is that of a closed pipe."""
    script = echelon.script("wait.sh", "#!/bin/sh\necho ready\nwhile [ ! -e go ]; do sleep 0.1; done\n")
    command = f"{format_command(echelon.argv('run', '--cold', '--', script))} {both} | sed -n '/ready/q'; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["/bin/bash", "-c", command],
        env=echelon.env,
        cwd=echelon.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    run = echelon.only_run()
    assert result.stdout == "141\n"
    assert "Traceback" not in result.stderr
    if not both:
        assert f"stdout was closed; detached, the run continues: echelon logs -f {run.id} follows it" in result.stderr
    assert run.status()["state"] == "RUNNING"
    echelon.script("go", "")
    assert run.wait()["outcome"] == "succeeded"


def test_logs_end_with_their_reader(echelon):
    script = echelon.script("wait.sh", "#!/bin/sh\necho ready\nwhile [ ! -e go ]; do sleep 0.1; done\n")
    run = echelon.submit("--cold", "--", script)
    wait_for(lambda: "ready" in run.rank_log(0), "output")
    command = f"{format_command(echelon.argv('logs', '-f', run.id))} | sed -n '/ready/q'"
    result = subprocess.run(
        ["/bin/bash", "-c", command],
        env=echelon.env,
        cwd=echelon.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    echelon.script("go", "")
    run.wait()


def test_a_broken_run_does_not_hide_the_others(echelon):
    run = echelon.submit("--cold", STEPS, "--steps", "1")
    run.wait()
    for name, text in (("a", '{"job": []}'), ("b", '{"job": {"scheduler": "nope"}}'), ("c", "[" * 50)):
        (echelon.folder / "runs" / name).mkdir(mode=0o700)
        (echelon.folder / "runs" / name / "run.json").write_text(text)
    listed = echelon("ls")
    assert run.id in listed.stdout
    assert "Traceback" not in listed.stderr


def test_a_command_runs_on_64_nodes(echelon):
    result = echelon("run", "-N", "64", "--procs-per-node", "1", "--", "true")
    assert result.returncode == 0, result.stderr
    assert len(echelon.only_run().events("rank_ready")) == 64
