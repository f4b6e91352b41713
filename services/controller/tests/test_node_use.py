from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain.cgroup_tree import CgroupTree
from permille.controller.domain.node_use import core_times, cpu_limits, cpu_list, placement, pressure


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@given(st.frozensets(st.integers(0, 300)))
def test_a_list_of_cores_is_read_as_it_was_written(cores: frozenset[int]) -> None:
    assert cpu_list.parse(",".join(map(str, sorted(cores)))) == cores


def test_ranges_are_read_and_anything_else_is_refused() -> None:
    assert cpu_list.parse("0-3,8\n") == {0, 1, 2, 3, 8}
    with pytest.raises(ValueError, match="all"):
        cpu_list.parse("all")


def test_a_pod_on_cgroup_v2_has_its_cpuset_and_the_tightest_quota_above_it(tmp_path: Path) -> None:
    proc = tree(tmp_path / "proc", {"7/cgroup": "0::/kubepods.slice/pod1/container"})
    mount = tree(
        tmp_path / "cgroup",
        {
            "kubepods.slice/cpu.max": "max 100000",
            "kubepods.slice/pod1/cpu.max": "150000 100000",
            "kubepods.slice/pod1/container/cpu.max": "200000 100000",
            "kubepods.slice/pod1/container/cpu.weight": "50",
            "kubepods.slice/pod1/container/cpuset.cpus.effective": "2-5",
        },
    )
    pod = "kubepods.slice/pod1"
    assert cpu_limits.limits(7, CgroupTree(mount, proc)) == cpu_limits.CpuLimits(
        frozenset({2, 3, 4, 5}),
        1.5,
        mount / "kubepods.slice/pod1",
        tuple(mount / level for level in (f"{pod}/container", pod, "kubepods.slice", "")),
    )


def test_a_container_on_cgroup_v1_has_the_same(tmp_path: Path) -> None:
    proc = tree(tmp_path / "proc", {"7/cgroup": "3:cpuset:/docker/a\n2:cpu,cpuacct:/docker/a\n0::/"})
    mount = tree(
        tmp_path / "cgroup",
        {
            "cpuset/docker/a/cpuset.effective_cpus": "0,2",
            "cpu,cpuacct/docker/a/cpu.cfs_quota_us": "50000",
            "cpu,cpuacct/docker/a/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/docker/a/cpu.shares": "2048",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "unified/cgroup.procs": "",
        },
    )
    assert cpu_limits.limits(7, CgroupTree(mount, proc)) == cpu_limits.CpuLimits(
        frozenset({0, 2}),
        0.5,
        mount / "cpu,cpuacct/docker/a",
        tuple(mount / "cpu,cpuacct" / level for level in ("docker/a", "docker", "")),
    )


def test_a_weight_counts_against_those_beside_it_and_the_least_of_all_levels_holds(tmp_path: Path) -> None:
    mount = tree(
        tmp_path,
        {
            # As small as its neighbours' weights are, it is none among them.
            "kubepods.slice/pod1/cpu.weight": "4",
            "kubepods.slice/pod2/cpu.weight": "3",
            "kubepods.slice/pod3/cpu.weight": "5",
            "kubepods.slice/pod4/cpu.weight": "1",
            "kubepods.slice/pod1/container/cpu.weight": "4",
            "kubepods.slice/cpu.weight": "100",
            "system.slice/cpu.weight": "50",
        },
    )
    pods = mount / "kubepods.slice"
    assert cpu_limits.relative_weight([pods / "pod1/container", pods / "pod1", pods, mount]) == pytest.approx(4 / 3)
    assert cpu_limits.relative_weight([pods / "pod4", pods, mount]) == pytest.approx(1 / 4)
    assert cpu_limits.relative_weight([mount / "system.slice", mount]) == 0.5
    assert cpu_limits.relative_weight([mount]) == cpu_limits.relative_weight([]) == 1.0


def test_without_controllers_nothing_is_limited(tmp_path: Path) -> None:
    proc = tree(tmp_path / "proc", {"7/cgroup": "0::/"})
    assert cpu_limits.limits(7, CgroupTree(tmp_path, proc)) == cpu_limits.CpuLimits(None, math.inf)
    with pytest.raises(ProcessLookupError, match="8"):
        cpu_limits.limits(8, CgroupTree(tmp_path, proc))


def test_the_busy_share_leaves_out_idle_and_iowait(tmp_path: Path) -> None:
    before = core_times.read(tree(tmp_path, {"stat": "cpu 9 9\ncpu0 10 0 0 90 0 0 0 0 5 0\ncpu1 0 0 0 0 0 0 0 0 0 0"}))
    after = core_times.read(tree(tmp_path, {"stat": "cpu 9 9\ncpu0 35 0 0 140 25 0 0 0 5 0\ncpu1 0 0 0 0 0 0 0 0 0 0"}))
    assert core_times.busy_shares(before, after) == {0: 0.25}


def test_memory_pressure_is_the_share_of_the_last_ten_seconds(tmp_path: Path) -> None:
    text = "some avg10=2.50 avg60=1.00 avg300=0.10 total=99\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=9"
    assert pressure.some_avg10(tree(tmp_path, {"memory": text}) / "memory") == 2.5
    assert pressure.some_avg10(tmp_path / "absent") == 0


def test_the_name_of_a_thread_may_look_like_fields() -> None:
    fields = ["S", *map(str, range(4, 39)), "3", "0"]
    assert placement.last_core(f"7 (a) 1 (b) {' '.join(fields)}") == 3


def test_this_process_is_where_it_may_be() -> None:
    found = placement.placement(os.getpid())
    assert found.allowed == os.sched_getaffinity(0)
    assert set(found.last.values()) <= set(core_times.read())
    assert set(placement.last_level_caches()) >= set(core_times.read())
    assert cpu_limits.limits(os.getpid(), CgroupTree()).quota > 0
    assert 0 <= pressure.some_avg10() <= 100
