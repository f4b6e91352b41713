"""What of its target a session does not record, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from permille.controller.domain.recording import Stream
from permille.controller.domain.session import Session
from permille.controller.domain.session_request import MAX_PIDS


def unrecorded(session: Session, streams: Sequence[Stream], *, joins: bool, without_room: int) -> Iterator[str]:
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
    overwritten = ", ".join(str(stream.core) for stream in streams if stream.overwritten)
    if overwritten:
        yield (
            f"a snapshot: what was recorded first on core {overwritten} was overwritten, as asked for;"
            " --buffer SIZE with a larger size goes farther back"
        )
