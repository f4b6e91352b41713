"""What the controller tells Prometheus about its sessions."""

from __future__ import annotations

from permille.controller.domain.session import Session
from prometheus_client import Counter

ENDED = Counter("permille_sessions_ended", "Sessions that ended, by state and reason.", ["state", "reason"])
RAW_BYTES = Counter("permille_session_raw_bytes", "Packet bytes recorded.")
STORED_BYTES = Counter("permille_session_stored_bytes", "Packet bytes stored, compressed.")
LOST_BYTES = Counter("permille_session_lost_bytes", "Packet bytes that found no room, as far as they are counted.")
LOST_RECORDS = Counter("permille_session_lost_switch_records", "Switch records that found no room.")
FULL_BUFFERS = Counter("permille_session_full_buffers", "Buffers that were full before the recording ended.")
RECORDER = Counter(
    "permille_recorder_work",
    "What recorders counted of their own work: control operations, arrivals, hook calls, their TSC ticks, drops.",
    ["backend", "counter"],
)


def count(session: Session) -> None:
    """Counts a session that reached its last state."""
    ENDED.labels(session.state, session.error_reason or session.stop_reason).inc()
    RAW_BYTES.inc(session.raw_bytes)
    STORED_BYTES.inc(session.stored_bytes)
    LOST_BYTES.inc(session.lost_bytes)
    LOST_RECORDS.inc(session.lost_records)
    FULL_BUFFERS.inc(session.full_buffers)
    for name, value in session.counters.items():
        # The largest of several sessions is no sum of theirs.
        if not name.endswith("_max"):
            RECORDER.labels(session.backend, name).inc(value)
