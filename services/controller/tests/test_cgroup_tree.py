"""Cgroups as a controller in a container sees them: in a cgroup namespace of its own, with the node's tree mounted."""

from __future__ import annotations

import math
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from permille.controller.domain.cgroup_tree import MOUNT, hierarchy
from permille.controller.domain.node_use.cpu_limits import CpuLimits, limits
from permille.controller.domain.targets.resolution import Group, Resolved, Roots, resolve

CONTROLLER = "kubepods.slice/pod9/controller"


@pytest.fixture
def node(tmp_path: Path) -> Roots:
    """As a controller's container (10) sees a pod's (7), one beside itself (8) and a service (9)."""
    roots = Roots(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup")
    for name, text in {
        "proc/7/cgroup": "0::/../../pod1/container",
        "proc/8/cgroup": "0::/../sidecar",
        "proc/9/cgroup": "0::/../../../system.slice/nginx.service",
        "proc/10/cgroup": "0::/",
        "proc/self/cgroup": "0::/",
        "cgroup/cgroup.controllers": "cpu cpuset",
        "cgroup/cpuset.cpus.effective": "0-7",
        "cgroup/kubepods.slice/pod1/cpu.max": "150000 100000",
        "cgroup/kubepods.slice/pod1/container/cgroup.procs": "7",
        "cgroup/kubepods.slice/pod1/container/cpuset.cpus.effective": "2-5",
        f"cgroup/{CONTROLLER}/cgroup.procs": f"1\n{os.getpid()}",
        "cgroup/system.slice/nginx.service/cpu.max": "20000 100000",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    mounted(roots, "/../../..")
    return roots


def mounted(roots: Roots, root: str) -> None:
    line = f"41 31 0:38 {root} {roots.cgroups} ro,relatime - cgroup2 cgroup2 rw\n"
    (roots.proc / "self" / "mountinfo").write_text(f"31 23 0:28 / /sys/fs rw - sysfs sysfs rw\n{line}")


def test_the_limits_of_a_pod_hold_also_for_who_sees_it_from_another_one(node: Roots) -> None:
    found = limits(7, node.tree())
    assert (found.cpuset, found.quota) == (frozenset({2, 3, 4, 5}), 1.5)
    assert found.quota_of == node.cgroups / "kubepods.slice/pod1"
    assert limits(9, node.tree()).quota == 0.2


@pytest.mark.parametrize(
    ("cgroup", "pids"),
    [
        ("/kubepods.slice/pod1/container", (7,)),
        ("/kubepods.slice/pod9", (8, 10)),
        (f"/{CONTROLLER}", (10,)),
        ("/system.slice/nginx.service", (9,)),
    ],
)
def test_a_cgroup_is_named_as_on_the_node(node: Roots, cgroup: str, pids: tuple[int, ...]) -> None:
    assert resolve(Group(cgroup=cgroup), node) == Resolved(pids, cgroup)


def test_where_only_the_containers_own_cgroup_is_mounted_nothing_is_known_of_others(node: Roots) -> None:
    mounted(node, "/")
    assert limits(7, node.tree()) == CpuLimits(None, math.inf)
    assert limits(10, node.tree()).cpuset == frozenset(range(8))


def test_a_part_of_the_tree_that_is_mounted_alone_is_its_root(node: Roots) -> None:
    """As Docker does it with cgroup v1, without a namespace."""
    mounted(node, "/docker/a")
    (node.proc / "7" / "cgroup").write_text("0::/docker/a/kubepods.slice/pod1/container\n")
    assert limits(7, node.tree()).quota == 1.5
    assert resolve(Group(cgroup="/docker/a"), node).pids == (7,)


ASK = """
import sys
from permille.controller.domain.targets.resolution import Group, Roots, resolve
print(*resolve(Group(cgroup=sys.argv[1]), Roots()).pids)
"""


@pytest.fixture
def cgroups() -> Iterator[Path]:
    """Two of this machine's, `controller` and `target`, and who is in the second."""
    parent = hierarchy(MOUNT, "") / f"permille-test-{secrets.token_hex(4)}"
    with ExitStack() as made:
        try:
            for folder in (parent, parent / "controller", parent / "target"):
                folder.mkdir()
                made.callback(folder.rmdir)
        except OSError as error:
            pytest.skip(f"no cgroup can be made here: {error}")
        yield parent


def test_a_real_process_beside_a_real_cgroup_namespace_is_found_by_its_cgroup(cgroups: Path) -> None:
    with subprocess.Popen(["sleep", "infinity"]) as target:
        try:
            (cgroups / "target" / "cgroup.procs").write_text(str(target.pid))
            enter = 'echo $$ > "$0/cgroup.procs" && exec unshare --cgroup "$@"'
            within = ["sh", "-c", enter, str(cgroups / "controller")]
            ask = [sys.executable, "-c", ASK, f"/{cgroups.name}/target"]
            asked = subprocess.run([*within, *ask], capture_output=True, text=True, check=False)
        finally:
            target.kill()
    if "unshare" in asked.stderr:
        pytest.skip(f"no cgroup namespace can be made here: {asked.stderr}")
    assert asked.stdout.split() == [str(target.pid)], asked.stderr
