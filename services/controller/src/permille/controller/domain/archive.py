"""The session archive, written into a local folder: segments, maps, code, switches, and the manifest that names them.

The format is described in docs/design/0002-session-archive.md. A folder with a manifest is complete. It is written in
two steps: `spool` is as fast as the disk and all that needs the recorder, `pack` is what takes long.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import zstandard
from permille.controller.domain.pace import AT_ONCE, Pace
from permille.controller.domain.recording import ImageChange, Recording, Stream
from permille.controller.domain.session import Session
from permille.controller.domain.switches.switch_recorder import SwitchCounts
from permille.controller.domain.switches.switch_records import RECORD
from permille.mesh.unicode_text import unicode_text

VERSION = 1
COMPRESSION_LEVEL = 3
MANIFEST = "manifest.json"
MAPS = "maps.json"
CODE = "code.bin.zst"
SWITCHES = "switches.bin"
# How names of perf maps and jitdumps begin.
JIT = "jit"
# Not part of the archive: where the binaries are on this machine, and the manifest before its segments are packed.
BINARIES = "binaries.json"
SPOOLED = "spooled.json"
CHUNK = 1 << 20
SYNC_BYTES = 8 << 20


@dataclass(frozen=True)
class Written:
    """One file of the archive: size and SHA-256 as stored, and those of its content before compression."""

    stored_bytes: int
    stored_sha256: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class SwitchesOfSession:
    """The switch records, stamped with the TSC, packed, in pieces; what is known about their completeness; names of
    threads.

    `notes`: what the recording as a whole does not have, for people.
    """

    records: Iterable[bytes]
    counts: SwitchCounts
    thread_names: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceBinary:
    """A file that the binary repository has to have: its key there, and where it is on this machine."""

    key: str
    path: str


@dataclass(frozen=True)
class MappedBinary:
    """A mapped file: its build id ("" for none), itself, and its separate debug file where this machine has it."""

    build_id: str
    binary: SourceBinary
    debug: SourceBinary | None


@dataclass(frozen=True)
class PackedFile:
    """A file of the archive that is named by its content; size and SHA-256 before compression."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class JitFile:
    """What a process told of the code that it wrote: kind `perf-map` or `jitdump`; what it is called there."""

    pid: int
    kind: str
    name: str
    file: PackedFile


@dataclass(frozen=True)
class JitFilesOfSession:
    """Those of all processes, and what was left out, for people."""

    files: tuple[JitFile, ...] = ()
    notes: tuple[str, ...] = ()


NO_JIT_FILES = JitFilesOfSession()
# By pid, path and the build id that was mapped ("" unknown); None when the file cannot be had any more.
FindBinary = Callable[[int, str, str], MappedBinary | None]


def write_archive(
    folder: Path,
    session: Session,
    recordings: Sequence[Recording],
    switches: SwitchesOfSession,
    find_binary: FindBinary,
    *,
    jit: JitFilesOfSession = NO_JIT_FILES,
    pace: Pace = AT_ONCE,
) -> dict[str, Any]:
    """Writes everything, the manifest last; returns the manifest. Raises OSError, for example when the disk is full."""
    spool(folder, session, recordings, switches, find_binary, jit=jit)
    return pack(folder, pace=pace)


def spool(
    folder: Path,
    session: Session,
    recordings: Sequence[Recording],
    switches: SwitchesOfSession,
    find_binary: FindBinary,
    *,
    jit: JitFilesOfSession = NO_JIT_FILES,
) -> None:
    """Writes all that the recorder has, packets as they are: afterwards it is not needed any more. Raises OSError."""
    streams = [(recording, stream) for recording in recordings for stream in recording.streams()]
    for index, (recording, stream) in enumerate(streams):
        write_raw(folder / raw_file(index), recording.packets(stream))
    maps, code, binaries = write_maps(folder, session, recordings, find_binary)
    manifest = {
        "version": VERSION,
        "session": session.name,
        "session_id": session.id,
        "node": session.node,
        "backend": session.backend,
        "purpose": session.purpose,
        "request_id": session.request_id,
        "target": {
            "pids": list(session.pids),
            "name": session.target_name,
            "command_line": list(session.command_line),
        },
        "start_ns": session.start_ns,
        "end_ns": session.end_ns,
        "period_ms": session.period_ms,
        "stop_reason": session.stop_reason,
        "retention_s": session.retention_s,
        "clock": asdict(recordings[0].realtime()),
        "pt": packet_options(session, recordings[0]),
        "plan": [asdict(buffer) for buffer in session.plan],
        "segments": [segment(session, index, *stream) for index, stream in enumerate(streams)],
        "switches": write_switches(folder, session, switches),
        "notes": [*switches.notes, *jit.notes],
        "threads": [{"tid": tid, "name": name} for tid, name in switches.thread_names.items()],
        "maps": maps,
        "code": code,
        "jit": [jit_entry(session, file) for file in jit.files],
        "monotonic": asdict(recordings[0].monotonic()),
    }
    write_whole(folder / BINARIES, json.dumps(binaries).encode())
    write_whole(folder / SPOOLED, json.dumps(manifest).encode())


