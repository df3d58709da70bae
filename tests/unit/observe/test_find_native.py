"""Runs by their scheduler's job id, for `echelon cancel`."""

import pytest

from echelon.errors import ConfigError
from echelon.observe.find import find_runs_or_jobs, matches_native_id
from echelon.run_dir import RunDir

ARRAY = "gpt-20260115-101500-7f3a"


@pytest.mark.parametrize(
    ("word", "native_id", "expected"),
    [
        ("1234", "1234", True),
        ("1234", "1234;far", True),
        ("1234;far", "1234;far", True),
        ("1234", "1234_7", True),
        ("1234_7", "1234_7;far", True),
        ("1234_[0-9]", "1234_7", True),
        ("1234_[0-9%2]", "1234_7;far", True),
        ("24[].pbs", "24[3].pbs", True),
        ("24[]", "24[3].pbs", True),
        ("24", "24[3].pbs", True),
        ("24[3]", "24[3].pbs", True),
        ("24.pbs", "24.pbs", True),
        ("123", "1234", False),
        ("1234", "12345_7", False),
        ("1234_8", "1234_7", False),
        ("24[4]", "24[3].pbs", False),
        ("1234", "", False),
        ("7", "1234_7", False),
    ],
)
def test_a_job_id_names_a_job_or_its_array(word, native_id, expected):
    assert matches_native_id(word, native_id) is expected


@pytest.fixture
def environ(tmp_path):
    for index in range(3):
        run = RunDir(tmp_path / "runs" / f"{ARRAY}-{index}")
        run.create()
        run.description.write_text("{}")
        run.native_id.write_text(f"1234_{index}\n")
    return {"HOME": str(tmp_path), "ECHELON_RUNS": str(tmp_path / "runs")}


@pytest.mark.parametrize(
    ("word", "indices"), [(ARRAY, [0, 1, 2]), ("1234", [0, 1, 2]), ("1234_1", [1]), ("1234_[0-2]", [0, 1, 2])]
)
def test_an_array_is_found_by_either_id(environ, word, indices):
    found = sorted(run.run_id for run in find_runs_or_jobs(word, environ))
    assert found == [f"{ARRAY}-{index}" for index in indices]


@pytest.mark.parametrize("word", ["99", "1234_9", "bert"])
def test_an_unknown_id_is_refused(environ, word):
    with pytest.raises(ConfigError, match="no run matches"):
        find_runs_or_jobs(word, environ)
