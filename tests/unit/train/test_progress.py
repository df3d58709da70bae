"""`echelon.report` writes into a page that the agent reads."""

import mmap

import echelon
from echelon.train import progress


def test_page_is_mapped_once_for_many_reports(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(progress, "_page_path", None)
    (tmp_path / "progress-3").write_bytes(bytes(16))
    pages = []
    real = mmap.mmap
    monkeypatch.setattr(mmap, "mmap", lambda *args: pages.append(real(*args)) or pages[-1])
    for step in range(3):
        echelon.report(step)
    assert len(pages) == 1
