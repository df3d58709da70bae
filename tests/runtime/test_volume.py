"""A flood of output: every line arrives, tagged, in order, and a full disk does not stop the ranks."""

import subprocess

import pytest

from echelon.submission.bundle import node_side
from running import marked_processes, wait_for

FLOOD = """
import os, sys
rank = os.environ["RANK"]
for number in range(20_000):
    sys.stdout.write(f"{rank} says {number}\\n")
"""


def test_lines_of_eight_ranks_are_complete_and_in_order(echelon):
    script = echelon.script("flood.py", FLOOD)
    result = echelon("run", "-N", "2", "-g", "4", "--cold", script)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 8 * 20_000
    for rank in range(8):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert mine == [f"[{rank}] {rank} says {number}" for number in range(20_000)]


def test_lines_without_newline_and_progress_bars_arrive(echelon):
    script = echelon.script("bar.py", "import sys\nsys.stdout.write('10%\\r20%\\rdone\\nlast')\n")
    result = echelon("run", "--cold", script)
    assert result.stdout == "[0] 10%\n[0] 20%\n[0] done\n[0] last\n"
    assert (echelon.only_run().path / "attempt-0" / "rank-0.out").read_bytes() == b"10%\r20%\rdone\nlast"


def test_log_max_bounds_the_files_and_reports_the_dropped_output(echelon):
    script = echelon.script("flood.py", FLOOD.replace("20_000", "200_000") + "print('last line')\n")
    result = echelon("run", "-g", "2", "--cold", "--log-max", "1M", script)
    assert result.returncode == 0, result.stderr
    attempt = echelon.only_run().path / "attempt-0"
    for rank in range(2):
        parts = [path.stat().st_size for path in attempt.glob(f"rank-{rank}*.out")]
        assert len(parts) > 1
        assert sum(parts) <= 1 << 20
    assert ".out is longer than --log-max; its middle is dropped" in result.stderr, "one warning for the node"
    logs = echelon("logs", "--rank", "1").stdout.splitlines()
    assert logs[0].endswith("1 says 0")
    assert logs[-1].endswith("last line")
    assert sum("of output dropped here; a larger --log-max keeps more" in line for line in logs) == 1


@pytest.mark.root
def test_a_disk_that_fills_up_loses_log_lines_and_not_the_run(echelon, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    size = f"size={len(node_side()) // 1024 + 512}k"  # enough to start, too little for the output
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=True)
    try:
        script = echelon.script("flood.py", FLOOD + "\nopen(f'finished-{rank}', 'w').close()\n")
        result = echelon("run", "-g", "4", "--cold", script, env={"ECHELON_RUNS": str(disk)})
        assert all((echelon.folder / f"finished-{rank}").exists() for rank in range(4))
        assert result.returncode == 0, result.stderr
        assert "output was lost: No space left on device" in result.stderr
        assert "succeeded" in result.stderr, "the last word is written even so"
        wait_for(lambda: not marked_processes(echelon.mark), "the supervisor to let go of the disk")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
