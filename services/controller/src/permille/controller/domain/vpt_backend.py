"""The back end vpt: processes under QEMU with the recorder's plugin, found by their folders in shared memory."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.capabilities import free_bytes
from permille.controller.domain.own_folder import own_folder
from permille.controller.domain.processes import describe, not_recordable
from permille.controller.domain.progress import BufferProgress
from permille.controller.domain.recording import (
    ImageChange,
    OwnSwitches,
    PtModel,
    RecordableProcess,
    RecordingConfig,
    Stream,
    ThreadBuffers,
)
from permille.controller.domain.switches.switch_records import Anchors
from permille.mesh.errors import FailedPrecondition, NotFound, PermilleError

CHUNK = 1 << 20
# The recorder takes its memory before it answers, zeroing it: 2.5 GB/s measured.
ANSWER_S = 2.0
ZEROING_BYTES_PER_S = 200_000_000
MOST_PAUSE_S = 0.016
# Data of a session that nobody here knows, of a process that is gone: another controller may still come for it.
FOREIGN_DATA_S = 3600
BUSY = (vpt.State.CLAIMED, vpt.State.ARMED, vpt.State.ACTIVE, vpt.State.FINISHED)
EVENTS = {vpt.RecordKind.MAP: "map", vpt.RecordKind.UNMAP: "unmap", vpt.RecordKind.CODE: "code"}
# MSR_PLATFORM_INFO's ratio counts in units of the bus clock (Intel SDM volume 4).
BUS_HZ = 100_000_000
LIBC = ctypes.CDLL(None)
SYS_FUTEX, FUTEX_WAKE = 202, 1  # x86-64, as the recorder


class VptBackend:
    """The recordable processes below `folder`."""

    name = "vpt"
    by_core = False
    joins = False
    snapshots = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own_folder(folder)

    def require(self) -> None:
        """It works on every machine."""

    def processes(self) -> list[RecordableProcess]:
        found = []
        for control in self._controls():
            process = describe(control.pid) if control.alive() else None
            if process is not None:
                session = control.session if control.busy() else ""
                found.append(replace(process, session=session))
        return found

    def process(self, pid: int) -> RecordableProcess | None:
        return next((process for process in self.processes() if process.pid == pid), None)

    def begin(self, config: RecordingConfig) -> list[VptRecording]:
        recordings: list[VptRecording] = []
        try:
            recordings.extend(self._begin(pid, config) for pid in config.pids)
        except PermilleError:
            for recording in recordings:
                recording.stop()
            raise
        return recordings

    def find(self, pids: Sequence[int], session_id: str) -> list[VptRecording]:
        controls = []
        for pid in pids:
            with suppress(OSError, ValueError):
                controls.append(Control(self._folder / str(pid)))
        return [VptRecording(control) for control in controls if control.session == session_id and control.busy()]

    def free_bytes(self) -> int:
        return free_bytes(self._folder)

    def collect_garbage(self, sessions: Collection[str]) -> None:
        for control in self._controls():
            if control.alive():
                continue
            unread = control.busy() and control.session
            if control.session in sessions and unread:
                continue
            age = time.time() - (control.folder / "control").stat().st_mtime
            if not unread or age > FOREIGN_DATA_S:
                shutil.rmtree(control.folder, ignore_errors=True)

    def _begin(self, pid: int, config: RecordingConfig) -> VptRecording:
        try:
            control = Control(self._folder / str(pid))
        except (OSError, ValueError):
            raise not_recordable(pid) from None
        if not control.alive():
            raise gone(pid)
        control.arm(config)
        control.wait_until_begun()
        return VptRecording(control)

    def _controls(self) -> Iterator[Control]:
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name.isdigit():
                with suppress(OSError, ValueError):
                    yield Control(folder)


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
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        fields = stat[stat.rindex(")") + 2 :].split()
        return fields[0] not in "ZX" and int(fields[19]) == self.page.process_start

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
        deadline = time.monotonic() + ANSWER_S + memory / ZEROING_BYTES_PER_S
        pause = 0.001
        while self.state == vpt.State.ARMED and self.alive() and time.monotonic() < deadline:
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
                help="is it stopped by a signal or a debugger? let it continue: kill -CONT",
                metadata={"pid": str(self.pid)},
            )

    def release(self) -> None:
        if self.alive():
            self.page.state = vpt.State.IDLE
            self._wake()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

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


class VptRecording:
    """One process's part of a session."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._epochs: dict[int, list[tuple[int, int]]] | None = None

    @property
    def pid(self) -> int:
        return self._control.pid

    @property
    def pids(self) -> tuple[int]:
        return (self.pid,)

    def finished(self) -> bool:
        return self._control.state == vpt.State.FINISHED or not self._control.alive()

    def exited(self) -> bool:
        return self.finished() and self._control.page.stop_reason == vpt.Stop.NONE

    @property
    def pause_s(self) -> float:
        """Only its process's end would be seen late: the recorder keeps everything until it is read."""
        return 0.1

    def collect(self, switches: Path) -> None:
        """Nothing to do."""

    def own_switches(self, collected: Path) -> OwnSwitches | None:
        """Its processes do not know when they come onto a core."""
        return None

    def stop(self) -> None:
        self._control.page.stop_request = 1

    def release(self) -> None:
        self._control.release()

    def model(self) -> PtModel:
        page = self._control.page
        return PtModel(page.family, page.model, page.stepping, (page.tsc_ctc_num, page.tsc_ctc_den), page.nominal_ratio)

    def realtime(self) -> Anchors:
        begin, end = self._anchors()
        return Anchors(begin.tsc, begin.realtime_ns, end.tsc, end.realtime_ns)

    def monotonic(self) -> Anchors:
        begin, end = self._anchors()
        return Anchors(begin.tsc, begin.monotonic_ns, end.tsc, end.monotonic_ns)

    def streams(self) -> list[Stream]:
        return [self._stream(header) for header in self._headers()]

    def progress(self) -> list[BufferProgress]:
        return [
            BufferProgress(
                size_bytes=size_of(header),
                buffer_bytes=header.size_bytes,
                full=bool(header.full),
                stopped=bool(header.full),
                lost_bytes=lost_bytes(header),
                tid=header.tid,
            )
            for header in self._headers()
        ]

    def packets(self, stream: Stream) -> Iterator[bytes]:
        with (self._control.folder / f"stream-{stream.index}.pt").open("rb") as file:
            file.seek(vpt.PAGE)
            left = stream.size_bytes
            while left > 0 and (piece := file.read(min(CHUNK, left))):
                left -= len(piece)
                yield piece

    def images(self) -> Iterator[tuple[int, Iterator[ImageChange]]]:
        yield self.pid, self.image_changes()

    def image_changes(self) -> Iterator[ImageChange]:
        changes = [change for kind, tsc, body in self._sideband() if (change := image_change(kind, tsc, body))]
        yield from sorted(changes, key=lambda change: change.epoch)

    def _stream(self, header: vpt.StreamHeader) -> Stream:
        return Stream(
            index=header.index,
            tid=header.tid,
            thread_name=bytes(header.name).split(b"\0", 1)[0].decode(errors="replace"),
            size_bytes=size_of(header),
            buffer_bytes=header.size_bytes,
            full=bool(header.full),
            lost_bytes=lost_bytes(header),
            lost_blocks=header.lost_blocks,
            first_tsc=header.first_tsc,
            last_tsc=header.last_tsc,
            epochs=tuple(self._marks()[header.index]),
        )

    def _anchors(self) -> tuple[vpt.Anchor, vpt.Anchor]:
        begin, end = self._control.page.begin, self._control.page.end
        if end.tsc > begin.tsc:
            return begin, end
        # A process that was killed left no second anchor: the nominal frequency leads to its last packet.
        last = max((header.last_tsc for header in self._headers()), default=0)
        ticks = max(last - begin.tsc, 1_000_000)
        ns = ticks * 1_000_000_000 // (self._control.page.nominal_ratio * BUS_HZ or 1_000_000_000)
        return begin, vpt.Anchor(begin.tsc + ticks, begin.realtime_ns + ns, begin.monotonic_ns + ns)

    def _marks(self) -> dict[int, list[tuple[int, int]]]:
        if self._epochs is None:
            self._epochs = defaultdict(list)
            for kind, _, body in self._sideband():
                if kind == vpt.RecordKind.MARK:
                    mark = vpt.Mark.from_buffer_copy(body)
                    self._epochs[mark.stream].append((mark.offset, mark.epoch))
        return self._epochs

    def _sideband(self) -> Iterator[tuple[int, int, bytes]]:
        with (self._control.folder / "sideband.bin").open("rb") as file:
            head_size = ctypes.sizeof(vpt.Record)
            while len(head := file.read(head_size)) == head_size:
                record = vpt.Record.from_buffer_copy(head)
                body = file.read(record.size)
                if len(body) < record.size or record.kind == 0:
                    # The process was killed while it wrote.
                    return
                yield record.kind, record.tsc, body

    def _headers(self) -> list[vpt.StreamHeader]:
        """Of the streams that a thread took."""
        files = self._control.folder.glob("stream-*.pt")
        headers = map(stream_header, sorted(files, key=lambda path: int(path.stem.removeprefix("stream-"))))
        return [header for header in headers if header.tid]


