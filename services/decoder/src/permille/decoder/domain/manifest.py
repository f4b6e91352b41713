"""The manifest of a session archive (docs/design/0002-session-archive.md), read and checked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Annotated, Any

from permille.mesh.errors import DataLoss, InvalidArgument, NotFound
from permille.mesh.unicode_text import unicode_text
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

VERSION = 1
# Is read faster than a thread is asked to.
_AT_ONCE = 1 << 18
# As JSON writes it, and as UTF-8 that is none has it.
_SURROGATE = re.compile(rb"\\u[dD]|\xed[\xa0-\xbf]")
# Of one segment, or of what of it was lost.
_MOST_BYTES = 1 << 48
# What the core and the tables take.
_I32 = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
_I64 = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
_U8 = Annotated[int, Field(ge=0, lt=1 << 8)]
U32 = Annotated[int, Field(ge=0, lt=1 << 32)]
U64 = Annotated[int, Field(ge=0, lt=1 << 64)]
# Beside an epoch the core keeps the mode; the tables have signed times.
Epoch = Annotated[int, Field(ge=0, lt=1 << 30)]
_Tsc = Annotated[int, Field(ge=0, lt=1 << 63)]
Offset = Annotated[int, Field(ge=0, le=_MOST_BYTES)]
# Once they did not tell how often the thread had come from another core.
_Turn = Annotated[
    tuple[Offset, U32, U32, Epoch, Epoch, U32],
    BeforeValidator(lambda turn: (*turn, 0) if isinstance(turn, list | tuple) and len(turn) == 5 else turn),
]
_SESSION = re.compile(r"nodes/([A-Za-z0-9][A-Za-z0-9.-]{0,62})/sessions/([A-Za-z0-9][A-Za-z0-9._-]{0,127})")


class _Part(BaseModel):
    # A newer recorder may say more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Clock(_Part):
    """Two moments, each as TSC ticks and as unix ns."""

    tsc0: _Tsc
    ns0: _I64
    tsc1: _Tsc
    ns1: _I64

    @property
    def ns_per_tick(self) -> float:
        """1 where the two moments are one."""
        return (self.ns1 - self.ns0) / (self.tsc1 - self.tsc0) if self.tsc1 > self.tsc0 else 1.0

    def ns(self, tsc: int) -> int:
        """Unix ns of a TSC value on the line through both moments; 0 stays 0 (unknown)."""
        return self.ns0 + round((tsc - self.tsc0) * self.ns_per_tick) if tsc else 0


class PacketOptions(_Part):
    """What the recorder's processor is and which packets it wrote."""

    family: U32
    model: U32
    stepping: U32
    mtc_freq: _U8 = 0
    tsc_ctc_ratio: tuple[U32, U32] = (0, 0)
    nominal_ratio: _U8 = 0
    without_tnt: bool = False
    # First and last addresses of what was traced; all of it where there is none.
    filter: tuple[tuple[U64, U64], ...] = Field(default=(), max_length=4)


class Segment(_Part):
    """What one thread left. `epochs`: from which offset on which image of the process holds."""

    index: int = Field(ge=0, lt=1 << 31)
    key: str
    kind: str = "thread"
    pid: _I32
    tid: _I32
    thread_name: str = ""
    size_bytes: int = Field(ge=0, le=_MOST_BYTES)
    stored_bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)
    # Of the object; where a recorder did not tell it, the packets are checked once they are unpacked.
    stored_sha256: str = ""
    sha256: str
    buffer_bytes: int = 0
    full: bool = False
    # Of a snapshot: it has kept the last of what it was given.
    overwritten: bool = False
    lost_bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)
    lost_blocks: int = 0
    epochs: tuple[tuple[Offset, Epoch], ...] = ()
    first_tsc: _Tsc = 0
    last_tsc: _Tsc = 0
    core: _I32 = -1
    # Of a core's stream, which several segments name by the same key, one for each thread: from which offset on which
    # thread ran (offset, pid, tid, epoch, epoch of the kernel's image, how often it had come from another core). The
    # first of the segments has them.
    turns: tuple[_Turn, ...] = ()
    # Where in the stream the segment begins, and where in the segment packets are missing.
    stream_begin: Offset = 0
    lost_offsets: tuple[Offset, ...] = ()


class ThreadName(_Part):
    """What a thread was called when the recording ended, or it. `pid`: once recorders did not tell it."""

    pid: int | None = None
    tid: int
    name: str


class StoredFile(_Part):
    """Another file of the archive; `sha256` of its content before compression."""

    key: str
    sha256: str
    size_bytes: int = 0


class JitFile(StoredFile):
    """What a process told of the code that it wrote: kind `perf-map` or `jitdump`, or one of a newer recorder."""

    pid: int
    kind: str
    # As it was called there.
    name: str = ""


class Switches(StoredFile):
    """The switch records, or why there are none."""

    count: int = 0
    dropped: int = 0
    unseen: int = 0
    unavailable: str = ""


class Target(_Part):
    """What was recorded."""

    pids: tuple[int, ...] = ()
    name: str = ""
    command_line: tuple[str, ...] = ()


