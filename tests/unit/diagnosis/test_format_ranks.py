import pytest

from echelon.diagnosis.ranks import format_ranks, format_ranks_with_host, format_waiting, group_ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([5], "rank 5"),
        ([0, 1], "ranks 0, 1"),
        ([0, 1, 2], "ranks 0-2"),
        ([0, 1, 2, 3, 6, 7], "ranks 0-3, 6, 7"),
        ([7, 6, 3, 2, 1, 0], "ranks 0-3, 6, 7"),
        ([4, 4], "rank 4"),
        ([0, 2, 4], "ranks 0, 2, 4"),
        (range(1024), "ranks 0-1023"),
        (range(0, 20, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, ..."),
    ],
)
def test_ranks_are_listed_as_spans(ranks, text):
    assert format_ranks(ranks) == text


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ({5: "n1"}, "rank 5 on n1"),
        ({4: "n1", 5: "n1"}, "ranks 4, 5 on n1"),
        ({3: "n0", 4: "n1"}, "ranks 3, 4"),
        ({0: ""}, "rank 0"),
    ],
)
def test_host_is_named_if_it_is_the_same(hosts, text):
    assert format_ranks_with_host(hosts) == text


@pytest.mark.parametrize(("ranks", "text"), [([3], "rank 3 waits"), ([0, 3], "2 ranks wait")])
def test_waiting_ranks_are_counted(ranks, text):
    assert format_waiting(ranks) == text


def test_ranks_with_the_same_text_share_a_line():
    texts = {3: "in b", 0: "in a", 1: "in a", 2: "in a", 6: "in a"}
    assert group_ranks(texts) == ("ranks 0-2, 6: in a", "rank 3: in b")


def test_many_groups_are_shortened():
    lines = group_ranks({rank: f"in {rank}" for rank in range(40)})
    assert len(lines) == 17
    assert lines[-1] == "... and 24 more groups of ranks"
