"""Damaged files are found and named, and an intact checkpoint is loaded instead."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from small_training import fingerprint, gone_back, saved_at, things

from echelon.errors import EnvironmentProblem
from echelon.train.checkpoint import file_format, write
from echelon.train.checkpoint import file_format as manifests
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.file_format import BLOCK_BYTES, ShardFile
from echelon.train.checkpoint.verify import (
    DamagedCheckpoint,
    check_blocks,
    committed_checkpoints,
    read_manifest,
    verify_checkpoint,
)

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
@pytest.mark.parametrize("file", ["rank-0.bin", file_format.MANIFEST_FILE])
def test_damaged_file_is_named_and_previous_one_is_loaded(tmp_path, capsys, file, what):
    before = saved_at(tmp_path, 1)
    good = fingerprint(before)
    saved_at(tmp_path, 2)
    DAMAGE[what](tmp_path / "step-00000002" / file)
    after = things()
    checkpoint = Checkpoint(tmp_path, **after)
    assert checkpoint.load()
    assert checkpoint.step == 1
    assert fingerprint(after) == good
    assert f"skipped step-00000002: step-00000002/{file} " in capsys.readouterr().err
    checkpoint.close()


def test_all_damaged_names_each_and_loads_nothing(tmp_path):
    saved_at(tmp_path, 1, 2)
    for step in (1, 2):
        flip(tmp_path / f"step-0000000{step}" / "rank-0.bin")
    mine = things()
    before = fingerprint(mine)
    checkpoint = Checkpoint(tmp_path, **mine)
    with pytest.raises(EnvironmentProblem, match="all 2 checkpoints are damaged") as error:
        checkpoint.load()
    assert "step-00000001/rank-0.bin" in error.value.why
    assert "step-00000002/rank-0.bin" in error.value.why
    assert fingerprint(mine) == before
    checkpoint.close()


def test_manifest_of_another_step_is_damaged(tmp_path):
    saved_at(tmp_path, 1)
    (tmp_path / "step-00000001").rename(tmp_path / "step-00000009")
    with pytest.raises(DamagedCheckpoint, match="is of step 1"):
        verify_checkpoint(tmp_path / "step-00000009")


@pytest.mark.parametrize("damage", ["a flipped bit", "missing"])
def test_damaged_manifest_keeps_its_place_in_commit_order(tmp_path, capsys, damage):
    saved_at(tmp_path, 500, 1000, 1500)
    gone_back(tmp_path, 500, 600)
    DAMAGE[damage](tmp_path / "step-00000600" / file_format.MANIFEST_FILE)
    assert [name.step for name in committed_checkpoints(tmp_path)] == [500, 1000, 1500, 600]
    checkpoint = Checkpoint(tmp_path, every=None, **things())
    assert checkpoint.load()
    assert "skipped step-00000600: " in capsys.readouterr().err
    checkpoint.close()


def test_damaged_checkpoint_falls_back_to_its_parent(tmp_path, capsys):
    saved_at(tmp_path, 500, 1000, 1500, 2000)
    gone_back(tmp_path, 500, 600)
    DAMAGE["a flipped bit"](tmp_path / "step-00000600" / "rank-0.bin")
    with Checkpoint(tmp_path, every=None, **things()) as checkpoint:
        assert checkpoint.step == 500, "2000 was committed later, and belongs to what was abandoned"
        checkpoint.step = 550
        checkpoint.save(wait=True)
    assert "skipped step-00000600: " in capsys.readouterr().err
    assert read_manifest(tmp_path / "step-00000550").parent == "step-00000500"


def test_parts_of_the_check_cover_all_blocks(tmp_path):
    data = os.urandom(1 << 20) * 40
    size, crcs = write.write_synced_file(tmp_path / "rank-0.bin", [memoryview(data), b"index"])
    file = ShardFile(name="rank-0.bin", size=size, crcs=tuple(crcs), begin=0, end=0, index=0)
    assert size == len(data) + 5
    assert len(crcs) == 3
    with (tmp_path / "rank-0.bin").open("r+b") as damaged:
        damaged.seek(BLOCK_BYTES + 17)
        damaged.write(b"\0\1\2")
    found = []
    for part in range(4):
        try:
            check_blocks(tmp_path, [file], part=part, parts=4)
        except DamagedCheckpoint as damage:
            found.append((part, str(damage)))
    assert [part for part, _ in found] == [1]
    assert f"bytes {BLOCK_BYTES} to {2 * BLOCK_BYTES}" in found[0][1]


REPLACED = {
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link": lambda path: (path.rename(path.with_suffix(".real")), path.symlink_to(path.with_suffix(".real"))),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("what", REPLACED)
@pytest.mark.parametrize("file", ["rank-0.bin", file_format.MANIFEST_FILE])
def test_file_that_is_not_regular_is_damaged(tmp_path, capsys, file, what):
    saved_at(tmp_path, 1, 2)
    REPLACED[what](tmp_path / "step-00000002" / file)
    checkpoint = Checkpoint(tmp_path, **things())
    assert checkpoint.load()
    assert checkpoint.step == 1
    assert f"skipped step-00000002: step-00000002/{file} " in capsys.readouterr().err
    checkpoint.close()


def test_manifest_that_is_too_long_is_damaged(tmp_path):
    saved_at(tmp_path, 1)
    with (tmp_path / "step-00000001" / file_format.MANIFEST_FILE).open("r+b") as manifest:
        manifest.truncate(1 << 40)
    with pytest.raises(DamagedCheckpoint, match="more than 67108864 bytes"):
        read_manifest(tmp_path / "step-00000001")


def with_index(folder, change):
    """Replaces the index of the checkpoint, with right sizes and CRCs."""
    manifest = read_manifest(folder)
    (file,) = manifest.files
    path = folder / file.name
    data = path.read_bytes()
    index = change(json.loads(data[file.index :]))
    path.unlink()
    text = index if isinstance(index, bytes) else json.dumps(index).encode()
    size, crcs = write.write_synced_file(path, [data[: file.index], text])
    changed = replace(manifest, files=(replace(file, size=size, crcs=tuple(crcs)),))
    (folder / file_format.MANIFEST_FILE).write_bytes(manifests.encode_manifest(changed))


def set_in(index, *path, to):
    here = index
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = to
    return index


HOSTILE = {
    "negative size": lambda index: set_in(index, "tensors", 0, "shape", to=[-4]),
    "huge tensor": lambda index: set_in(index, "tensors", 0, "shape", to=[1 << 60]),
    "huge product": lambda index: set_in(index, "own_tensors", 0, "shape", to=[1 << 40, 1 << 40]),
    "shape of text": lambda index: set_in(index, "tensors", 0, "shape", to="abc"),
    "offset beyond the file": lambda index: set_in(index, "pieces", 0, "offset", to=1 << 40),
    "negative offset": lambda index: set_in(index, "pieces", 0, "offset", to=-1),
    "piece of no tensor": lambda index: set_in(index, "pieces", 0, "tensor", to=10**9),
    "piece outside": lambda index: set_in(index, "pieces", 0, "starts", to=[99]),
    "no such tensor": lambda index: set_in(index, "own", to={"dict": [["rng", {"tensor": 10**9}]]}),
    "no dtype": lambda index: set_in(index, "tensors", 0, "dtype", to="load"),
    "NaN": lambda index: set_in(index, "pieces", 0, "offset", to=float("nan")),
    "deep nesting": lambda _: b'{"version": 1, "common": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested state": lambda index: set_in(index, "own", to=nested(190)),
    "no state": lambda index: set_in(index, "common", to={}),
    "no tensors": lambda index: {key: value for key, value in index.items() if key != "tensors"},
    "a list": lambda _: [],
    "nothing": lambda _: b"",
}


def nested(depth):
    return {"list": [nested(depth - 2)]} if depth > 1 else {"dict": []}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_index_is_damaged_and_the_older_is_loaded(tmp_path, capsys, what):
    saved_at(tmp_path, 1, 2)
    with_index(tmp_path / "step-00000002", HOSTILE[what])
    verify_checkpoint(tmp_path / "step-00000002")
    checkpoint = Checkpoint(tmp_path, **things())
    assert checkpoint.load()
    assert checkpoint.step == 1
    said = capsys.readouterr().err
    assert "skipped step-00000002: step-00000002/rank-0.bin is damaged: its index " in said
    checkpoint.close()


@pytest.mark.parametrize("field", ["step", "commit", "time"])
def test_manifest_with_numbers_out_of_range_is_damaged(tmp_path, field):
    saved_at(tmp_path, 1)
    folder = tmp_path / "step-00000001"
    value = float("nan") if field == "time" else -1
    (folder / file_format.MANIFEST_FILE).write_bytes(
        manifests.encode_manifest(replace(read_manifest(folder), **{field: value}))
    )
    with pytest.raises(DamagedCheckpoint, match="out of range"):
        read_manifest(folder)
