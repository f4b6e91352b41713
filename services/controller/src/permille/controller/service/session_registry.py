"""The node's sessions: in memory while they are active, mirrored into etcd.

An active session is a key under this controller's lease, so that it vanishes with its controller; a finished one stays.
Memory leads and etcd follows: while etcd is away running sessions go on and their keys are written when it is back.
Only the creation of a session needs etcd, because a request_id must find the same session whoever asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog
from permille.controller.domain.progress import Progress
from permille.controller.domain.session import Session, State, from_json, parse_name, to_json
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound, PermilleError, Unavailable
from permille.mesh.etcd import Delete, Etcd, Get, KeyValue, Put, missing, value_is
from permille.mesh.lease import Lease

PREFIX = "/permille/v1"
# How often the lease is compared with the one the keys were written under.
SYNC_S = 1.0
# A retry of a start that comes later than this is a new start.
REQUEST_TTL_S = 24 * 3600
MAX_PAGE = 1000
DEFAULT_PAGE = 100
BUSY = (State.PREPARING, State.RECORDING)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Written:
    """What etcd holds of a session: the text, and the lease it is under (0: none)."""

    value: bytes
    lease: int


class SessionRegistry:
    """Creates, publishes, reads, lists and watches sessions of node `node`."""

    def __init__(self, etcd: Etcd, lease: Lease, node: str) -> None:
        self._etcd = etcd
        self._node = node
        self._lease = lease
        self._active: dict[str, Session] = {}
        self._written: dict[str, Written] = {}
        # Of what records here. Nothing of it goes to etcd.
        self._progress: dict[str, Progress] = {}
        self._watchers: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._creating = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self, node_text: bytes) -> None:
        """Begins the mirror; `node_text` describes this node to whoever lists nodes, for as long as it lives."""
        await self._lease.put(f"{PREFIX}/nodes/{self._node}", node_text)
        self._task = asyncio.create_task(self._mirror(), name="session-mirror")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(PermilleError):
            await self._sync()

    async def create(self, request_id: str, make: Callable[[], Session]) -> tuple[Session, bool]:
        """The session that `make` returns and True, or the one that the request_id created before and False.

        Raises FailedPrecondition (ALREADY_TRACED) while another session records one of its processes, Unavailable
        without etcd, and what `make` raises; starts are one after the other.
        """
        async with self._creating:
            while True:
                earlier = await self._by_request(request_id)
                if earlier is not None:
                    return earlier, False
                session = make()
                self._refuse_busy(session)
                if await self._claim(session):
                    self._active[session.id] = session
                    self._notify()
                    return session, True

    def adopt(self, session: Session) -> None:
        """A session from before this process, to be carried on."""
        self.publish(session)

    def publish(self, session: Session) -> None:
        """The session as it is now: watchers see it at once, etcd as soon as it can."""
        self._active[session.id] = session
        self._notify()

    def progressed(self, session_id: str, progress: Progress) -> None:
        """How far a session is; nobody but its watchers learns it."""
        self._progress[session_id] = progress
        self._tell_watchers()

    def watched(self, session_id: str) -> bool:
        """Whether somebody wants to know how far a session is."""
        return self._watchers[session_id] > 0

    async def settled(self, session_id: str) -> None:
        """Returns when a final session is in etcd."""
        while session_id in self._active:
            changed = self._changed
            await changed.wait()

    def recording(self, pid: int) -> Session | None:
        """The session for which nobody else can record a process now."""
        return next((s for s in self._active.values() if pid in s.pids and (s.state in BUSY or s.holds)), None)

    def active(self) -> list[Session]:
        return list(self._active.values())

    async def get(self, name: str) -> Session:
        """Raises NotFound, or Unavailable without etcd for a session that is not active here."""
        node, session_id = parse_name(name)
        if node == self._node and session_id in self._active:
            return self._active[session_id]
        stored = await self._etcd.get(self._key(node, session_id))
        if stored is None:
            raise NotFound(
                f"there is no session {name}",
                reason="SESSION_NOT_FOUND",
                help="`permille sessions` lists the sessions there are",
                metadata={"session": name},
            )
        return from_json(stored.value)

    async def watch_progress(self, name: str) -> AsyncIterator[tuple[Session, Progress | None]]:
        """As `watch`, and whenever it is known how far a session is that is recorded here."""
        node, session_id = parse_name(name)
        if node != self._node or session_id not in self._active:
            async for session in self.watch(name):
                yield session, None
            return
        self._watchers[session_id] += 1
        last: tuple[Session, Progress | None] | None = None
        try:
            while last is None or not last[0].state.final:
                changed = self._changed
                seen = await self.get(name), self._progress.get(session_id)
                if seen == last:
                    await changed.wait()
                else:
                    yield seen
                    last = seen
        finally:
            self._watchers -= Counter([session_id])
            self._forget(session_id)

    async def watch(self, name: str) -> AsyncIterator[Session]:
        """The session now and at every change, until it is final."""
        node, session_id = parse_name(name)
        last: Session | None = None
        while True:
            changed = self._changed
            session = await self.get(name)
            if session != last:
                yield session
                last = session
            if session.state.final:
                return
            if node != self._node or session_id not in self._active:
                break
            await changed.wait()
        async for stored in self._etcd.observe(self._key(node, session_id)):
            if stored is None:
                raise Unavailable(
                    f"the controller of {name} is gone",
                    reason="CONTROLLER_LOST",
                    help="the recording ends by itself and is stored when the node's controller is back",
                    retry_after_s=5.0,
                )
            session = from_json(stored.value)
            if session != last:
                yield session
                last = session
            if session.state.final:
                return

    async def page(self, parent: str, size: int, token: str) -> tuple[list[Session], str]:
        """Newest first; `nodes/-` is all nodes, one after the other."""
        node = parent.removeprefix("nodes/") if parent else self._node
        if parent and (not parent.startswith("nodes/") or "/" in node):
            raise invalid("parent", parent, "nodes/<node>, or nodes/- for all nodes")
        if size < 0:
            raise invalid("page_size", str(size), "0 for the default, or more")
        size = min(size or DEFAULT_PAGE, MAX_PAGE)
        prefix = f"{PREFIX}/nodes/" if node == "-" else self._key(node, "")
        if token and not token.startswith(prefix.removeprefix(PREFIX)):
            raise invalid("page_token", token, "the next_page_token of a call with the same parent")
        before = PREFIX + token if token else ""
        found: list[KeyValue] = []
        async with contextlib.aclosing(self._etcd.newest(prefix, before=before, page_size=size + 1)) as keys:
            async for key in keys:
                if "/sessions/" in key.key:
                    found.append(key)
                if len(found) > size:
                    break
        more = found[size - 1].key.removeprefix(PREFIX) if len(found) > size else ""
        return [self._newest(from_json(key.value)) for key in found[:size]], more

    def _newest(self, session: Session) -> Session:
        return self._active.get(session.id, session) if session.node == self._node else session

    async def _by_request(self, request_id: str) -> Session | None:
        key = self._request_key(request_id)
        named = await self._etcd.get(key)
        if named is None:
            return None
        try:
            return await self.get(named.value.decode())
        except NotFound:
            # Its controller died before the session was more than a key.
            await self._etcd.txn([value_is(key, named.value)], [Delete(key)])
            return None

    async def _claim(self, session: Session) -> bool:
        request_key = self._request_key(session.request_id)
        key, value = self._key(session.node, session.id), to_json(session)
        lease = await self._lease.granted()
        day = await self._etcd.grant(REQUEST_TTL_S)
        puts = [Put(request_key, session.name.encode(), day), Put(key, value, lease)]
        try:
            done = await self._etcd.txn([missing(request_key)], puts, [Get(request_key)])
        except FailedPrecondition as error:
            raise Unavailable(
                f"etcd has forgotten this controller's lease: {error.message}",
                reason="LEASE_LOST",
                help="try again; the controller registers anew by itself",
                retry_after_s=1.0,
            ) from None
        if done.succeeded:
            self._written[session.id] = Written(value, lease)
        else:
            await self._etcd.revoke(day)
        return done.succeeded

    def _forget(self, session_id: str) -> None:
        """How far it came, when nobody will ask any more."""
        if session_id not in self._active and not self.watched(session_id):
            self._progress.pop(session_id, None)

    def _refuse_busy(self, session: Session) -> None:
        for pid in session.pids:
            other = self.recording(pid)
            if other is not None:
                raise already_traced(pid, other.name)

    def _notify(self) -> None:
        self._tell_watchers()
        self._wake.set()

    def _tell_watchers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _mirror(self) -> None:
        away = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SYNC_S):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._sync()
                away = False
            except PermilleError as error:
                if not away:
                    _log.warning("sessions cannot be written to etcd; trying again", error=error.message)
                away = True
                await asyncio.sleep(SYNC_S / 4)
                self._wake.set()

    async def _sync(self) -> None:
        if not self._active:
            return
        lease = await self._lease.granted()
        for session in list(self._active.values()):
            wanted = Written(to_json(session), 0 if session.state.final else lease)
            if self._written.get(session.id) != wanted:
                await self._etcd.put(self._key(session.node, session.id), wanted.value, wanted.lease)
                self._written[session.id] = wanted
            if session.state.final and self._active.get(session.id) == session:
                del self._active[session.id], self._written[session.id]
                self._forget(session.id)
                self._notify()

    @staticmethod
    def _key(node: str, session_id: str) -> str:
        return f"{PREFIX}/nodes/{node}/sessions/{session_id}"

    @staticmethod
    def _request_key(request_id: str) -> str:
        return f"{PREFIX}/requests/controller/{request_id}"


def already_traced(pid: int, session: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"process {pid} is already being traced by {session}",
        reason="ALREADY_TRACED",
        help=f"wait until {session} ends, or stop it",
        metadata={"pid": str(pid), "session": session},
    )


def invalid(field: str, value: str, way_out: str) -> InvalidArgument:
    return InvalidArgument(
        f"{field} is {value!r}", reason="INVALID_LIST_REQUEST", help=way_out, metadata={"field": field}
    )
