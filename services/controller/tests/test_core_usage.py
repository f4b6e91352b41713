"""On which cores a process may run, and what it uses of them."""

from __future__ import annotations

import os

import pytest
from permille.controller.domain.core_usage import Look, between, cores_of, last_core, look
from permille.controller.service.core_planner import equal_split, require_room
from permille.mesh.errors import ResourceExhausted


def test_a_thread_counts_for_the_core_that_it_was_last_on() -> None:
    before = Look(frozenset({0, 1, 2}), {10: (0, 100), 11: (1, 0)})
    after = Look(frozenset({0, 1, 2}), {10: (0, 600), 11: (2, 250), 12: (2, 250), 13: (9, 5)})
    assert between(before, after, 1000) == {0: 0.5, 1: 0.0, 2: 0.5}


def test_lists_of_the_kernel() -> None:
    assert cores_of("0-3,5,8-9\n") == {0, 1, 2, 3, 5, 8, 9}


def test_a_name_may_hold_anything() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert last_core(f"7 (a) b) R {fields}") == 39


def test_the_cores_are_those_that_its_threads_may_run_on() -> None:
    assert look([os.getpid()]).allowed == frozenset(os.sched_getaffinity(0))


def test_equal_parts_are_whole_pages_within_the_budget() -> None:
    plan = equal_split({0: 0.1, 3: 0.0, 5: 0.9}, 1_000_000)
    assert plan.buffers.sizes == {0: 331_776, 3: 331_776, 5: 331_776}
    assert plan.expected_bytes <= 1_000_000


def test_a_budget_too_small_for_the_cores_names_the_one_that_is_not() -> None:
    with pytest.raises(ResourceExhausted) as raised:
        require_room(dict.fromkeys(range(64), 0.0), 1 << 20)
    assert "4096KiB" in raised.value.help
