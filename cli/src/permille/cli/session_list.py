"""The sessions there are: what the controllers recorded, joined with what the decoder made of it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from permille.api.controller.v1 import controller_pb2
from permille.cli.client import MeshClient, answer
from permille.cli.tables import query
from permille.mesh import discovery
from permille.mesh.errors import InvalidArgument, NotFound, PermilleError, Unavailable

_PAGE = 1000
DECODED = (
    "SELECT session, session_id, node, backend, purpose, target, start_ns, end_ns, period_ms, stop_reason, segments,"
    " raw_bytes, stored_bytes, lost_bytes, instructions, calls,"
    # Sessions that were decoded by an earlier release: what imported ones lost could not be decoded, what others lost
    # found no room for the most part.
    " coalesce(unrecorded_bytes, CASE WHEN backend LIKE 'imported:%' THEN 0 ELSE lost_bytes END) AS unrecorded_bytes"
    " FROM sessions ORDER BY start_ns DESC"
)
LATEST = "latest"
# Of nodes/<node>/sessions/<id>.
_SLASHES = 3


@dataclass(frozen=True)
class ListedSession:
    """One session; `state`: PREPARING, RECORDING, STORING, STORED (not decoded yet), DECODED or FAILED.

    Numbers that are not known yet are zero.
    """

    name: str
    state: str
    target: str = ""
    backend: str = ""
    purpose: str = ""
    start_ns: int = 0
    end_ns: int = 0
    period_ms: int = 0
    stop_reason: str = ""
    segments: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    lost_bytes: int = 0
    # Those of the lost bytes that are not among the raw ones.
    unrecorded_bytes: int = 0
    instructions: int = 0
    calls: int = 0
    error_message: str = ""
    error_help: str = ""
    # What the recorder counted of its own work, as in the API; empty where its controller is not asked.
    counters: Mapping[str, int] = field(default_factory=dict)
    # How long it is kept after its operation's end; 0: as the mesh keeps it, or its controller is not asked.
    retention_s: int = 0

    @property
    def session_id(self) -> str:
        """The id in the name."""
        return self.name.rpartition("/")[2]

    @property
    def kept_until_ns(self) -> int:
        """Before that nobody but a person deletes it; 0: nothing was said, or it has not ended."""
        return self.end_ns + self.retention_s * 1_000_000_000 if self.end_ns and self.retention_s else 0


@dataclass(frozen=True)
class SessionList:
    """The newest first. `gaps`: whom the list does not contain, and why."""

    sessions: list[ListedSession]
    gaps: list[PermilleError] = field(default_factory=list)


async def list_sessions(client: MeshClient) -> SessionList:
    """Everything that can be had. Raises the first error when nobody at all could be asked."""
    sessions: dict[str, ListedSession] = {}
    gaps: list[PermilleError] = []
    asked = 0
    try:
        for recorded in await _recorded(client):
            sessions[recorded.name] = _listed(recorded)
        asked += 1
    except PermilleError as error:
        gaps.append(error)
    try:
        for row in (await query(client, DECODED, 1_000_000)).rows:
            known = sessions.get(row["session"])
            told = {"counters": known.counters, "retention_s": known.retention_s} if known else {}
            sessions[row["session"]] = _decoded(row | told)
        asked += 1
    except PermilleError as error:
        gaps.append(error)
    if not asked:
        raise gaps[0]
    return SessionList(sorted(sessions.values(), key=lambda one: (one.start_ns, one.name), reverse=True), gaps)


async def _recorded(client: MeshClient) -> list[controller_pb2.Session]:
    # Any controller knows the sessions of all nodes.
    nodes = [endpoint.instance for endpoint in await discovery.resolve(client.etcd, "controller")]
    own = client.config.node
    controller = await client.controller(own if own in nodes or not nodes else nodes[0])
    found: list[controller_pb2.Session] = []
    token = ""
    while True:
        request = controller_pb2.ListSessionsRequest(parent="nodes/-", page_size=_PAGE, page_token=token)
        page = await answer(controller.ListSessions(request))
        found += page.sessions
        token = page.next_page_token
        if not token:
            return found


def _listed(session: controller_pb2.Session) -> ListedSession:
    return ListedSession(
        name=session.name,
        state=controller_pb2.Session.State.Name(session.state).removeprefix("STATE_"),
        target=session.target_name,
        backend=controller_pb2.Backend.Name(session.backend).removeprefix("BACKEND_").lower(),
        purpose=session.purpose,
        start_ns=(session.start_time if session.HasField("start_time") else session.create_time).ToNanoseconds(),
        end_ns=session.end_time.ToNanoseconds() if session.HasField("end_time") else 0,
        period_ms=session.period_ms,
        stop_reason=session.stop_reason,
        segments=session.segments,
        raw_bytes=session.raw_bytes,
        stored_bytes=session.stored_bytes,
        lost_bytes=session.lost_bytes,
        unrecorded_bytes=session.lost_bytes,
        error_message=session.error_message,
        error_help=session.error_help,
        counters=dict(session.counters),
        retention_s=session.retention_s,
    )


def _decoded(row: dict[str, Any]) -> ListedSession:
    known = {key: value for key, value in row.items() if key not in ("session", "session_id", "node")}
    return ListedSession(name=row["session"], state="DECODED", **known)


def chosen_or_stored(listed: SessionList, wanted: str) -> ListedSession:
    """As `chosen`; what a whole name means may be in the store alone, as when etcd was lost: decoders look there."""
    try:
        return chosen(listed, wanted)
    except (NotFound, Unavailable):
        if not wanted.startswith("nodes/") or wanted.count("/") != _SLASHES:
            raise
        return ListedSession(wanted, "STORED")


def chosen(listed: SessionList, wanted: str) -> ListedSession:
    """The session that somebody means: a name, an id, the beginning of one of them, or `latest`.

    Raises `NotFound` (with the nearest) and `InvalidArgument` for nothing at all and a beginning that several have.
    """
    if wanted == LATEST:
        return _latest(listed)
    parent, _, beginning = wanted.rpartition("/")
    if not beginning:
        raise InvalidArgument(
            f"{wanted!r} names no session",
            reason="SESSION_MISSING",
            help="give its name, its id, the beginning of it or `latest`; for `diff` several with one comma between",
            metadata={"session": wanted},
        )
    exact = [one for one in listed.sessions if wanted in (one.name, one.session_id)]
    meant = exact or [
        one
        for one in listed.sessions
        if one.session_id.startswith(beginning) and parent in ("", one.name.rpartition("/")[0])
    ]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise InvalidArgument(
            f"{wanted!r} is the beginning of {len(meant)} sessions",
            reason="SESSION_AMBIGUOUS",
            help="give more of it: " + ", ".join(one.session_id for one in meant[:5]),
            metadata={"session": wanted},
        )
    if listed.gaps:
        # It may well be there: the one who knows does not answer.
        raise listed.gaps[0]
    names = [one.name if parent else one.session_id for one in listed.sessions]
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    raise NotFound(
        f"there is no session {wanted}",
        reason="SESSION_NOT_FOUND",
        help=f"did you mean {near[0]}?"
        if near
        else "`permille sessions` lists those there are; `latest` is the newest",
        metadata={"session": wanted},
    )


def _latest(listed: SessionList) -> ListedSession:
    usable = [one for one in listed.sessions if one.state in ("DECODED", "STORED")] or listed.sessions
    if usable:
        return usable[0]
    if listed.gaps:
        raise listed.gaps[0]
    raise NotFound(
        "there is no session yet",
        reason="NO_SESSIONS",
        help="record one: permille trace --pid PID --for 500ms",
    )
