"""What a session archive says of a recording: its manifest, its mappings, its binaries (docs/design/0007-import.md)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from permille.cli.capture_file import without_packets
from permille.cli.piped_recording import written_ns
from permille.cli.session_import.archived_recording import ArchivedRecording, archived_recording
from permille.cli.session_import.renumbering import Renumbering
from permille.cli.session_import.session_times import session_times
from permille.mesh.errors import FailedPrecondition

if TYPE_CHECKING:
    from permille.ptcore import Capture, Listed, ListedBinary, ListedChange, Piece, Stream

VERSION = 1
NODE = "imported"
# A worker decodes so much in one go in a few seconds: a stream, or cores together.
PIECE_BYTES = 256 << 20
READ_BYTES = 1 << 20
# As perf writes the pid of what all processes share: -1.
_KERNEL = 2**32 - 1
_MAPS, _CODE, _SWITCHES = "maps.json", "code.bin.zst", "switches.bin"

# So many bytes of so many are read.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StreamPart:
    """A piece of a stream, and the file that it becomes."""

    stream: int
    piece: Piece
    file: str

    def read(self, capture: Capture) -> Iterator[bytes]:
        """Its packets."""
        for begin in range(self.piece.begin, self.piece.next, READ_BYTES):
            yield capture.read(self.stream, begin, min(begin + READ_BYTES, self.piece.next))
        if self.piece.tail:
            yield self.piece.tail


@dataclass(frozen=True)
class SessionContent:
    """A session to upload. `binaries`: by the key under which mappings name them."""

    capture: Capture
    manifest: dict[str, Any]
    parts: list[StreamPart]
    maps: bytes
    switches: bytes
    code: Path
    binaries: dict[str, ListedBinary]

    @property
    def name(self) -> str:
        """`nodes/imported/sessions/<id>`."""
        return str(self.manifest["session"])

    @property
    def size_bytes(self) -> int:
        """Of all files but the manifest."""
        packets = sum(part.piece.next - part.piece.begin for part in self.parts)
        return packets + len(self.maps) + len(self.switches) + self.code.stat().st_size

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Name and content of each file, the manifest last."""
        for part in self.parts:
            yield part.file, part.read(self.capture)
        yield _SWITCHES, iter([self.switches])
        yield _MAPS, iter([self.maps])
        yield _CODE, read_file(self.code)
        yield "manifest.json", iter([json.dumps(self.manifest).encode()])


