"""Buffers of cores where the allocator has no answer."""

from __future__ import annotations

import os

import pytest
from permille.controller.service.core_planner import allowed_cores, equal_split
from permille.mesh.errors import ResourceExhausted


def test_the_cores_are_those_that_its_threads_may_run_on() -> None:
    assert allowed_cores([os.getpid()]) == os.sched_getaffinity(0)


def test_equal_parts_are_whole_pages_within_the_budget() -> None:
    plan = equal_split([0, 3, 5], 1_000_000)
    assert plan.buffers.sizes == {0: 331_776, 3: 331_776, 5: 331_776}
    assert plan.expected_bytes <= 1_000_000
    assert [(buffer.unit, buffer.size_bytes) for buffer in plan.planned] == list(plan.buffers.sizes.items())
    assert all("allocator" in buffer.reason for buffer in plan.planned)


def test_no_core_gets_more_than_the_module_takes() -> None:
    assert equal_split([0], 1 << 30).buffers.sizes == {0: 128 << 20}


def test_a_budget_too_small_for_the_cores_names_the_one_that_is_not() -> None:
    with pytest.raises(ResourceExhausted) as raised:
        equal_split(range(64), 1 << 20)
    assert "4096KiB" in raised.value.help
