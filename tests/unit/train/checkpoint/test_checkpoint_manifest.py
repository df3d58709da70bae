"""A manifest is read back as it was written, and refused if it is damaged."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.train.checkpoint.file_format import (
    BLOCK_BYTES,
    Manifest,
    ShardFile,
    block_count,
    decode_manifest,
    encode_manifest,
)


@st.composite
def manifests(draw):
    place, files = 0, []
    for rank in range(draw(st.integers(1, 5))):
        share, own, index = (draw(st.integers(0, 3 * BLOCK_BYTES)) for _ in range(3))
        size = share + own + index
        crcs = tuple(draw(st.integers(0, 2**32 - 1)) for _ in range(block_count(size)))
        files.append(
            ShardFile(name=f"rank-{rank}.bin", size=size, crcs=crcs, begin=place, end=place + share, index=share + own)
        )
        place += share
    score = draw(st.none() | st.floats(allow_nan=False))
    return Manifest(
        version=1, step=draw(st.integers(0, 10**12)), time=draw(st.floats(0, 1e12)), files=tuple(files), score=score
    )


@given(manifests())
def test_manifest_is_read_back(manifest):
    assert decode_manifest(encode_manifest(manifest)) == manifest


@given(manifests(), st.data())
def test_truncated_manifest_is_refused(manifest, data):
    whole = encode_manifest(manifest)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError):
        decode_manifest(whole[:cut])


@given(manifests(), st.data())
def test_flipped_bit_is_refused_or_changes_nothing(manifest, data):
    changed = bytearray(encode_manifest(manifest))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = decode_manifest(bytes(changed))
    except ValueError:
        return
    assert read == manifest


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"files": []}, "no files"),
        ({"version": 2}, "version"),
        ({"files": [{"name": "../../etc/passwd"}]}, "instead of rank-0.bin"),
        ({"files": [{"begin": 5}]}, "inconsistent"),
        ({"files": [{"index": -1}]}, "inconsistent"),
        ({"files": [{"crcs": []}]}, "CRCs"),
        ({"extra": 1}, "no field 'extra'"),
    ],
)
def test_inconsistent_manifest_with_right_crc_is_refused(change, sentence):
    file = {"name": "rank-0.bin", "size": 10, "crcs": [1], "begin": 0, "end": 5, "index": 8}
    body = {"version": 1, "step": 1, "time": 1.0, "files": [file]}
    if change.get("files"):
        change = {"files": [{**file, **change["files"][0]}]}
    body |= change
    crc = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    with pytest.raises(ValueError, match=sentence):
        decode_manifest(json.dumps({"crc": crc, "manifest": body}).encode())
