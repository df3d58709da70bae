"""Damaged files are found and named, and what is whole is loaded instead."""

import os
from pathlib import Path

import pytest
from small_training import fingerprint, gone_back, saved_at, things

from echelon.errors import EnvironmentProblem
from echelon.runtime.checkpoint import names, writer
from echelon.runtime.checkpoint.checkpoint import Checkpoint
from echelon.runtime.checkpoint.manifest import BLOCK, File
from echelon.runtime.checkpoint.verify import Damaged, check_all, check_blocks, committed, read_manifest

pytestmark = pytest.mark.usefixtures("alone")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


DAMAGE = {
    "a flipped bit": flip,
    "the last bit flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "a byte short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "missing": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("file", ["rank-0.bin", names.MANIFEST])
def test_damage_is_found_the_file_named_and_the_one_before_loaded(tmp_path, capsys, file, what):
    before = saved_at(tmp_path, 1)
    good = fingerprint(before)
    saved_at(tmp_path, 2)
    DAMAGE[what](tmp_path / "step-00000002" / file)
    after = things()
    checkpoint = Checkpoint(tmp_path, **after)
    assert checkpoint.load()
    assert checkpoint.step == 1
    assert fingerprint(after) == good
    assert f"step-00000002 is left out: step-00000002/{file} " in capsys.readouterr().err
    checkpoint.close()


def test_where_all_are_damaged_nothing_is_touched_and_all_are_named(tmp_path):
    saved_at(tmp_path, 1, 2)
    for step in (1, 2):
        flip(tmp_path / f"step-0000000{step}" / "rank-0.bin")
    mine = things()
    before = fingerprint(mine)
    checkpoint = Checkpoint(tmp_path, **mine)
    with pytest.raises(EnvironmentProblem, match="none of 2 checkpoints is whole") as error:
        checkpoint.load()
    assert "step-00000001/rank-0.bin" in error.value.why
    assert "step-00000002/rank-0.bin" in error.value.why
    assert fingerprint(mine) == before
    checkpoint.close()


def test_a_manifest_from_another_step_is_no_manifest(tmp_path):
    saved_at(tmp_path, 1)
    (tmp_path / "step-00000001").rename(tmp_path / "step-00000009")
    with pytest.raises(Damaged, match="is of step 1"):
        check_all(tmp_path / "step-00000009")


@pytest.mark.parametrize("damage", ["a flipped bit", "missing"])
def test_a_damaged_commit_of_an_earlier_step_is_still_the_last_one_and_is_told(tmp_path, capsys, damage):
    saved_at(tmp_path, 500, 1000, 1500)
    gone_back(tmp_path, 500, 600)
    DAMAGE[damage](tmp_path / "step-00000600" / names.MANIFEST)
    assert [name.step for name in committed(tmp_path)] == [500, 1000, 1500, 600]
    checkpoint = Checkpoint(tmp_path, every=None, **things())
    assert checkpoint.load()
    assert "step-00000600 is left out" in capsys.readouterr().err
    checkpoint.close()


def test_after_a_damaged_one_training_goes_on_from_what_it_came_from(tmp_path, capsys):
    saved_at(tmp_path, 500, 1000, 1500, 2000)
    gone_back(tmp_path, 500, 600)
    DAMAGE["a flipped bit"](tmp_path / "step-00000600" / "rank-0.bin")
    with Checkpoint(tmp_path, every=None, **things()) as checkpoint:
        assert checkpoint.step == 500, "2000 was committed later, and belongs to what was abandoned"
        checkpoint.step = 550
        checkpoint.save(wait=True)
    assert "step-00000600 is left out" in capsys.readouterr().err
    assert read_manifest(tmp_path / "step-00000550").parent == "step-00000500"


def test_parts_of_the_checking_are_together_all_of_it(tmp_path):
    data = os.urandom(1 << 20) * 40
    size, crcs = writer.write_shard(tmp_path / "rank-0.bin", [memoryview(data), b"index"])
    file = File(name="rank-0.bin", size=size, crcs=tuple(crcs), begin=0, end=0, index=0)
    assert size == len(data) + 5
    assert len(crcs) == 3
    with (tmp_path / "rank-0.bin").open("r+b") as damaged:
        damaged.seek(BLOCK + 17)
        damaged.write(b"\0\1\2")
    found = []
    for part in range(4):
        try:
            check_blocks(tmp_path, [file], part=part, parts=4)
        except Damaged as damage:
            found.append((part, str(damage)))
    assert [part for part, _ in found] == [1]
    assert f"bytes {BLOCK} to {2 * BLOCK}" in found[0][1]
