"""A session that could not take all that its target means says so, unless they were recorded all the same."""

from __future__ import annotations

import pytest
from permille.controller.domain.session import Session
from permille.controller.domain.targets.resolution import NO_GROUP, Group
from permille.controller.domain.unrecorded import unrecorded


def told(*, joins: bool = False, group: Group = NO_GROUP, left_out: int = 36, without_room: int = 0) -> list[str]:
    session = Session("n1", "s1", "r1", tuple(range(1, 65)), "ON_DEMAND", 100, 1 << 20, group=group, left_out=left_out)
    return list(unrecorded(session, joins=joins, without_room=without_room))


def test_processes_for_which_there_was_no_place_are_counted() -> None:
    (note,) = told()
    assert note.startswith("36 further processes of the target were not recorded: a session begins with 64 processes")
    assert told(left_out=0) == []


@pytest.mark.parametrize("group", [Group(cgroup="/web"), Group(container_id="0123456789ab"), Group(pod="shop/web-0")])
def test_a_back_end_that_adds_who_is_in_the_group_records_them_all_the_same(group: Group) -> None:
    assert told(joins=True, group=group) == []
    assert len(told(joins=False, group=group)) == 1


def test_of_labels_only_the_pods_are_added_to_that_the_session_began_with() -> None:
    (note,) = told(joins=True, group=Group(selector="app=web"))
    assert "were not recorded, but for those in a pod with one that was: " in note


def test_a_name_is_no_group() -> None:
    assert len(told(joins=True)) == 1


def test_who_came_later_and_found_no_room_is_counted() -> None:
    (note,) = told(left_out=0, without_room=3)
    assert note.startswith("3 processes that were forked or came later were not recorded")
