"""Indices of an array, and the folders of its runs."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.backends.batch import array_id, array_run, array_run_by_variable, parse_indices
from echelon.shell import Command


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0", (0,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-3%2", (0, 1, 2, 3)),
        ("1,3,5", (1, 3, 5)),
        ("5,1,3,3", (1, 3, 5)),
        ("0-10:5", (0, 5, 10)),
        ("0-9:4", (0, 4, 8)),
        ("1-2,7,10-11%1", (1, 2, 7, 10, 11)),
        ("007", (7,)),
    ],
)
def test_indices_are_read_as_slurm_reads_them(text, indices):
    assert parse_indices(text) == indices


@pytest.mark.parametrize(
    "text",
    ["", " ", "a", "1-", "-1", "3-1", "1,,2", "1%", "1%0", "1%x", "1:2", "0-5:0", "0-9999999999", "1 2", "\u0661"],
)
def test_invalid_index_list_is_refused(text):
    with pytest.raises(ValueError):
        parse_indices(text)


@given(st.text("0123456789-,:%", max_size=20))
def test_any_text_is_indices_or_refused(text):
    try:
        indices = parse_indices(text)
    except ValueError:
        return
    assert list(indices) == sorted(set(indices))


def test_a_run_of_an_array_is_named_after_it_and_its_index():
    run = array_run(Path("/runs/gpt-20260115-101500-7f3a"), 4)
    assert run.path == Path("/runs/gpt-20260115-101500-7f3a-4")
    assert array_id(run) == "gpt-20260115-101500-7f3a"


@pytest.mark.parametrize("folder", ["/runs", "/it's", "/a b", "/$HOME", '/"', "/a'b\"c `d` \\"])
def test_a_script_finds_its_own_run_by_its_index(folder):
    path = array_run_by_variable(Path(folder) / "gpt", "INDEX").path / "echelon.pyz"
    for shell in ("sh", "bash"):
        [line] = Command(argv=("printf", "%s|", str(path), str(path.parent))).shell_lines()
        done = subprocess.run([shell, "-c", line], env={"INDEX": "4 *"}, capture_output=True, text=True, check=True)
        assert done.stdout == f"{folder}/gpt-4 */echelon.pyz|{folder}/gpt-4 *|"
