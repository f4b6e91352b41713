"""The control page that a process under the recorder shares with the controller: who has it, and what it is to do."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.recording import RecordingConfig, ThreadBuffers
from permille.controller.domain.thread_usage import stat_of
from permille.mesh.errors import FailedPrecondition, NotFound

# The recorder takes its memory before it answers, zeroing it: 2.5 GB/s measured.
ANSWER_S = 2.0
# One that nobody has stopped waits for a processor: on a busy machine, or one that stood still itself, for long.
STARVED_S = 30.0
ZEROING_BYTES_PER_S = 200_000_000
MOST_PAUSE_S = 0.016
BUSY = (vpt.State.CLAIMED, vpt.State.ARMED, vpt.State.ACTIVE, vpt.State.FINISHED)
LIBC = ctypes.CDLL(None)
SYS_FUTEX, FUTEX_WAKE = 202, 1  # x86-64, as the recorder


class Control:
    """The control page of one process, mapped. Raises OSError or ValueError when there is none of this version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        descriptor = os.open(folder / "control", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._memory = mmap.mmap(descriptor, ctypes.sizeof(vpt.Control))
        finally:
            os.close(descriptor)
        self.page = vpt.Control.from_buffer(self._memory)
        if self.page.magic != vpt.MAGIC or self.page.version != vpt.VERSION:
            raise ValueError(f"{folder} is not of this recorder's version {vpt.VERSION}")

    @property
    def pid(self) -> int:
        return int(self.page.pid)

    @property
    def state(self) -> int:
        """A `vpt_layout.State`, or whatever else a broken process wrote."""
        return int(self.page.state)

    @property
    def session(self) -> str:
        return bytes(self.page.session).decode(errors="replace")

    def busy(self) -> bool:
        """Whether it belongs to a session: claimed, recording, or with data that nobody has read yet."""
        return self.page.state in BUSY

    def alive(self) -> bool:
        """Whether the process that made the page lives; its number may belong to another by now."""
        fields = self._stat()
        return fields[0] not in "ZX" and int(fields[19]) == self.page.process_start

    def stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        return self._stat()[0] in "Tt"

    def arm(self, config: RecordingConfig) -> None:
        """Raises FailedPrecondition (ALREADY_TRACED) when it is recording already."""
        with self._alone():
            if self.state not in (vpt.State.IDLE, vpt.State.REFUSED):
                raise FailedPrecondition(
                    f"process {self.pid} is already being traced by session {self.session}",
                    reason="ALREADY_TRACED",
                    help="wait until that session ends, or stop it",
                    metadata={"pid": str(self.pid), "session": self.session},
                )
            self.page.state = vpt.State.CLAIMED
        page, options = self.page, config.options
        page.session = config.session_id.encode()
        page.period_ns = config.period_ms * 1_000_000
        page.psb_freq, page.mtc_freq = options.psb_freq, options.mtc_freq
        page.flags = flags_of(config)
        page.stop_request = page.stop_reason = 0
        page.bandwidth_bytes_per_ms = 0
        plan = planned(self.pid, config)
        for index, (tid, size) in enumerate(plan[: vpt.MAX_STREAMS]):
            page.planned[index] = vpt.Planned(tid, 0, size)
        page.planned_count = min(len(plan), vpt.MAX_STREAMS)
        page.state = vpt.State.ARMED
        self._wake()

    def wait_until_begun(self) -> None:
        memory = sum(self.page.planned[index].size_bytes for index in range(self.page.planned_count))
        begin = could = time.monotonic() + memory / ZEROING_BYTES_PER_S
        pause = 0.001
        while self.state == vpt.State.ARMED and self.alive() and (now := time.monotonic()) < begin + STARVED_S:
            if not self.stopped():
                could = max(begin, now)
            elif now > could + ANSWER_S:
                break
            time.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE_S)
        if self.state == vpt.State.REFUSED:
            raise FailedPrecondition(
                f"process {self.pid} cannot be recorded: {bytes(self.page.error).decode(errors='replace')}",
                reason="RECORDER_REFUSED",
                help="free shared memory or lower the budget, and try again",
                metadata={"pid": str(self.pid)},
            )
        if self.state == vpt.State.ARMED:
            with self._alone():
                if self.state == vpt.State.ARMED:
                    self.page.state = vpt.State.IDLE
            if not self.alive():
                raise gone(self.pid)
            raise FailedPrecondition(
                f"process {self.pid} does not answer",
                reason="TARGET_STOPPED",
                help="is it stopped by a signal or a debugger? let it continue: kill -CONT; "
                "if not, it gets no processor: try again when the machine has less to do",
                metadata={"pid": str(self.pid)},
            )

    def release(self) -> None:
        if self.alive():
            self.page.state = vpt.State.IDLE
            self._wake()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stat(self) -> list[str]:
        """From the state on what proc_pid_stat(5) lists; of a process that is gone it is X, dead."""
        try:
            stat = stat_of(Path(f"/proc/{self.pid}"))
        except OSError:
            return ["X"]
        return stat[stat.rindex(")") + 2 :].split()

    def _wake(self) -> None:
        """The recorder sleeps on the state (futex(2)); without being woken it looks every 10 ms."""
        LIBC.syscall(SYS_FUTEX, ctypes.byref(self.page, vpt.Control.state.offset), FUTEX_WAKE, 1, None, None, 0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = os.open(self.folder / "control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def planned(pid: int, config: RecordingConfig) -> list[tuple[int, int]]:
    """Thread and size of each of a process's buffers; thread 0 is one that will be born."""
    buffers = config.buffers
    if not isinstance(buffers, ThreadBuffers):
        raise TypeError("vpt records by thread")
    return [*buffers.sizes[pid].items(), *[(0, buffers.reserve_buffer_bytes)] * buffers.reserve]


def flags_of(config: RecordingConfig) -> vpt.Flags:
    options = config.options
    flags = vpt.Flags.BRANCH | vpt.Flags.LONG_TNT
    flags |= vpt.Flags.TSC if options.tsc else vpt.Flags(0)
    flags |= vpt.Flags.MTC if options.mtc else vpt.Flags(0)
    flags |= vpt.Flags.CYC if options.cyc else vpt.Flags(0)
    flags |= vpt.Flags(0) if options.return_compression else vpt.Flags.DISRETC
    return flags


def gone(pid: int) -> NotFound:
    return NotFound(
        f"process {pid} has ended", reason="NO_SUCH_PROCESS", help="start it again", metadata={"pid": str(pid)}
    )
