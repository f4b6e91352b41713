"""A session that could not take all that its target means says so, unless they were recorded all the same."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from permille.controller.domain.recording import Recording, Stream
from permille.controller.domain.session import Session
from permille.controller.domain.switches.switch_records import Anchors
from permille.controller.domain.targets.resolution import NO_GROUP, Group
from permille.controller.domain.unrecorded import of_threads, overwritten, unrecorded


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


def test_a_snapshot_says_which_cores_have_not_kept_their_beginning_and_how_far_back_all_go() -> None:
    clock = Anchors(tsc0=0, ns0=0, tsc1=100_000_000, ns1=50_000_000)
    whole = Stream(0, 0, "", 4096, 8192, full=False, lost_bytes=0, lost_blocks=0, first_tsc=1, last_tsc=2, epochs=())
    later = [replace(whole, core=core, overwritten=True, first_tsc=core * 30_000_000) for core in (1, 2)]
    (note,) = overwritten([whole, *later], clock)
    assert note.startswith("a snapshot: what was recorded first on core 1, 2 was overwritten, as asked for")
    assert "all cores have the last 20.0 ms" in note
    assert list(overwritten([whole], clock)) == []


def test_threads_whose_last_packets_are_missing_are_counted() -> None:
    cut_off = cast("Recording", SimpleNamespace(unbuffered_threads=0, cut_off_threads=1))
    (note,) = of_threads([cut_off, cut_off])
    assert note == "the last packets of 2 threads are missing: they stood still inside the recorder at the end"
