"""What a process under the recorder has recorded: its streams, its image's changes and its clocks, read in place."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.nameless_files import NamelessFiles
from permille.controller.domain.progress import BufferProgress
from permille.controller.domain.recording import ImageChange, OwnSwitches, ProcessChanges, PtModel, Stream
from permille.controller.domain.switches.switch_records import Anchors
from permille.controller.domain.vpt_control import Control

CHUNK = 1 << 20
EVENTS = {vpt.RecordKind.MAP: "map", vpt.RecordKind.UNMAP: "unmap", vpt.RecordKind.CODE: "code"}
# MSR_PLATFORM_INFO's ratio counts in units of the bus clock (Intel SDM volume 4).
BUS_HZ = 100_000_000


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

    @property
    def unbuffered_threads(self) -> int:
        return int(self._control.page.unbuffered_threads)

    @property
    def cut_off_threads(self) -> int:
        return int(self._control.page.revoked_threads)

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

    def images(self) -> Iterator[ProcessChanges]:
        yield ProcessChanges(self.pid, [self.pid], self.image_changes())

    def image_changes(self) -> Iterator[ImageChange]:
        changes = [change for kind, tsc, body in self._sideband() if (change := image_change(kind, tsc, body))]
        files = NamelessFiles(self.pid)
        yield from map(files.complete, sorted(changes, key=lambda change: change.epoch))

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
