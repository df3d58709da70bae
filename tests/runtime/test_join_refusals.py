"""echelon.join() with missing ranks, a port in use or a bad environment: an error that names them, at once."""

import os
import socket

import pytest
from crowd import STORY, hand_set

pytestmark = pytest.mark.torch
TOGETHER = """
import os, time
from datetime import timedelta
from pathlib import Path
import torch.distributed
import echelon

Path(os.environ["RANK"]).touch()
while not all(Path(rank).exists() for rank in "02"):
    time.sleep(0.01)
echelon.join(timeout=timedelta(seconds=3))
"""


def test_missing_ranks_are_named_on_all_joined_ranks(echelon, crowd):
    first, _, third, _ = hand_set(4)
    done = crowd(echelon.script("train.py", TOGETHER), [first, third])
    assert [code for code, _, _ in done] == [1, 1]
    for _, _, err in done:
        assert "error: 2 of 4 ranks did not join within 3 s: rank 1, rank 3\n" in err
        assert "echelon.join(timeout=...)" in err


def test_a_missing_rank_0_is_named_too(echelon, crowd):
    script = echelon.script("train.py", STORY.replace("seconds=60", "seconds=1"))
    _, second = hand_set(2)
    ((code, _, err),) = crowd(script, [second])
    assert code == 1
    assert f"error: rank 0 is missing: nothing answered at 127.0.0.1:{second['MASTER_PORT']} for 1 s\n" in err
    assert "Connection refused" in err


def test_occupied_port_is_reported_at_once(echelon, crowd):
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        ((code, _, err),) = crowd(echelon.script("train.py", STORY), [{**hand_set(2)[0], "MASTER_PORT": port}])
    assert code == 1
    assert f"error: rank 0 cannot listen on port {port}\n" in err
    assert "address already in use" in err


def test_wrong_variables_are_refused_before_torch_is_used(echelon, crowd):
    script = echelon.script(
        "train.py", "import echelon, sys\ntry: echelon.join()\nfinally: print('torch' in sys.modules)\n"
    )
    ((code, out, err),) = crowd(script, [{"RANK": "2", "WORLD_SIZE": "2"}])
    assert (code, out) == (1, "False\n")
    assert "error: RANK is 2, but WORLD_SIZE is 2\n" in err
    assert os.environ.get("RANK") is None
