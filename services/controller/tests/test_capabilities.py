from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from permille.controller.domain import capabilities, processes
from permille.mesh.errors import FailedPrecondition, NotFound


def test_intel_pt_needs_the_processor_and_perf(tmp_path: Path) -> None:
    cpuinfo, pmu = tmp_path / "cpuinfo", tmp_path / "intel_pt"
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu intel_ptx sse\n")
    assert not capabilities.intel_pt(cpuinfo, pmu).available
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu intel_pt sse\n")
    assert "perf offers no" in capabilities.intel_pt(cpuinfo, pmu).detail
    pmu.mkdir()
    assert capabilities.intel_pt(cpuinfo, pmu).available


@pytest.mark.parametrize(
    ("says", "available"),
    [("qemu-x86_64 version 7.2.22 (Debian)", True), ("version 10.0.1", True), ("version 7.1.0", False), ("", False)],
)
def test_qemu_has_to_be_new_enough(tmp_path: Path, says: str, available: bool) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    found = capabilities.qemu(str(program))
    assert found.available == available
    assert found.available or found.fix


def test_what_is_missing_has_a_fix(tmp_path: Path) -> None:
    missing = [
        capabilities.qemu(str(tmp_path / "none")),
        capabilities.vpt_plugin(tmp_path / "none.so"),
    ]
    assert [capability.available for capability in missing] == [False] * 2
    assert all(capability.fix and capability.detail for capability in missing)


def test_free_bytes_of_a_folder_that_is_not_there_yet_are_those_of_its_file_system(tmp_path: Path) -> None:
    assert capabilities.free_bytes(tmp_path / "not" / "yet") > 0


def test_a_process_that_cannot_be_recorded_is_told_from_one_that_is_not_there() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        # While it is being loaded a program has no command line.
        assert child.stdout is not None and child.stdout.readline()
        found = processes.describe(child.pid)
        assert found is not None and found.command_line[-1] == command[-1]
        assert isinstance(processes.not_recordable(child.pid), FailedPrecondition)
        child.communicate(b"\n")
    assert processes.describe(child.pid) is None
    gone = processes.not_recordable(child.pid)
    assert isinstance(gone, NotFound) and str(child.pid) in gone.message


def test_processes_are_found_by_their_exact_name() -> None:
    own = processes.describe(os.getpid())
    assert own is not None
    assert os.getpid() in [process.pid for process in processes.named(own.name)]
    assert processes.named("no-such-process") == []
