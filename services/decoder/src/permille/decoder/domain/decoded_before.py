"""What another decode of a session may not take away: rows of segments that cannot be decoded any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from permille.decoder.domain.manifest import Manifest
from permille.decoder.domain.part_record import LostSegment
from permille.mesh.errors import DataLoss
from permille.mesh.tables import Tables


async def require_none_lost_anew(tables: Tables, manifest: Manifest, lost: Mapping[int, LostSegment]) -> None:
    """`lost`: segments that were not decoded now, by index. Raises `DataLoss` where the tables have rows of one."""
    if not lost:
        return
    there = await tables.session("segments", manifest.session_id)
    before = await asyncio.to_thread(_with_instructions, there, list(lost))
    if not before:
        return
    first = lost[before[0]]
    raise DataLoss(
        f"{len(before)} of {len(manifest.segments)} segments of {manifest.session_id} were decoded before and cannot be"
        f" now ({first.reason}); its rows stay as they were",
        reason="LOST_SINCE_DECODED",
        help=f"{first.knob or 'restore it from a backup of the store'}; `permille import` of the session's folder in"
        " the store makes another session of what is left",
        metadata={"session": manifest.session, "segments": ",".join(map(str, before[:20]))},
    )


def _with_instructions(there: ds.Dataset, segments: list[int]) -> list[int]:
    executed = pc.field("segment").isin(segments) & (pc.field("instructions") > 0)
    try:
        found: Any = there.to_table(columns=["segment"], filter=executed)
    except (OSError, pa.ArrowException):
        # Nobody can read them: new rows are better than that.
        return []
    return sorted(found["segment"].to_pylist())
