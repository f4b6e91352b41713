"""The session archive, written into a local folder: segments, maps, code, switches, and the manifest that names them.

The format is described in docs/design/0002-session-archive.md. A folder with a manifest is complete. It is written in
two steps: `spool` is as fast as the disk and all that needs the recorder, `pack` is what takes long.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from permille.controller.domain.archive_file import (
    CodeFile,
    PackedFile,
    pieces_of,
    write_compressed,
    write_raw,
    write_whole,
)
from permille.controller.domain.file_stamp import FileStamp
from permille.controller.domain.pace import AT_ONCE, Pace
from permille.controller.domain.recording import ImageChange, Recording, Stream
from permille.controller.domain.session import Session
from permille.controller.domain.switches.switch_recorder import SwitchCounts
from permille.controller.domain.switches.switch_records import RECORD
from permille.mesh.unicode_text import unicode_text

VERSION = 1
MANIFEST = "manifest.json"
MAPS = "maps.json"
CODE = "code.bin.zst"
SWITCHES = "switches.bin"
# How names of perf maps and jitdumps begin.
JIT = "jit"
# Not part of the archive: where the binaries are on this machine, and the manifest before its segments are packed.
BINARIES = "binaries.json"
SPOOLED = "spooled.json"


@dataclass(frozen=True)
class SwitchesOfSession:
    """The switch records, stamped with the TSC, packed, in pieces; what is known about their completeness; names of
    threads.

    `notes`: what the recording as a whole does not have, for people.
    """

    records: Iterable[bytes]
    counts: SwitchCounts
    thread_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
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
# By the processes in whose root it is, path, and of what was mapped the build id ("" unknown) and the stamp (None
# likewise); None when the file cannot be had any more.
FindBinary = Callable[[Sequence[int], str, str, FileStamp | None], MappedBinary | None]


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
        "threads": [{"pid": pid, "tid": tid, "name": name} for (pid, tid), name in switches.thread_names.items()],
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
                "pid": process.pid,
                "changes": [
                    change_entry(process.roots, change, code, find_binary, binaries) for change in process.changes
                ],
            }
            for recording in recordings
            for process in recording.images()
        ]
    text = json.dumps({"version": VERSION, "processes": processes}).encode()
    write_whole(folder / MAPS, text)
    maps = {"key": raw_key(session, MAPS), "sha256": hashlib.sha256(text).hexdigest()}
    return maps, {"key": raw_key(session, CODE), "size_bytes": code.size, "sha256": code.digest.hexdigest()}, binaries


def change_entry(
    roots: Sequence[int], change: ImageChange, code: CodeFile, find_binary: FindBinary, binaries: dict[str, str]
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
        mapped = find_binary(roots, change.path, change.build_id, change.stamp)
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
