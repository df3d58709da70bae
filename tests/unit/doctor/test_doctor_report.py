"""From what nodes printed to the report, and what is kept of it."""

import json
import time

import pytest

from echelon.codec import encode
from echelon.doctor.history import compare_with_last, history_file, keep, read_last, summarize
from echelon.doctor.isolate import run_isolated
from echelon.doctor.job import doctor_job
from echelon.doctor.judge import exclude_list, judge_heard, parse_lines, sort_findings
from echelon.doctor.login import judge_login, lock_holder, parse_quota
from echelon.doctor.meeting import format_line
from echelon.doctor.model import Finding, Node, Plan, Result, Severity
from echelon.doctor.report import Report, format_report, format_summary, report_as_json
from echelon.job import Job, Resources, Script, ScriptKind
from echelon.train.checkpoint.folder import acquire_lock

HOSTS = ["n1", "n2", "n3"]


def lines(*results, ended=True, extra=()):
    found = [format_line("result", encode(result)) for result in results]
    return "\n".join([*extra, *found, *([format_line("end", {})] if ended else [])])


def torch(version):
    return Result(check="software", facts={"torch": version, "python": "3.11.7"})


def finding(severity=Severity.ERROR, node="n2", **fields):
    return Finding(**{"severity": severity, "check": "storage", "node": node, "what": "is full", **fields})


# Lines


def test_lines_of_nodes_are_parsed_and_others_ignored():
    text = lines(torch("2.13.0"), extra=["hello", '{"doctor": 5', '{"doctor": "result", "check": 3}'])
    heard = parse_lines(text, HOSTS)
    assert heard.ended
    assert heard.results["software"].facts["torch"] == "2.13.0"


def test_peers_are_named_by_their_host():
    heard = parse_lines(lines(Result(check="pairs/2", facts={"latency": 1.0})), HOSTS)
    assert list(heard.results) == ["pairs/n3"]


def test_node_that_cannot_reach_the_first_one_is_excluded():
    text = lines(extra=[format_line("unreachable", {"peer": "10.0.0.1:5000", "why": "timed out"})])
    heard = {"n1": parse_lines(lines(), HOSTS), "n2": parse_lines(text, HOSTS)}
    [found] = judge_heard(heard, HOSTS, Plan())
    assert (found.node, found.what) == ("n2", "cannot reach the first node")
    assert found.why == "cannot connect to n1 (10.0.0.1:5000): timed out"
    assert found.excludes == ("n2",)


def test_node_without_an_end_did_not_finish():
    heard = {"n1": parse_lines(lines(ended=False), HOSTS)}
    assert judge_heard(heard, HOSTS, Plan())[0].what == "did not finish its checks"


def test_check_that_timed_out_has_the_finding_of_that_check():
    slow = Result(check="gpus", problem="no answer within 15 s", timed_out=True)
    heard = {"n1": parse_lines(lines(slow), HOSTS)}
    assert judge_heard(heard, HOSTS, Plan())[0].what == "nvidia-smi does not return"


def test_check_that_raised_is_a_warning():
    heard = {"n1": parse_lines(lines(Result(check="limits", problem="OSError: x")), HOSTS)}
    [found] = judge_heard(heard, HOSTS, Plan())
    assert (found.severity, found.what) == (Severity.WARNING, "the check of limits failed")


def test_nodes_are_compared():
    heard = {name: parse_lines(lines(torch("2.12.1" if name == "n3" else "2.13.0")), HOSTS) for name in HOSTS}
    assert [one.node for one in judge_heard(heard, HOSTS, Plan())] == ["n3"]


def test_node_with_fewer_cores_is_a_warning():
    heard = {
        name: parse_lines(lines(Result(check="compute", facts={"cores": 1 if name == "n2" else 8})), HOSTS)
        for name in HOSTS
    }
    [found] = judge_heard(heard, HOSTS, Plan())
    assert (found.node, found.what) == ("n2", "1 of 8 cores")


# Report


def test_worst_findings_come_first():
    found = sort_findings([finding(Severity.NOTE), finding(Severity.WARNING), finding(Severity.ERROR, node="n3")])
    assert [one.severity for one in found] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def test_excluded_nodes_are_those_of_errors():
    found = [finding(excludes=("n2",)), finding(Severity.WARNING, node="n1", excludes=("n1",))]
    assert exclude_list(found) == ["n2"]


def test_table_fits_80_columns():
    long = finding(node="gpu-node-with-a-long-name-17 -> gpu-18", what="w " * 80, why="y" * 200, fix="f " * 90)
    text = format_report(Report(site="x", findings=[long, finding()]))
    assert all(len(line) <= 80 for line in text.splitlines())


def test_table_has_one_block_per_finding():
    text = format_report(Report(site="x", findings=[finding(why="No space left on device", fix="free some space")]))
    assert text == ("error   n2  is full\n        why   No space left on device\n        fix   free some space")


def test_summary_counts_and_names_the_nodes_to_leave_out():
    nodes = [Node(name=name) for name in HOSTS]
    report = Report(site="x", findings=[finding(excludes=("n2", "n3"))], nodes=nodes, seconds=12.3)
    assert format_summary(report) == [
        "1 error, 0 warnings on 3 nodes in 12 s",
        "leave out these nodes: --exclude n[2-3]",
    ]


