"""Programs whose name and arguments are no UTF-8: each may call itself as it likes, and none hinders the others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from permille.controller.domain import processes
from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.cgroup_tree import CgroupTree
from permille.controller.domain.node_use import use_sample
from permille.controller.domain.node_use.cpu_limits import limits
from permille.controller.domain.node_use.placement import placement
from permille.controller.domain.targets.process_cgroups import memberships
from permille.controller.domain.targets.resolution import Group, Roots, resolve
from permille.controller.domain.thread_usage import cpu_ns
from permille.controller.domain.vpt_control import Control


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = tmp_path / os.fsdecode(b"latin-\xe9")
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        yield process
        process.kill()


def test_it_is_described_as_answers_can_have_it_and_found_by_that(process: subprocess.Popen[bytes]) -> None:
    (found,) = processes.named("latin-\\udce9")
    assert found.pid == process.pid
    program, argument = found.command_line
    assert program.endswith("/latin-\\udce9")
    assert argument == "600"


def test_where_it_runs_and_how_much_is_known(process: subprocess.Popen[bytes]) -> None:
    assert set(placement(process.pid).last) == {process.pid}
    assert set(use_sample.sample([process.pid], 0).threads) == {process.pid}


def test_its_processor_time_is_known_without_schedstat(tmp_path: Path) -> None:
    task = tmp_path / "9" / "task" / "10"
    task.mkdir(parents=True)
    (task / "stat").write_bytes(b"10 (\xe9) S 1 1 1 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 5 0 0")
    assert set(cpu_ns(9, tmp_path)) == {10}


def test_whether_it_lives_is_known(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    stat = Path(f"/proc/{process.pid}/stat").read_bytes()
    start = int(stat.rpartition(b")")[2].split()[19])
    page = vpt.Control(magic=vpt.MAGIC, version=vpt.VERSION, pid=process.pid, process_start=start)
    (tmp_path / "control").write_bytes(bytes(page))
    assert Control(tmp_path).alive()


def test_a_cgroup_of_such_a_name_is_one_of_all(tmp_path: Path) -> None:
    for pid, path in ((1, b"/"), (2, b"/latin-\xe9")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_bytes(b"0::" + path + b"\n")
    tree = CgroupTree(tmp_path, tmp_path)
    assert {pid: of[0].path for pid, of in memberships(tree).items()} == {1: "/", 2: os.fsdecode(b"/latin-\xe9")}
    assert limits(2, tree).quota > 0
    near = resolve(Group(cgroup="/latin-e"), Roots(proc=tmp_path, cgroups=tmp_path)).nearest
    assert "".join(near).isprintable()
