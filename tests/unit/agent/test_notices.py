"""SIGUSR1 reaches ranks that install their handler after the notice."""

from types import SimpleNamespace

from echelon.agent.notices import NoticeSender
from echelon.wire.messages import Sample
from echelon.wire.node_dir import NodeDir


class Ranks:
    """Stands for a RankSet whose ranks have these pids; `handlers` are those that handle SIGUSR1."""

    def __init__(self, *pids):
        self.members = {rank: SimpleNamespace(pid=pid) for rank, pid in enumerate(pids)}
        self.handlers = set()
        self.remarks = []

    def signal_ranks_with_handler(self, _signum, skip=()):
        return [r for r, m in self.members.items() if m.pid in self.handlers and m.pid not in skip]

    def log_line(self, text):
        self.remarks.append(text)


def sample(rank):
    return Sample(rank=rank, lines=0, cpu_seconds=0.0, stopped=False)


def test_a_late_handler_is_signalled_once(tmp_path):
    ranks = Ranks(11, 12)
    notices = NoticeSender(ranks, NodeDir(tmp_path))
    notices.send(60.0)
    ranks.handlers.add(12)
    notices.send_to_new_ranks()
    notices.send_to_new_ranks()
    assert ranks.remarks == ["notice: 60 s left", "notice: SIGUSR1 to rank 1"]


def test_ranks_of_a_later_generation_are_signalled(tmp_path):
    ranks = Ranks(11)
    ranks.handlers = {11, 21}
    notices = NoticeSender(ranks, NodeDir(tmp_path))
    notices.send(60.0)
    ranks.members[0].pid = 21
    notices.send_to_new_ranks()
    assert ranks.remarks[-1] == "notice: SIGUSR1 to rank 0"


def test_ranks_are_not_signalled_before_the_notice(tmp_path):
    ranks = Ranks(11)
    ranks.handlers = {11}
    NoticeSender(ranks, NodeDir(tmp_path)).send_to_new_ranks()
    assert ranks.remarks == []


def test_samples_name_the_ranks_that_handle_the_notice(tmp_path):
    ranks = Ranks(11, 12, 13)
    ranks.handlers = {11}
    notices = NoticeSender(ranks, NodeDir(tmp_path))
    assert not notices.mark_samples((sample(0),))[0].handles_notice
    notices.send(60.0)
    NodeDir(tmp_path).reads_notice(1).touch()
    assert [one.handles_notice for one in notices.mark_samples((sample(0), sample(1), sample(2)))] == [
        True,
        True,
        False,
    ]
