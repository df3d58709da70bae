"""Whose file is looked for: the agent's, that of a plain script, or nobody's."""

import pytest

import echelon

AGENT, PLAIN = "ECHELON_NODE_DIR", "JOB_STATE"


@pytest.mark.parametrize(
    ("set_", "raised", "given"),
    [
        ((), (AGENT, PLAIN), False),
        ((AGENT,), (), False),
        ((AGENT,), (AGENT,), True),
        ((PLAIN,), (), False),
        ((PLAIN,), (PLAIN,), True),
        ((AGENT, PLAIN), (PLAIN,), False),
        ((AGENT, PLAIN), (AGENT,), True),
    ],
)
def test_nearest_notice_file_is_used(tmp_path, monkeypatch, set_, raised, given):
    for name in (AGENT, PLAIN):
        (tmp_path / name).mkdir()
        monkeypatch.delenv(name, raising=False)
    for name in set_:
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in raised:
        (tmp_path / name / "notice").touch()
    assert echelon.notice_given() is given


def test_rank_that_checks_the_notice_leaves_a_mark(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    echelon.notice_given()
    assert [path.name for path in tmp_path.iterdir()] == ["listens-3"]
