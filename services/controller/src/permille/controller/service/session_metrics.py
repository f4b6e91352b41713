"""What the controller tells Prometheus about its sessions."""

from __future__ import annotations

from permille.controller.domain.session import Session
from prometheus_client import Counter

ENDED = Counter("permille_sessions_ended", "Sessions that ended, by state and reason.", ["state", "reason"])
RAW_BYTES = Counter("permille_session_raw_bytes", "Packet bytes recorded.")
STORED_BYTES = Counter("permille_session_stored_bytes", "Packet bytes stored, compressed.")
LOST_BYTES = Counter("permille_session_lost_bytes", "Packet bytes that found no room.")


def count(session: Session) -> None:
    """Counts a session that reached its last state."""
    ENDED.labels(session.state, session.error_reason or session.stop_reason).inc()
    RAW_BYTES.inc(session.raw_bytes)
    STORED_BYTES.inc(session.stored_bytes)
    LOST_BYTES.inc(session.lost_bytes)