def pack(folder: Path, *, pace: Pace = AT_ONCE) -> dict[str, Any]:
    """Makes the archive of what was spooled, also by another controller; returns its manifest. Raises OSError."""
    manifest: dict[str, Any] = json.loads((folder / SPOOLED).read_bytes())
    raw = [folder / raw_file(entry["index"]) for entry in manifest["segments"]]
    for entry, path in zip(manifest["segments"], raw, strict=True):
        entry.update(asdict(write_compressed(folder / segment_file(entry["index"]), pace(pieces_of(path)))))
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    for path in (*raw, folder / SPOOLED):
        path.unlink()
    return manifest


def segment(session: Session, index: int, recording: Recording, stream: Stream) -> dict[str, Any]:
    """Its entry in the manifest, but for what packing tells."""
    return {
        "index": index,
        "key": raw_key(session, segment_file(index)),
        **whose(recording, stream),
        "buffer_bytes": stream.buffer_bytes,
        "full": stream.full,
        "overwritten": stream.overwritten,
        "lost_bytes": stream.lost_bytes,
        "lost_blocks": stream.lost_blocks,
        "epochs": [list(epoch) for epoch in stream.epochs],
        "first_tsc": stream.first_tsc,
        "last_tsc": stream.last_tsc,
    }


def whose(recording: Recording, stream: Stream) -> dict[str, Any]:
    if stream.core >= 0:
        return {"kind": "core", "core": stream.core, "pid": 0, "tid": 0, "counters": dict(stream.counters)}
    return {"kind": "thread", "pid": recording.pids[0], "tid": stream.tid, "thread_name": stream.thread_name}


