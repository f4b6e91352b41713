"""What of its target a session does not record, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from permille.controller.domain.recording import Recording, Stream
from permille.controller.domain.session import Session
from permille.controller.domain.session_request import MAX_PIDS
from permille.controller.domain.switches.switch_records import Anchors


def unrecorded(session: Session, *, joins: bool, without_room: int) -> Iterator[str]:
    """`joins`: whether the back end adds who is in the group; `without_room`: processes that it had none for."""
    by_labels = bool(session.group.selector)
    if session.left_out and not (joins and session.group.given and not by_labels):
        # The pods of labels are those that the session began with.
        but = ", but for those in a pod with one that was" if joins and by_labels else ""
        yield (
            f"{session.left_out} further processes of the target were not recorded{but}: a session begins with"
            f" {MAX_PIDS} processes at most, and a quota may allow fewer"
        )
    if without_room:
        yield f"{without_room} processes that were forked or came later were not recorded: there was no room for them"


def of_threads(recordings: Sequence[Recording]) -> Iterator[str]:
    """Where threads have buffers."""
    unbuffered = sum(one.unbuffered_threads for one in recordings)
    if unbuffered:
        yield f"{unbuffered} threads that began during the session were not recorded: there was no buffer left for them"
    cut_off = sum(one.cut_off_threads for one in recordings)
    if cut_off:
        yield f"the last packets of {cut_off} threads are missing: they stood still inside the recorder at the end"


def overwritten(streams: Sequence[Stream], clock: Anchors) -> Iterator[str]:
    """How far back the cores of a snapshot go; nothing where all have kept their beginning."""
    begun = [stream for stream in streams if stream.overwritten]
    if begun:
        ms = (clock.tsc1 - max(stream.first_tsc for stream in begun)) * clock.ns_per_tick / 1e6
        yield (
            f"a snapshot: what was recorded first on core {', '.join(str(stream.core) for stream in begun)} was"
            f" overwritten, as asked for, and all cores have the last {ms:,.1f} ms; a larger --buffer goes farther back"
        )
