"""The manifest: read back as it was written, and refused in any other form."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.runtime.checkpoint.manifest import BLOCK, File, Manifest, blocks_of, from_bytes, to_bytes


@st.composite
def manifests(draw):
    place, files = 0, []
    for rank in range(draw(st.integers(1, 5))):
        share, own, index = (draw(st.integers(0, 3 * BLOCK)) for _ in range(3))
        size = share + own + index
        crcs = tuple(draw(st.integers(0, 2**32 - 1)) for _ in range(blocks_of(size)))
        files.append(
            File(name=f"rank-{rank}.bin", size=size, crcs=crcs, begin=place, end=place + share, index=share + own)
        )
        place += share
    score = draw(st.none() | st.floats(allow_nan=False))
    return Manifest(
        version=1, step=draw(st.integers(0, 10**12)), time=draw(st.floats(0, 1e12)), files=tuple(files), score=score
    )


@given(manifests())
def test_it_is_read_back(manifest):
    assert from_bytes(to_bytes(manifest)) == manifest


@given(manifests(), st.data())
def test_a_torn_one_is_refused(manifest, data):
    whole = to_bytes(manifest)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError):
        from_bytes(whole[:cut])


@given(manifests(), st.data())
def test_a_flipped_bit_is_refused_or_changes_nothing(manifest, data):
    changed = bytearray(to_bytes(manifest))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = from_bytes(bytes(changed))
    except ValueError:
        return
    assert read == manifest


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"files": []}, "no files"),
        ({"version": 2}, "version"),
        ({"files": [{"name": "../../etc/passwd"}]}, "belongs"),
        ({"files": [{"begin": 5}]}, "add up"),
        ({"files": [{"index": -1}]}, "add up"),
        ({"files": [{"crcs": []}]}, "CRCs"),
        ({"extra": 1}, "no field 'extra'"),
    ],
)
def test_what_does_not_add_up_is_refused_though_its_crc_is_right(change, sentence):
    file = {"name": "rank-0.bin", "size": 10, "crcs": [1], "begin": 0, "end": 5, "index": 8}
    body = {"version": 1, "step": 1, "time": 1.0, "files": [file]}
    if change.get("files"):
        change = {"files": [{**file, **change["files"][0]}]}
    body |= change
    crc = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    with pytest.raises(ValueError, match=sentence):
        from_bytes(json.dumps({"crc": crc, "manifest": body}).encode())