def write_maps(
    folder: Path, session: Session, recordings: Sequence[Recording], find_binary: FindBinary
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """maps.json and code.bin.zst: their entries in the manifest, and the binaries to upload, path by key."""
    binaries: dict[str, str] = {}
    code = CodeFile(folder / CODE)
    with code:
        processes = [
            {
                "pid": pid,
                "changes": [change_entry(pid, change, code, find_binary, binaries) for change in changes],
            }
            for recording in recordings
            for pid, changes in recording.images()
        ]
    text = json.dumps({"version": VERSION, "processes": processes}).encode()
    write_whole(folder / MAPS, text)
    maps = {"key": raw_key(session, MAPS), "sha256": hashlib.sha256(text).hexdigest()}
    return maps, {"key": raw_key(session, CODE), "size_bytes": code.size, "sha256": code.digest.hexdigest()}, binaries


def change_entry(
    pid: int, change: ImageChange, code: CodeFile, find_binary: FindBinary, binaries: dict[str, str]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "epoch": change.epoch,
        "tsc": change.tsc,
        "event": change.event,
        "address": change.address,
        "size_bytes": change.size_bytes,
        "offset": change.offset,
        "path": unicode_text(change.path),
        "build_id": change.build_id,
        "binary": "",
        "code_offset": 0,
    }
    if change.code:
        entry["code_offset"] = code.append(change.code)
        if change.event == "map":
            entry["code_size"] = len(change.code)
    elif change.event == "map" and change.path.startswith("/"):
        mapped = find_binary(pid, change.path, change.build_id)
        if mapped is not None:
            entry["build_id"], entry["binary"] = mapped.build_id, mapped.binary.key
            for source in (mapped.binary, mapped.debug):
                if source is not None:
                    binaries[source.key] = source.path
    return entry


def jit_entry(session: Session, jit: JitFile) -> dict[str, Any]:
    return {
        "pid": jit.pid,
        "kind": jit.kind,
        "name": jit.name,
        "key": raw_key(session, jit.file.name),
        "size_bytes": jit.file.size_bytes,
        "sha256": jit.file.sha256,
    }


def write_switches(folder: Path, session: Session, switches: SwitchesOfSession) -> dict[str, Any]:
    counts, digest, size = switches.counts, hashlib.sha256(), 0

    def told() -> Iterator[bytes]:
        nonlocal size
        for piece in switches.records:
            digest.update(piece)
            size += len(piece)
            yield piece

    write_raw(folder / SWITCHES, told())
    return {
        "key": raw_key(session, SWITCHES),
        "count": size // RECORD.size,
        "sha256": digest.hexdigest(),
        "dropped": counts.dropped,
        "unseen": counts.unseen,
        "unavailable": counts.unavailable,
    }


def packet_options(session: Session, recording: Recording) -> dict[str, Any]:
    model, options = recording.model(), session.options
    return {
        "family": model.family,
        "model": model.model,
        "stepping": model.stepping,
        "psb_freq": options.psb_freq,
        "mtc_freq": options.mtc_freq,
        "tsc": options.tsc,
        "mtc": options.mtc,
        "cyc": options.cyc,
        "return_compression": options.return_compression,
        "tsc_ctc_ratio": list(model.tsc_ctc_ratio),
        "nominal_ratio": model.nominal_ratio,
    }


class CodeFile:
    """code.bin.zst while it is written: `size` and `digest` of what went in."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._compressor = zstandard.ZstdCompressor(COMPRESSION_LEVEL).compressobj()
        self.size = 0
        self.digest = hashlib.sha256()

    def append(self, code: bytes) -> int:
        """The offset that the bytes have in the uncompressed file."""
        offset = self.size
        self._file.write(self._compressor.compress(code))
        self.digest.update(code)
        self.size += len(code)
        return offset

    def __enter__(self) -> CodeFile:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.write(self._compressor.flush())


def write_raw(path: Path, pieces: Iterable[bytes]) -> None:
    """To the disk itself: the memory that the recorder gives back for it is not taken again by the page cache."""
    with path.open("wb") as file:
        waiting = 0
        for piece in pieces:
            file.write(piece)
            waiting += len(piece)
            if waiting >= SYNC_BYTES:
                to_disk(file)
                waiting = 0
        to_disk(file)


def to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fdatasync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            yield piece


def write_compressed(path: Path, pieces: Iterable[bytes]) -> Written:
    digest, stored, size = hashlib.sha256(), hashlib.sha256(), 0
    compressor = zstandard.ZstdCompressor(COMPRESSION_LEVEL).compressobj()
    with path.open("wb") as file:

        def write(packed: bytes) -> None:
            stored.update(packed)
            file.write(packed)

        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            write(compressor.compress(piece))
        write(compressor.flush())
        return Written(file.tell(), stored.hexdigest(), size, digest.hexdigest())


def write_packed(folder: Path, prefix: str, pieces: Iterable[bytes]) -> PackedFile:
    """A file `<prefix>-<SHA-256>.zst` with the pieces. Raises OSError."""
    partial = folder / f"{prefix}.partial"
    written = write_compressed(partial, pieces)
    packed = PackedFile(f"{prefix}-{written.sha256}.zst", written.size_bytes, written.sha256)
    partial.replace(folder / packed.name)
    return packed


def write_whole(path: Path, data: bytes) -> None:
    """The file has its whole content or is not there, also after a power cut."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def raw_file(index: int) -> str:
    return f"stream-{index}.raw"


def segment_file(index: int) -> str:
    return f"segment-{index}.pt.zst"


def raw_key(session: Session, file: str) -> str:
    return f"raw/{session.id}/{file}"


def archive_files(folder: Path) -> list[Path]:
    """What to upload, the manifest last."""
    segments = sorted(folder.glob("segment-*.pt.zst"))
    return [
        *segments,
        *sorted(folder.glob(f"{JIT}-*.zst")),
        *(folder / name for name in (SWITCHES, MAPS, CODE, MANIFEST)),
    ]