def stream_header(path: Path) -> vpt.StreamHeader:
    with path.open("rb") as file:
        return vpt.StreamHeader.from_buffer_copy(file.read(ctypes.sizeof(vpt.StreamHeader)))


def size_of(header: vpt.StreamHeader) -> int:
    return min(int(header.written_bytes), int(header.size_bytes))


def lost_bytes(header: vpt.StreamHeader) -> int:
    """What the blocks without room would have written, being like the others."""
    return round(header.written_bytes / header.blocks * header.lost_blocks) if header.blocks else 0


def image_change(kind: int, tsc: int, body: bytes) -> ImageChange | None:
    if kind not in EVENTS:
        return None
    head = vpt.Map.from_buffer_copy(body)
    tail = body[ctypes.sizeof(vpt.Map) :]
    return ImageChange(
        epoch=head.epoch,
        tsc=tsc,
        event=EVENTS[vpt.RecordKind(kind)],
        address=head.address,
        size_bytes=head.size_bytes,
        offset=head.offset,
        path=tail.rstrip(b"\0").decode(errors="surrogateescape") if kind == vpt.RecordKind.MAP else "",
        build_id=bytes(head.build_id)[: head.build_id_size].hex(),
        code=tail if kind == vpt.RecordKind.CODE else b"",
    )


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
