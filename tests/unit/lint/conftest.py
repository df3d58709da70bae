"""What tests of the command share."""

import pytest
from linting import CLEAN, ERROR, WARNING, Lint


@pytest.fixture
def lint(tmp_path):
    lint = Lint(tmp_path)
    lint.write("error.sh", ERROR)
    lint.write("warning.sh", WARNING)
    lint.write("clean.sh", CLEAN)
    return lint