class Manifest(_Part):
    """A whole session."""

    version: int
    session: str
    session_id: str
    node: str
    backend: str
    purpose: str = ""
    request_id: str = ""
    target: Target = Target()
    start_ns: _I64
    end_ns: _I64
    period_ms: _I64 = 0
    stop_reason: str = ""
    # After the end of its operation; 0: this mesh's own.
    retention_s: int = 0
    clock: Clock
    pt: PacketOptions
    segments: tuple[Segment, ...]
    switches: Switches
    maps: StoredFile
    code: StoredFile
    jit: tuple[JitFile, ...] = ()
    # TSC ticks and CLOCK_MONOTONIC, in which jitdumps have their times.
    monotonic: Clock | None = None
    # Of the threads of cores' segments.
    threads: tuple[ThreadName, ...] = ()
    # Of an import: the switch records tell of all cores, of which each is one object, and nothing was overwritten.
    follows_threads: bool = False
    # What is to be known about the recording as a whole.
    notes: tuple[str, ...] = ()

    @property
    def imported(self) -> bool:
        """Another tool recorded it."""
        return self.backend.startswith("imported:")

    @property
    def timeless(self) -> bool:
        """Its packets hold no times: instructions are counted instead, one a tick."""
        return self.clock.tsc1 == 0

    @property
    def day(self) -> date:
        """The UTC day in which the recording began: the partition of its rows."""
        return datetime.fromtimestamp(self.start_ns / 1e9, UTC).date()


def manifest_key(session_id: str) -> str:
    """Where the manifest of a session is."""
    return f"raw/{session_id}/manifest.json"


async def checked_manifest(text: bytes, key: str) -> Manifest:
    """As `read_manifest`, in a thread where it takes long: a recording by core may name millions of turns."""
    if len(text) < _AT_ONCE:
        return read_manifest(text, key)
    return await asyncio.to_thread(read_manifest, text, key)


def read_manifest(text: bytes, key: str) -> Manifest:
    """Raises `DataLoss` naming the key and the field for text that is no manifest of a known version.

    Also for one that names a segment twice: its packets are decoded once, and nothing says as whose.
    """
    try:
        values: Any = json.loads(text, parse_int=_number)
        if not isinstance(values, dict) or values.get("version") != VERSION:
            raise _damaged(key, f"its version is not {VERSION}")
        manifest = Manifest.model_validate(written_out(values) if _SURROGATE.search(text) else values)
    except ValidationError as error:
        first = error.errors()[0]
        raise _damaged(key, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except ValueError as error:
        raise _damaged(key, str(error)) from None
    except RecursionError:
        raise _damaged(key, "its values are within each other too often") from None
    for segment in manifest.segments:
        if any(not -(1 << 63) <= manifest.clock.ns(tsc) < 1 << 63 for tsc in (segment.first_tsc, segment.last_tsc)):
            raise _damaged(key, f"the times of the segment {segment.index} have no room in 64 bits")
    if sum(segment.size_bytes + segment.lost_bytes + segment.stored_bytes for segment in manifest.segments) >= 1 << 63:
        raise _damaged(key, "the sizes of its segments together have no room in 64 bits")
    twice = _named_twice(manifest.segments)
    if twice is not None:
        raise _damaged(key, f"it names the segment {twice.index} ({twice.key}) twice")
    return manifest


def written_out(values: Any) -> Any:
    """The values, of JSON, with texts that are no Unicode written out: recorders once left names as they were."""
    if isinstance(values, str):
        return unicode_text(values)
    if isinstance(values, list):
        return [written_out(value) for value in values]
    if isinstance(values, dict):
        return {name: written_out(value) for name, value in values.items()}
    return values


def _named_twice(segments: Iterable[Segment]) -> Segment | None:
    """The first that has the index of another one, or its object without being another thread of that one's core."""
    indexes: set[int] = set()
    firsts: dict[str, Segment] = {}
    threads: set[tuple[str, int, int]] = set()
    for segment in segments:
        first = firsts.setdefault(segment.key, segment)
        thread = (segment.key, segment.pid, segment.tid)
        if segment.index in indexes or thread in threads or (first is not segment and not first.turns):
            return segment
        indexes.add(segment.index)
        threads.add(thread)
    return None


def _number(text: str) -> int:
    # A sign and as many digits as 64 bits may have: of longer ones Python itself refuses some and tables others.
    if len(text) > 20 or not -(1 << 63) <= (number := int(text)) < 1 << 64:
        raise ValueError(f"the number {text[:24]} has no room in 64 bits")
    return number


def parse_session_name(name: str) -> tuple[str, str]:
    """Node and id of `nodes/<node>/sessions/<id>`. Raises `InvalidArgument`."""
    match = _SESSION.fullmatch(name)
    if match is None:
        raise InvalidArgument(
            f"{name!r} is not the name of a session",
            reason="INVALID_NAME",
            help="a session is named nodes/<node>/sessions/<id>; `permille sessions` lists them",
            metadata={"field": "session"},
        )
    return match[1], match[2]


def require_name(name: str, manifest: Manifest) -> None:
    """Raises `NotFound` for another name than the session's own: who deletes it looks for what others do by that."""
    if name != manifest.session:
        raise other_name(name, manifest.session)


def other_name(name: str, right: str) -> NotFound:
    """The session is there, and of another node."""
    return NotFound(
        f"there is no session {name}: {right.rpartition('/')[2]} is {right}",
        reason="SESSION_NOT_FOUND",
        help=f"name it {right}",
        metadata={"session": right},
    )


def _damaged(key: str, how: str) -> DataLoss:
    return DataLoss(
        f"the manifest {key} cannot be read: {how}",
        reason="MANIFEST_DAMAGED",
        help="record the session again, or decode with the version of permille that recorded it",
        metadata={"key": key},
    )
