"""Processes of this machine as /proc shows them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import psutil
from permille.controller.domain.recording import RecordableProcess
from permille.controller.domain.thread_usage import tasks_of
from permille.mesh.errors import FailedPrecondition, NotFound, PermilleError, PermissionDenied
from permille.mesh.unicode_text import unicode_text

START_IT = "start the program with `permille run -- COMMAND`, then it can be traced at any time"


def describe(pid: int) -> RecordableProcess | None:
    """A process that is alive, recordable or not."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            words = tuple(map(unicode_text, process.cmdline()))
            return RecordableProcess(pid, unicode_text(process.name()), words, process.num_threads(), "")
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return RecordableProcess(pid, unicode_text(process.name()), (), 0, "")


def named(name: str) -> list[RecordableProcess]:
    """All processes of an exact name, as in /proc/<pid>/comm."""
    pids = [process.pid for process in psutil.process_iter(["name"]) if unicode_text(process.info["name"]) == name]
    return [process for process in map(describe, pids) if process is not None]


def left_of(pids: Sequence[int]) -> tuple[int, ...]:
    """Those that have not ended."""
    return tuple(pid for pid in pids if describe(pid) is not None)


def not_recordable(pid: int) -> PermilleError:
    """Why a process that no back end offers cannot be recorded."""
    process = describe(pid)
    if process is None:
        return NotFound(
            f"there is no process {pid} on this node",
            reason="NO_SUCH_PROCESS",
            help="check the number, and the node: `permille trace --name NAME` finds processes by name",
            metadata={"pid": str(pid)},
        )
    if os.geteuid() not in (0, owner(pid)):
        return PermissionDenied(
            f"process {pid} ({process.name}) belongs to another user",
            reason="OTHER_USER",
            help="run the controller as that user or as root",
            metadata={"pid": str(pid), "name": process.name},
        )
    return FailedPrecondition(
        f"process {pid} ({process.name}) was not started ready to be recorded",
        reason="NOT_RECORDABLE",
        help=START_IT,
        metadata={"pid": str(pid), "name": process.name},
    )


def owner(pid: int) -> int:
    try:
        return int(psutil.Process(pid).uids().effective)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return -1


def thread_names(pid: int) -> dict[int, str]:
    """What the threads of a process are called now, by tid; those that end meanwhile are left out."""
    names: dict[int, str] = {}
    for task in tasks_of(pid):
        with suppress(OSError, ValueError):
            names[int(task.name)] = (task / "comm").read_text(errors="replace").rstrip("\n")
    return names
