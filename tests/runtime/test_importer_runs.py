"""On one machine torch is imported once for all rehearsed nodes, and never again after a fault or for an attempt."""

import os
import signal
from pathlib import Path

from echelon.backends.node_environ import environ_digest
from echelon.system import processes
from running import ONCE_MORE, SCRIPTS, marked_processes, wait_for

STEPS = SCRIPTS / "steps.py"
TWO_BY_TWO = ("-N", "2", "--procs-per-node", "2")
SUPERVISED = (*TWO_BY_TWO, "--restarts", "1", STEPS, *ONCE_MORE)
IMPORT_ON_RECORD = """
import os, sys
if "importer" in sys.orig_argv or "starter" in sys.orig_argv:
    with open(os.environ["IMPORTS"], "a") as record:
        record.write(sys.orig_argv[2] + "\\n")
"""


def parent(pid: int) -> int:
    """0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def importers(run) -> list[int]:
    """The importer, its starters and their ranks have the same command line. Only it is a child of the supervisor."""
    forked = [pid for pid, line in marked_processes(run.tool.mark) if "echelon.pyz importer" in line]
    return [pid for pid in forked if parent(pid) == run.supervisor()]


def running(echelon, *args):
    """A run whose ranks have all started, and the pid of its importer."""
    run = echelon.submit(*(args or SUPERVISED))
    wait_for(lambda: len(run.events("rank_ready")) >= 4, "all ranks")
    (importer,) = importers(run)
    return run, importer


def grandparents(run, generation: int) -> set[int]:
    return {parent(parent(run.pid_of(rank, generation))) for rank in range(4)}


def test_all_nodes_and_attempts_share_one_import(echelon):
    (echelon.folder / "sitecustomize.py").write_text(IMPORT_ON_RECORD)
    script = echelon.script("twice.py", "import os, sys\nsys.exit(75 if os.environ['ECHELON_ATTEMPT'] == '0' else 0)\n")
    record = echelon.folder / "imports"
    env = {"PYTHONPATH": str(echelon.folder), "IMPORTS": str(record)}
    result = echelon("run", *TWO_BY_TWO, "--requeues", "1", script, env=env)
    assert result.returncode == 0, result.stderr
    assert len(echelon.only_run().events("started")) == 2
    assert record.read_text() == "importer\n"


def test_a_new_starter_or_agent_needs_no_import(echelon):
    run, importer = running(echelon, *TWO_BY_TWO, "--restarts", "2", STEPS, "--steps", "90", "--seconds", "0.2")
    assert grandparents(run, 0) == {importer}
    os.kill(parent(run.pid_of(3)), signal.SIGKILL)
    assert grandparents(run, 1) == {importer}
    agents = [pid for pid, line in marked_processes(echelon.mark) if "echelon.pyz agent" in line]
    os.kill(agents[0], signal.SIGKILL)
    assert grandparents(run, 2) == {importer}
    assert run.wait()["outcome"] == "succeeded"
    assert [fault["cause"] for fault in run.events("fault")] == ["the starter died", "the agent died"]


def test_daemons_of_ranks_end_with_a_killed_starter(echelon):
    script = echelon.script(
        "daemon.py",
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        open(f'daemon-{os.getpid()}', 'w').close()\n        time.sleep(600)\n    os._exit(0)\n"
        "time.sleep(600 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)\n",
    )
    run, _ = running(echelon, *TWO_BY_TWO, "--restarts", "1", script)
    daemons = wait_for(lambda: len(found := list(echelon.folder.glob("daemon-*"))) == 4 and found, "the daemons")
    pids = [int(path.name.removeprefix("daemon-")) for path in daemons]
    starter = parent(run.pid_of(3))
    ended = wait_for(
        lambda: len(found := [pid for pid in pids if parent(pid) == starter]) == 2 and found,
        "the daemons on the node of rank 3",
    )
    os.kill(starter, signal.SIGKILL)
    wait_for(lambda: len(run.events("generation")) == 2, "the next generation")
    assert [pid for pid in ended if processes.start_time(pid) is not None] == []
    assert run.wait()["outcome"] == "succeeded"


def test_a_run_survives_the_death_of_its_importer(echelon):
    run, importer = running(echelon)
    os.kill(importer, signal.SIGKILL)
    wait_for(lambda: processes.start_time(importer) is None, "its end")
    os.kill(run.pid_of(3), signal.SIGKILL)
    run.pid_of(3, generation=1)
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("fault")) == 1
    wait_for(lambda: not marked_processes(echelon.mark), "all to leave", 10)


def test_without_an_importer_a_new_starter_imports_torch_itself(echelon):
    run, importer = running(echelon)
    os.kill(importer, signal.SIGKILL)
    wait_for(lambda: processes.start_time(importer) is None, "its end")
    os.kill(parent(run.pid_of(3)), signal.SIGKILL)
    run.pid_of(3, generation=1)
    assert any("echelon.pyz starter" in line for _, line in marked_processes(echelon.mark))
    assert run.wait()["outcome"] == "succeeded"
    wait_for(lambda: not marked_processes(echelon.mark), "all to leave", 10)


def test_a_killed_supervisor_leaves_no_importer(echelon):
    run, _ = running(echelon, *TWO_BY_TWO, STEPS, "--steps", "9000", "--seconds", "0.1")
    os.kill(run.supervisor(), signal.SIGKILL)
    wait_for(lambda: not marked_processes(echelon.mark), "all to leave", 10)
    (run.path / "token").unlink()  # the killed supervisor did not remove it


def test_cancel_during_the_import_leaves_nothing(echelon):
    (echelon.folder / "torch.py").write_text("open('importing', 'w').close()\nimport time\ntime.sleep(600)\n")
    run = echelon.submit(*TWO_BY_TWO, STEPS, env={"PYTHONPATH": str(echelon.folder)})
    wait_for((echelon.folder / "importing").exists, "the import")
    assert echelon("cancel", run.id).returncode == 0
    assert run.wait()["outcome"] == "cancelled"
    wait_for(lambda: not marked_processes(echelon.mark), "all to leave", 10)


DIES_DURING_THE_IMPORT = """
import glob, os, sys, time
while len(glob.glob(sys.argv[-1] + "/attempt-0/node*.env")) < 2:
    time.sleep(0.01)
