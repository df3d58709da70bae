"""The stand-in for PBS behaves as OpenPBS 23.06 was measured to behave."""

import json
import shlex
from pathlib import Path

from node import wait_for
from pbs.server import Server
from pbs.using import qsub, use


def test_stand_in_reproduces_the_faults_of_pbs(echelon, pbs, cluster):
    text = """
export SEEN=yes
pwd >here; echo "$PBS_NODEFILE" >>here
pbs_tmrsh n2 /bin/sh -c 'pwd; hostname; echo "[$SEEN] $PATH $PBS_NODENUM"; exit 7' ; echo "tmrsh $?" >>here
pbsdsh -n 3 -- /bin/sh -c 'hostname >>there; exit 7'; echo "pbsdsh $?" >>here
"""
    here = f"cd {echelon.folder}; PATH={shlex.quote(echelon.env['PATH'])}; {text}"
    qsub(pbs, echelon.folder, here, "-l", "select=2:ncpus=1", "-l", "place=scatter", "-o", f"{echelon.folder}/")
    wait_for(lambda: not pbs.unfinished(), "the job to end")
    told = (echelon.folder / "here").read_text().split("\n")
    assert told[2:4] == ["tmrsh 7", "pbsdsh 0"]
    assert (echelon.folder / "0.ctl.OU").read_text().splitlines()[:3] == [str(cluster.home), "n2", "[] /bin:/usr/bin 1"]
    assert (cluster.home / "there").read_text() == "n2\n", "an index beyond the end begins anew"
    stuck = qsub(pbs, echelon.folder, "true", "-o", f"{echelon.folder}/missing/")
    wait_for(lambda: pbs.jobs[stuck].state == "E", "the job to be stuck")
    pbs.jobs[stuck].state = "F"
    escaped = qsub(pbs, echelon.folder, "setsid sleep 600 & sleep 600")
    wait_for(lambda: len([p for p in cluster.processes("n1") if p.command == "sleep 600"]) == 2, "both")
    cluster.run("ctl", ["qdel", escaped], env={"PATH": echelon.env["PATH"]})
    wait_for(lambda: not pbs.unfinished(), "the job to end")
    assert [process.command for process in cluster.leftovers()["n1"]] == ["sleep 600"]
    cluster.end_leftovers()


def asked(cluster, echelon, *argv, **options):
    return cluster.run("ctl", argv, env={"PATH": echelon.env["PATH"]}, check=False, **options)


def fields(cluster, echelon, job_id):
    answer = asked(cluster, echelon, "qstat", "-f", "-F", "json", job_id)
    return json.loads(answer.stdout).get("Jobs", {}).get(job_id, {})


def test_without_a_history_only_live_jobs_are_known(echelon, pbs, cluster):
    job_id = qsub(pbs, echelon.folder, "sleep 600")
    wait_for(lambda: fields(cluster, echelon, job_id).get("job_state") == "R", "the job to run")
    answer = asked(cluster, echelon, "qstat", "-x", "-f", "-F", "json", job_id)
    assert (answer.returncode, "Jobs" in json.loads(answer.stdout)) == (0, False)
    assert answer.stderr == f"qstat: PBS is not configured to maintain job history {job_id}\n"
    assert asked(cluster, echelon, "qdel", job_id).returncode == 0
    wait_for(lambda: not pbs.unfinished(), "the job to end")
    assert asked(cluster, echelon, "qstat", "-f", job_id).returncode == 153
    assert asked(cluster, echelon, "qdel", job_id).returncode == 153


def test_a_rerun_shows_substate_60_then_e_then_the_same_id(cluster, echelon):
    with Server(cluster, exiting=1) as server:
        use(echelon, server)
        job_id = qsub(server, echelon.folder, "trap 'sleep 1; exit 1' TERM; echo up >>up; sleep 600 & wait")
        wait_for(lambda: (cluster.home / "up").exists(), "the script to run")
        server.rerun(job_id)
        wait_for(lambda: fields(cluster, echelon, job_id)["substate"] == 60, "substate 60")
        assert fields(cluster, echelon, job_id)["job_state"] == "R"
        wait_for(lambda: fields(cluster, echelon, job_id).get("Exit_status") == -11, "state E")
        wait_for(lambda: fields(cluster, echelon, job_id)["run_count"] == 2, "the second run")
        assert asked(cluster, echelon, "qdel", job_id).returncode == 0
        wait_for(lambda: not server.unfinished(), "the job to end")
    (cluster.home / "up").unlink()