def test_list_without_any_node_left_is_not_printed():
    nodes = [Node(name="n1"), Node(name="n2")]
    report = Report(site="x", findings=[finding(excludes=("n1", "n2"))], nodes=nodes)
    assert format_summary(report)[-1] == "no node is left without an error"


def test_json_has_findings_facts_and_the_verdict():
    report = Report(site="x", findings=[finding()], nodes=[Node(name="n2", results={"software": torch("2.13.0")})])
    data = json.loads(json.dumps(report_as_json(report)))
    assert data["ok"] is False
    assert data["findings"][0]["what"] == "is full"
    assert data["nodes"]["n2"]["software"]["facts"]["torch"] == "2.13.0"


# History


def summary(version="2.13.0", bandwidth=1e9, cores=8):
    pair = Result(check="pairs/n2", facts={"bandwidth": bandwidth})
    results = {"software": torch(version), "compute": Result(check="compute", facts={"cores": cores}), "pairs/n2": pair}
    return summarize([Node(name="n1", results=results)], 0.0)


def test_same_result_has_no_note():
    assert list(compare_with_last(summary(), summary())) == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"version": "2.14.0"}, "torch is 2.14.0, was 2.13.0"),
        ({"cores": 4}, "cores is 4, was 8"),
        ({"bandwidth": 1e8}, "bandwidth of the slowest connection is 0.80 Gbit/s, was 8.00 Gbit/s"),
    ],
)
def test_change_since_the_last_good_result_is_a_note(changed, what):
    [note] = compare_with_last(summary(**changed), summary())
    assert (note.severity, note.what) == (Severity.NOTE, what)
    assert "last good" in note.why


def test_better_bandwidth_is_no_note():
    assert list(compare_with_last(summary(bandwidth=1e10), summary())) == []


def test_result_is_kept_per_site(tmp_path):
    path = history_file("slurm gpu login/1", {"XDG_STATE_HOME": str(tmp_path)})
    assert read_last(path) is None
    keep(path, summary())
    assert read_last(path) == json.loads(json.dumps(summary()))
    assert path.name == "slurm-gpu-login-1.json"


def test_damaged_history_is_ignored(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[1")
    assert read_last(path) is None
    assert list(compare_with_last(summary(), {"nodes": 5, "time": "x", "bandwidth": []})) == []


# Login


def test_refused_request_is_an_error():
    facts = {"scheduler": {"refusal": {"what": "Slurm would refuse the job", "why": "Invalid account", "fix": "-A"}}}
    [found] = judge_login(facts, "login1")
    assert (found.severity, found.node, found.why) == (Severity.ERROR, "login1", "Invalid account")


def test_local_path_is_a_warning():
    [found] = judge_login({"visible": {"unseen": ["/tmp/train.py"]}}, "login1")
    assert found.what == "/tmp/train.py may not exist on the nodes"


def test_quota_is_parsed_and_judged():
    text = "Disk quotas for user me (uid 1):\n  Filesystem blocks quota limit grace files\nhome:/me 99* 90 100 6days 12 0 0\n"
    assert parse_quota(text) == [{"path": "home:/me", "share": 0.99}]
    [found] = judge_login({"quota": {"quotas": parse_quota(text)}}, "login1")
    assert found.what == "99% of the quota of home:/me is used"


def test_holder_of_a_checkpoint_folder_is_found(tmp_path):
    assert lock_holder(tmp_path) == ""
    import os
    import subprocess
    import sys

    code = (
        "import sys, time\nfrom pathlib import Path\nfrom echelon.train.checkpoint.folder import acquire_lock\n"
        "fd = acquire_lock(Path(sys.argv[1]), run='gpt-1')\nprint('held', flush=True)\ntime.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout.readline() == b"held\n"
        assert lock_holder(tmp_path).startswith(f"run gpt-1, process {holder.pid}")
        holder.kill()
    fd = acquire_lock(tmp_path)
    os.close(fd)
    [found] = judge_login({"holders": {"held": [{"path": "/ckpt", "holder": "run gpt-1"}]}}, "login1")
    assert found.what == "another run saves to /ckpt"


# Isolation


def test_function_that_hangs_is_left_behind():
    began = time.monotonic()
    result = run_isolated("mounts", 0.3, lambda: time.sleep(60))
    assert result.timed_out
    assert time.monotonic() - began < 10


def test_function_that_raises_or_dies_has_a_problem():
    import os

    assert run_isolated("x", 5, lambda: 1 / 0).problem == "ZeroDivisionError: division by zero"
    assert run_isolated("x", 5, lambda: os._exit(3)).problem == "the process of the check died"


def test_function_that_writes_much_is_read_whole():
    assert len(run_isolated("x", 10, lambda: {"text": "x" * 300_000}).facts["text"]) == 300_000


# Job


def test_doctor_job_has_one_process_per_node_and_starts_without_absent_nodes():
    script = Script(kind=ScriptKind.FILE, target="train.py")
    resources = Resources(nodes=4, procs_per_node=8, gpus_per_node=8, spare_nodes=2)
    job = Job(
        name="x", script=script, cwd="/w", python="/p", scheduler="local", resources=resources, launcher="torchrun"
    )
    made = doctor_job(job, Plan(ranks=8, gpus=8))
    assert made.resources.procs_per_node == 1
    assert made.resources.smallest == 1
    assert made.resources.gpus_per_node == 8
    assert made.launcher == "ranks"
    assert not made.warm
    assert made.script.target == "/p"
    assert json.loads(made.script.args[-1])["ranks"] == 8
