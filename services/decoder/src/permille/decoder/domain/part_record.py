"""What a worker tells of the part of a session that it decoded: one Arrow IPC stream, also in the object store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from permille.mesh.errors import DataLoss
from permille.mesh.tables import TableFile

_COLUMNS: dict[str, pa.DataType] = {
    "function": pa.int32(),
    "name": pa.string(),
    "module": pa.string(),
    "build_id": pa.string(),
    "address": pa.uint64(),
    "size": pa.uint64(),
    "symbol_status": pa.string(),
    "file": pa.string(),
    "line": pa.int32(),
    "calls": pa.uint64(),
    "self_instructions": pa.uint64(),
    "total_instructions": pa.uint64(),
    "self_ticks": pa.uint64(),
    "total_ticks": pa.uint64(),
    # Where its basic blocks start that ran, in its binary's own address space.
    "blocks": pa.list_(pa.uint64()),
}
FUNCTIONS = pa.schema(_COLUMNS)
_KEY = b"permille.part"
# To begin with zstd costs more for each column than to write it, and threads cost more than either.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True)
class DecodedSegment:
    """ptcore's counters of one segment."""

    index: int
    calls: int
    decode_ms: float
    stats: dict[str, int]


@dataclass(frozen=True)
class LostSegment:
    """A segment of which nothing could be decoded."""

    index: int
    reason: str
    knob: str


@dataclass(frozen=True)
class PartRecord:
    """`recording` identifies what was decoded: the SHA-256 of the manifest. `files`: by table. `functions`: summed."""

    recording: str
    decoded: tuple[DecodedSegment, ...]
    lost: tuple[LostSegment, ...]
    notes: tuple[str, ...]
    files: Mapping[str, tuple[TableFile, ...]]
    functions: pa.Table = field(default_factory=FUNCTIONS.empty_table)

    @property
    def segments(self) -> set[int]:
        """All that it tells of."""
        return {segment.index for segment in self.decoded} | {segment.index for segment in self.lost}

    def to_bytes(self) -> bytes:
        """See `part_record`."""
        told = {
            "recording": self.recording,
            # Not `asdict`, which copies to the bottom: there may be thousands.
            "decoded": [vars(segment) for segment in self.decoded],
            "lost": [vars(segment) for segment in self.lost],
            "notes": self.notes,
            "files": {table: [asdict(file) for file in files] for table, files in self.files.items()},
        }
        schema = FUNCTIONS.with_metadata({_KEY: json.dumps(told).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=_WRITE) as writer:
            writer.write_table(self.functions.replace_schema_metadata(schema.metadata))
        return sink.getvalue().to_pybytes()


def part_record(data: bytes) -> PartRecord:
    """Raises `DataLoss` for bytes that are no record."""
    try:
        table = pa.ipc.open_stream(data, options=_READ).read_all()
        told = json.loads((table.schema.metadata or {})[_KEY])
        return PartRecord(
            recording=told["recording"],
            decoded=tuple(DecodedSegment(**segment) for segment in told["decoded"]),
            lost=tuple(LostSegment(**segment) for segment in told["lost"]),
            notes=tuple(told["notes"]),
            files={table: tuple(_file(file) for file in files) for table, files in told["files"].items()},
            functions=table.cast(FUNCTIONS),
        )
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DataLoss(
            f"a record of what was decoded is damaged: {error!r}",
            reason="PART_DAMAGED",
            help="decode the session again",
        ) from None


def _file(told: dict[str, Any]) -> TableFile:
    ranges = {name: (least, most) for name, (least, most) in told["ranges"].items()}
    return TableFile(**told | {"ranges": ranges})