os._exit(9)
"""


def test_an_importer_that_dies_after_its_orders_is_a_failed_start(echelon):
    (echelon.folder / "torch.py").write_text(DIES_DURING_THE_IMPORT)
    result = echelon("run", *TWO_BY_TWO, STEPS, env={"PYTHONPATH": str(echelon.folder)})
    assert result.returncode == 3, result.stderr
    assert "the starter process failed to start" in result.stderr
    wait_for(lambda: not marked_processes(echelon.mark), "all to leave", 10)


def test_ranks_of_a_snapshot_import_from_it_with_a_relative_path(echelon):
    (echelon.folder / "lib").mkdir()
    (echelon.folder / "lib" / "model.py").write_text("VERSION = 'old'\n")
    script = echelon.script(
        "train.py",
        "import os, pathlib, time\nprint('waiting', flush=True)\n"
        "while not (pathlib.Path(os.environ['ECHELON_SUBMIT_DIR']) / 'go').exists():\n    time.sleep(0.01)\n"
        "import model\nprint(model.VERSION, flush=True)\n",
    )
    path = os.pathsep.join(filter(None, ["lib", echelon.env.get("PYTHONPATH")]))
    run = echelon.submit("-N", "2", "--procs-per-node", "1", "--snapshot", script, env={"PYTHONPATH": path})
    wait_for(lambda: all("waiting" in run.rank_log(rank) for rank in range(2)), "both ranks")
    assert len(importers(run)) == 1
    (echelon.folder / "lib" / "model.py").write_text("VERSION = 'new'\n")
    (echelon.folder / "go").touch()
    assert run.wait()["outcome"] == "succeeded"
    assert [run.rank_log(rank) for rank in range(2)] == ["waiting\nold\n"] * 2


def test_without_an_importer_the_end_of_one_agent_spares_the_other_node(echelon):
    run, importer = running(echelon)
    spared = parent(run.pid_of(0))
    os.kill(importer, signal.SIGKILL)
    wait_for(lambda: processes.start_time(importer) is None, "its end")
    (node1,) = [
        pid for pid, line in marked_processes(echelon.mark) if "echelon.pyz agent" in line and " node1 " in line
    ]
    os.kill(node1, signal.SIGKILL)
    assert parent(run.pid_of(0, generation=1)) == spared
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.events("fault")) == 1
    wait_for(lambda: not marked_processes(echelon.mark), "all to leave", 10)


def test_variables_of_the_offer_do_not_reach_ranks(echelon):
    script = echelon.script(
        "look.py", "import os\nprint(os.getcwd(), [name for name in os.environ if 'IMPORTER' in name], flush=True)\n"
    )
    result = echelon("run", *TWO_BY_TWO, script)
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    assert [run.rank_log(rank) for rank in range(4)] == [f"{echelon.folder} []\n"] * 4


def test_environs_may_differ_only_in_their_gpus():
    assert environ_digest({"A": "1", "CUDA_VISIBLE_DEVICES": "0,1"}) == environ_digest({"A": "1"})
    assert environ_digest({"A": "1", "OMP_NUM_THREADS": "2"}) != environ_digest({"A": "1"})
    assert environ_digest({"A": "1", "B": "2"}) == environ_digest({"B": "2", "A": "1"})