def test_term_to_pbs_tmrsh_leaves_its_task_running(echelon, pbs, cluster):
    text = f"""
cd {echelon.folder}; PATH={shlex.quote(echelon.env["PATH"])}
pbs_tmrsh n2 /bin/sleep 601 & tmrsh=$!; pbsdsh -n 1 -- /bin/sleep 602 & pbsdsh=$!
sleep 1; kill $tmrsh $pbsdsh; wait $tmrsh $pbsdsh
pbs_tmrsh n4 /bin/true; echo $? >outside; sleep 600
"""
    job_id = qsub(pbs, echelon.folder, text, "-l", "select=2:ncpus=1", "-l", "place=scatter")
    wait_for(lambda: (echelon.folder / "outside").exists(), "the script to come to its end")
    assert (echelon.folder / "outside").read_text() == "255\n"
    assert [p.command for p in cluster.leftovers()["n2"]] == ["/bin/sleep 601"]
    asked(cluster, echelon, "qdel", job_id)


def test_suspension_stops_only_the_sessions_of_mom(echelon, pbs, cluster):
    job_id = qsub(pbs, echelon.folder, "setsid sleep 602 & sleep 601")
    found = wait_for(lambda: len(sleeping(cluster)) == 2 and sleeping(cluster), "both processes")
    pbs.suspend(job_id)
    wait_for(lambda: state(found["sleep 601"]) == "T", "the first to stop")
    assert state(found["sleep 602"]) == "S"
    pbs.resume(job_id)
    wait_for(lambda: state(found["sleep 601"]) == "S", "the first to run on")
    asked(cluster, echelon, "qdel", job_id)
    wait_for(lambda: not pbs.unfinished(), "the job to end")
    cluster.end_leftovers()


def sleeping(cluster):
    return {p.command: p.pid for p in cluster.processes("n1") if p.command.startswith("sleep 60")}


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_job_on_a_dead_host_is_deleted_once_its_node_is_down(cluster, echelon):
    with Server(cluster, node_down=3) as server:
        use(echelon, server)
        job_id = qsub(server, echelon.folder, "sleep 600")
        wait_for(lambda: server.jobs[job_id].state == "R", "the job to run")
        cluster.power_off("n1")
        force = ("qdel", "-W", "force", job_id)
        refused = asked(cluster, echelon, *force)
        assert "could not connect to MOM" in refused.stderr
        assert asked(cluster, echelon, "timeout", "1", "qdel", job_id).returncode == 124
        wait_for(lambda: asked(cluster, echelon, *force).returncode == 0, "qdel by force to succeed")
        assert not server.unfinished()


def test_an_array_has_a_job_for_each_index_and_a_limit(echelon, pbs, cluster):
    text = f'echo "$PBS_JOBID $PBS_ARRAY_ID" >{echelon.folder}/task-$PBS_ARRAY_INDEX; sleep 600'
    array = qsub(pbs, echelon.folder, text, "-J", "1-5:2%2")
    assert array == "0[].ctl"
    wait_for(lambda: len(list(echelon.folder.glob("task-*"))) == 2, "two to run")
    assert (echelon.folder / "task-3").read_text() == "0[3].ctl 0[].ctl\n"
    states = {i: fields(cluster, echelon, i)["job_state"] for i in ("0[].ctl", "0[1].ctl", "0[3].ctl", "0[5].ctl")}
    assert list(states.values()) == ["B", "R", "R", "Q"]
    asked(cluster, echelon, "qdel", "0[1].ctl")
    wait_for(lambda: fields(cluster, echelon, "0[5].ctl")["job_state"] == "R", "the third to run")
    assert fields(cluster, echelon, "0[1].ctl")["job_state"] == "X"
    asked(cluster, echelon, "qdel", array)
    wait_for(lambda: not pbs.unfinished(), "the array to end")
