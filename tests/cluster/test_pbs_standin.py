"""The stand-in for PBS has the faults of the real one."""

from node import wait_for
from pbs.using import qsub


def test_the_stand_in_has_the_faults_of_the_real_one(echelon, pbs, cluster):
    text = """
export SEEN=yes
pwd >here; echo "$PBS_NODEFILE" >>here
pbs_tmrsh n2 /bin/sh -c 'pwd; hostname; echo "[$SEEN] $PATH $PBS_NODENUM"; exit 7' ; echo "tmrsh $?" >>here
pbsdsh -n 3 -- /bin/sh -c 'hostname >>there; exit 7'; echo "pbsdsh $?" >>here
"""
    here = f"cd {echelon.folder}; PATH={echelon.env['PATH']}; {text}"
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
