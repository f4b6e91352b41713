"""What this machine can record with, and for each missing thing the command that brings it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain import pt_model

NOT_NEEDED = "not needed: vpt records without it"
QEMU = "qemu-x86_64"
OLDEST_QEMU = (7, 2)
# Below this much shared memory a session has no room worth the name.
SMALLEST_SHARED_MEMORY = 64 << 20


@dataclass(frozen=True)
class Capability:
    """One thing: whether it is there, what was found, and the fix where it is not."""

    name: str
    available: bool
    detail: str
    fix: str = ""


def machine(plugin: Path, shared_memory: Path) -> list[Capability]:
    """The capabilities that only depend on this machine."""
    return [
        intel_pt(),
        qemu(),
        vpt_plugin(plugin),
        shared(shared_memory),
    ]


def intel_pt(cpuinfo: Path = pt_model.CPUINFO, pmu: Path = pt_model.PMU) -> Capability:
    in_cpu = pt_model.traces(cpuinfo)
    if in_cpu and pmu.exists():
        return Capability("intel_pt", True, "the processor has it and perf offers it")
    if in_cpu:
        return Capability(
            "intel_pt",
            False,
            "the processor has it, but perf offers no intel_pt",
            f"use a kernel whose perf drives the trace unit, or the kernel module; {NOT_NEEDED}",
        )
    return Capability("intel_pt", False, pt_model.NO_PT, NOT_NEEDED)


def qemu(program: str = QEMU) -> Capability:
    path = shutil.which(program)
    fix = "sudo apt-get install qemu-user"
    if path is None:
        return Capability("qemu", False, f"{program} is not installed", fix)
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)\S*", text)
    if found is None:
        return Capability("qemu", False, f"{path} does not say its version", fix)
    if (int(found[1]), int(found[2])) < OLDEST_QEMU:
        return Capability("qemu", False, f"{path} is {found[0]}, older than 7.2", fix)
    return Capability("qemu", True, f"{path}, {found[0]}")


def vpt_plugin(plugin: Path) -> Capability:
    if plugin.is_file():
        return Capability("vpt", True, str(plugin))
    return Capability("vpt", False, f"{plugin} is not built", "make setup")


def shared(folder: Path) -> Capability:
    free = free_bytes(folder)
    detail = f"{free >> 20} MiB free in {folder}"
    if free < SMALLEST_SHARED_MEMORY:
        return Capability("shared_memory", False, detail, "sudo mount -o remount,size=1G /dev/shm")
    return Capability("shared_memory", True, detail)


def free_bytes(folder: Path) -> int:
    """Free bytes in the file system that a folder is, or would be, in."""
    while not folder.exists():
        folder = folder.parent
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def probed(name: str, why_not: str, fix: str, detail: Callable[[], str] = lambda: "") -> Capability:
    """A capability that somebody tried out: `why_not` is empty when it works."""
    return Capability(name, not why_not, why_not or detail(), fix if why_not else "")
