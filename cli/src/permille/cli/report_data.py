"""What a report shows of one session, read from the tables."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from permille.api.decoder.v1 import decoder_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.client import MeshClient, answer
from permille.cli.operation_progress import OperationProgress
from permille.cli.patience import Patience
from permille.cli.progress_display import ProgressDisplay
from permille.cli.rendering.report import FunctionRow, InlinedRow, LossRow, Report, SegmentRow, largest_losses
from permille.cli.session_list import ListedSession
from permille.cli.tables import Answer, query, text_literal
from permille.mesh.errors import DataLoss, FailedPrecondition
from permille.mesh.operation_names import operation_id

_MOST_ROWS = 10_000_000
_MOST_LOSSES = 100
_FUNCTIONS = """
SELECT function, name, module, build_id, address, symbol_status, file, line, calls, self_instructions,
       total_instructions, self_ns, total_ns, coalesce(category, '') AS category
FROM functions WHERE session_id = $session
ORDER BY self_instructions DESC, total_instructions DESC, name
"""
_INLINED = """
SELECT function, chain, CAST(sum(instructions) AS BIGINT) AS instructions
FROM inlined WHERE session_id = $session
GROUP BY function, chain ORDER BY instructions DESC, chain
"""
_SEGMENTS = """
SELECT segment, pid, tid, thread, core, size_bytes, stored_bytes, lost_bytes, buffer_full, instructions, branches,
       errors, first_ns, last_ns, decode_ms
FROM segments WHERE session_id = $session ORDER BY segment
"""
# Of each address, and of all bytes that are no packet, the reason is another text.
_LOSSES = r"""
WITH kinds AS (
    SELECT *, regexp_replace(
        regexp_replace(reason, ' at 0x[0-9a-f]+', ' at several addresses'),
        'begins with [0-9a-f]{2}( [0-9a-f]{2}){3}$', 'begins with what is there'
    ) AS kind
    FROM losses WHERE session_id = $session AND segment >= 0
)
SELECT CASE WHEN min(reason) = max(reason) THEN min(reason) ELSE kind END AS reason, knob, count(*) AS places,
       CAST(sum(size_bytes) AS BIGINT) AS size_bytes, CAST(sum(greatest(end_ns - start_ns, 0)) AS BIGINT) AS length_ns
FROM kinds GROUP BY kind, knob ORDER BY size_bytes DESC, places DESC, reason
"""
_REMARKS = "SELECT reason FROM losses WHERE session_id = $session AND segment < 0 ORDER BY reason"


async def read_report(client: MeshClient, session: ListedSession, *, inlined: bool = False) -> Report:
    """All functions and streams of a decoded session, its largest losses with the others as one.

    And what is inlined into the functions when wanted.
    """
    functions, segments, losses, remarks = await asyncio.gather(
        *(_rows(client, sql, session) for sql in (_FUNCTIONS, _SEGMENTS, _LOSSES, _REMARKS))
    )
    return Report(
        session=session,
        functions=[FunctionRow(**row) for row in functions],
        segments=[SegmentRow(**row) for row in segments],
        losses=largest_losses([LossRow(**row) for row in losses], _MOST_LOSSES),
        remarks=[row["reason"] for row in remarks],
        inlined=[InlinedRow(**row) for row in await _rows(client, _INLINED, session)] if inlined else None,
    )


async def _rows(client: MeshClient, sql: str, session: ListedSession) -> list[dict[str, Any]]:
    found: Answer = await query(client, sql.replace("$session", text_literal(session.session_id)), _MOST_ROWS)
    return found.rows


def request_id_of(name: str) -> str:
    """By which commands ask for the decode of the session `name`; a wrong name has not the right one's."""
    # Names are longer than a request_id may be.
    return f"cli-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


async def decode(
    client: MeshClient, session: ListedSession, display: ProgressDisplay, *, patience_s: float, request_id: str = ""
) -> decoder_pb2.DecodeResult:
    """Decodes a session, for example of a cancelled trace, or again with binaries that came later.

    `request_id`: of this recording, which is decoded once; without, what was decoded before does not count.
    Raises `FailedPrecondition` while it is recorded, `DataLoss` when its recording failed, and what decoding raises.
    """
    if session.state == "FAILED":
        raise DataLoss(
            f"the recording of {session.name} failed: {session.error_message}",
            reason="RECORDING_FAILED",
            help=session.error_help or "record again; `permille support-bundle` collects the logs",
            metadata={"session": session.name},
        )
    if session.state not in ("STORED", "DECODED"):
        raise FailedPrecondition(
            f"{session.name} is {session.state.lower()}",
            reason="SESSION_NOT_STORED",
            help="wait until `permille sessions` shows it as stored or decoded",
            metadata={"session": session.name},
        )

    async def started_as(request: decoder_pb2.DecodeRequest) -> operation_pb2.Operation:
        decoder = await client.decoder()
        return (await answer(decoder.Decode(request))).operation

    patience = Patience(patience_s, display.away)
    # One decode however often somebody asks meanwhile, and another one after each that failed or, of rows that are not
    # there any more or not wanted as they are, was done.
    first = request_id or request_id_of(session.name)
    request = decoder_pb2.DecodeRequest(request_id=first, session=session.name)
    started = await patience.until_answered(lambda: started_as(request))
    while started.HasField("error") or (started.done and not request_id):
        request.request_id = f"{first}-{operation_id(started.name)}"
        started = await patience.until_answered(lambda: started_as(request))
    following = OperationProgress(
        client.decoder,
        tell=display.tell,
        away=display.away,
        patience_s=patience_s,
        later="`permille sessions` shows what came of it",
    )
    done = await following.follow(started)
    result = decoder_pb2.DecodeResult()
    done.response.Unpack(result)
    return result
