"""Which gloo groups a rank keeps until it exits."""

import resource
from dataclasses import dataclass

from echelon.agent.rank_exit import MOST_GROUPS, KeptGroups, descriptors_for_groups


@dataclass
class Group:
    number: int
    ranks: int

    def size(self):
        return self.ranks


def kept(count, *, ranks, descriptors):
    groups = KeptGroups(descriptors=descriptors)
    for number in range(count):
        groups.add(Group(number, ranks))
    return [group.number for group in groups.all]


def test_the_first_and_the_newest_groups_are_kept():
    assert kept(1000, ranks=2, descriptors=20) == [0, 1, 2, 3, 996, 997, 998, 999]


def test_few_groups_are_all_kept():
    assert kept(6, ranks=2, descriptors=20) == list(range(6))


def test_groups_that_need_many_descriptors_are_kept_one_each():
    assert kept(5, ranks=512, descriptors=256) == [0, 4]


def test_the_number_of_kept_groups_is_limited_too():
    assert len(kept(1000, ranks=2, descriptors=float("inf"))) == 2 * MOST_GROUPS


def test_a_smaller_later_group_is_not_one_of_the_first():
    groups = KeptGroups(descriptors=20)
    for number, ranks in enumerate((8, 8, 2)):
        groups.add(Group(number, ranks))
    assert [group.number for group in groups.first] == [0]


def test_unlimited_files_give_unlimited_descriptors():
    assert descriptors_for_groups(1024) == 256
    assert descriptors_for_groups(resource.RLIM_INFINITY) == float("inf")