def session_content(capture: Capture, file: Path, code: Path, progress: Progress) -> SessionContent:
    """Reads the capture of `file` once. `code`: where its code file is written.

    Raises `InvalidArgument` for a recording without Processor Trace, `FailedPrecondition` for packets without any code.
    """
    streams = [stream for stream in capture.streams() if stream.size_bytes]
    if not streams:
        raise without_packets(capture, file)
    archived = archived_recording(capture, file)
    listed = capture.list_code(code)
    if capture.kind == "raw" and not any(changes for _, changes in listed.processes):
        raise _no_code(capture, file)
    keys = [_key(binary) for binary in listed.binaries]
    renumbering = Renumbering()
    maps = json.dumps({"version": VERSION, "processes": _processes(listed, keys, renumbering)}).encode()
    kernel = any(pid == _KERNEL and changes for pid, changes in listed.processes)
    together = _decoded_together(capture, streams)
    parts, segments = _segments(capture, streams, progress, renumbering, lone_threads=not (kernel or together))
    archived.add_buffers(segments, {part.file: (part.stream, part.piece) for part in parts})
    switches = capture.switches()
    records = {"count": len(switches) // 24, "sha256": _sha256(iter([switches])), **archived.switches}
    body: dict[str, Any] = {
        "pt": _packet_options(capture),
        "segments": segments,
        "switches": {"key": _SWITCHES, **records},
        "maps": {"key": _MAPS, "sha256": _sha256(iter([maps]))},
        "code": {"key": _CODE, "size_bytes": code.stat().st_size, "sha256": _sha256(read_file(code))},
    }
    if together:
        body["follows_threads"] = True
    notes = [*capture.warnings, *renumbering.notes, *archived.notes]
    manifest = _manifest(capture, file, streams, body, notes, archived=archived)
    return SessionContent(capture, manifest, parts, maps, switches, code, dict(zip(keys, listed.binaries, strict=True)))


def read_file(path: Path) -> Iterator[bytes]:
    """A file in pieces."""
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            yield data


def _manifest(
    capture: Capture,
    file: Path,
    streams: list[Stream],
    body: dict[str, Any],
    notes: list[str],
    *,
    archived: ArchivedRecording,
) -> dict[str, Any]:
    segments = body["segments"]
    first = min((segment["first_tsc"] for segment in segments if segment["first_tsc"]), default=0)
    times = session_times(capture, first, max(segment["last_tsc"] for segment in segments), written_ns(file))
    guessed = [] if "clock" in archived.session else times.notes
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    session_id = f"{capture.kind.replace('.', '-')}-{digest[:12]}"
    pids = sorted({segment["pid"] for segment in segments if segment["pid"]})
    target = {"pids": pids, "name": _target_name(streams, segments) or file.name, "command_line": []}
    return {
        "version": VERSION,
        "session": f"nodes/{NODE}/sessions/{session_id}",
        "session_id": session_id,
        "node": NODE,
        "backend": f"imported:{archived.recorder}",
        "purpose": "IMPORT",
        "target": target | archived.target,
        "start_ns": times.ns0,
        "end_ns": times.ns1,
        "stop_reason": "IMPORTED",
        "clock": times.clock,
        **archived.session,
        "notes": list(dict.fromkeys([*notes, *guessed])),
        **body,
    }


def _decoded_together(capture: Capture, streams: list[Stream]) -> bool:
    """Whether the streams are those of cores whose threads are followed from one to another."""
    cores = {stream.core for stream in streams if stream.core is not None}
    distinct = 1 < len(cores) == len(streams)
    return distinct and capture.follows_threads and sum(stream.size_bytes for stream in streams) <= PIECE_BYTES


def _segments(
    capture: Capture, streams: list[Stream], progress: Progress, renumbering: Renumbering, *, lone_threads: bool
) -> tuple[list[StreamPart], list[dict[str, Any]]]:
    """`lone_threads`: a piece of one thread is as a recorder of threads makes it."""
    total = sum(stream.size_bytes for stream in streams)
    done = 0

    def read(part: StreamPart) -> Iterator[bytes]:
        nonlocal done
        for data in part.read(capture):
            yield data
            done += len(data)
            progress(min(done, total), total)

    parts: list[StreamPart] = []
    segments: list[dict[str, Any]] = []
    for stream in streams:
        for piece in capture.pieces(stream.index, PIECE_BYTES):
            part = StreamPart(stream.index, piece, f"segment-{len(parts)}.pt.zst")
            parts.append(part)
            common = {
                "key": part.file,
                "sha256": _sha256(read(part)),
                "first_tsc": piece.first_tsc,
                "last_tsc": piece.last_tsc,
                "core": -1 if stream.core is None else renumbering(stream.core),
                "stream_begin": piece.begin,
            }
            threads = _lone_thread(stream, piece, renumbering) if lone_threads else None
            for segment in threads or _threads(stream, piece, renumbering):
                segments.append({"index": len(segments), **common, **segment})
    return parts, segments


def _lone_thread(stream: Stream, piece: Piece, renumbering: Renumbering) -> list[dict[str, Any]] | None:
    """The piece as recorders make it, where one thread alone ran in it."""
    if len({(pid, tid, stay) for _, pid, tid, _, _, stay in piece.turns}) != 1:
        return None
    (segment,) = _threads(stream, piece, renumbering)
    del segment["turns"]
    return [segment | {"kind": "thread", "epochs": [[offset, epoch] for offset, _, _, epoch, *_ in piece.turns]}]


def _threads(stream: Stream, piece: Piece, renumbering: Renumbering) -> list[dict[str, Any]]:
    """One segment for each thread of the piece; the first says who ran when."""
    names = {(pid, tid): name for pid, tid, name in stream.threads}
    size = piece.next - piece.begin
    ends = [turn[0] for turn in piece.turns[1:]] + [size]
    sizes: Counter[tuple[int, int]] = Counter()
    lost: dict[tuple[int, int], list[int]] = {}
    for (offset, pid, tid, *_), end in zip(piece.turns, ends, strict=True):
        sizes[pid, tid] += end - offset
        here = (at for at in piece.lost if offset <= at < end or at == end == size)
        lost.setdefault((pid, tid), []).extend(here)
    segments: list[dict[str, Any]] = [
        {
            "kind": "core",
            "pid": renumbering(pid),
            "tid": renumbering(tid),
            "thread_name": names.get((pid, tid)) or ("" if tid else "idle, or unknown"),
            "size_bytes": sizes[pid, tid],
            "lost_offsets": lost[pid, tid],
            "turns": [],
        }
        for pid, tid in sizes
    ]
    segments[0]["turns"] = [(at, renumbering(pid), renumbering(tid), *rest) for at, pid, tid, *rest in piece.turns]
    return segments


def _processes(listed: Listed, keys: list[str], renumbering: Renumbering) -> list[dict[str, Any]]:
    return [
        {
            "pid": pid if pid == _KERNEL else renumbering(pid),
            "changes": [_change(change, listed, keys) for change in changes],
        }
        for pid, changes in listed.processes
    ]


def _change(change: ListedChange, listed: Listed, keys: list[str]) -> dict[str, Any]:
    binary = {"build_id": "", "binary": ""}
    if change.binary is not None:
        binary = {"build_id": listed.binaries[change.binary].build_id, "binary": keys[change.binary]}
    return {
        "epoch": change.epoch,
        "event": change.event,
        "address": change.address,
        "size_bytes": change.size_bytes,
        "offset": change.offset,
        "path": change.path,
        **binary,
        "code_offset": change.code_offset,
        "code_size": change.code_size,
        "missing": change.missing,
    }


def _key(binary: ListedBinary) -> str:
    if binary.build_id:
        return f"binaries/{binary.build_id}"
    return f"binaries/sha256-{_sha256(read_binary(binary))}"


def read_binary(binary: ListedBinary, *, debug: bool = False) -> Iterator[bytes]:
    """A binary, or its debug file, in pieces."""
    size = binary.debug_bytes if debug else binary.size_bytes
    for begin in range(0, size, READ_BYTES):
        yield binary.read(begin, begin + READ_BYTES, debug=debug)


def _packet_options(capture: Capture) -> dict[str, Any]:
    family, model, stepping = capture.cpu or (0, 0, 0)
    mtc_freq, ratio, nominal_ratio = capture.timing
    options: dict[str, Any] = {
        "family": family,
        "model": model,
        "stepping": stepping,
        "mtc_freq": mtc_freq,
        "tsc_ctc_ratio": list(ratio),
        "nominal_ratio": nominal_ratio,
    }
    if capture.without_tnt:
        options["without_tnt"] = True
    if capture.filter:
        options["filter"] = capture.filter
    return options


def _target_name(streams: list[Stream], segments: list[dict[str, Any]]) -> str:
    """The name of the process with the most packets, as its first thread bears it."""
    names = {pid: name for stream in streams for pid, tid, name in stream.threads if name and pid == tid}
    sizes: Counter[int] = Counter()
    for segment in segments:
        if segment["pid"] in names:
            sizes[segment["pid"]] += segment["size_bytes"]
    return names[sizes.most_common(1)[0][0]] if sizes else ""


def _sha256(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for data in pieces:
        digest.update(data)
    return digest.hexdigest()


def _no_code(capture: Capture, file: Path) -> FailedPrecondition:
    told = f"; {capture.warnings[0]}" if capture.warnings else ""
    return FailedPrecondition(
        f"{file} holds packets alone: which instructions ran stands in the code{told}",
        reason="NO_CODE",
        help="name it with --image FILE:OFFSET:SIZE:ADDRESS, or give --sideband and --symbols",
        metadata={"file": str(file)},
    )
