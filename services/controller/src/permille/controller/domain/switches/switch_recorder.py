"""The switch recorder: a BPF program at sched_switch, and whose records go into which file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from permille.mesh.bpf import Attached, BpfObject, Ring
from permille.mesh.errors import PermilleError

PROGRAM = Path(__file__).parents[2] / "bpf" / "switches.bpf.o"
# As in services/controller/bpf/switches.bpf.c.
RECORD_BYTES = 24
RING_BYTES = 4 << 20
PID = struct.Struct("<I")
TARGET = struct.Struct("<QQ")
# 131,072 records fit into the ring: at this interval 1.3 million switches per second.
DRAIN_S = 0.1


@dataclass(frozen=True)
class SwitchCounts:
    """Records of one session: written, dropped because the ring was full, and arrivals that the kernel did not report.

    `unavailable` says why there are none or not all.
    """

    count: int
    dropped: int
    unseen: int
    unavailable: str = ""


@dataclass
class Recorded:
    """One session's file; `failed` says why it is not complete.

    `before`: by process, what had been counted of it when this session began: dropped and unseen.
    """

    file: BinaryIO
    before: dict[int, tuple[int, int]] = field(default_factory=dict)
    count: int = 0
    failed: str = ""

    def write(self, records: Sequence[bytes]) -> None:
        try:
            self.file.write(b"".join(records))
            self.count += len(records)
        except OSError as error:
            self.failed = f"the switch records cannot be written: {error}"


class SwitchRecorder:
    """One BPF program for all sessions of a controller; nothing is attached to the kernel while no session runs."""

    def __init__(self, program: Path = PROGRAM, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._program = program
        self._lock = asyncio.Lock()
        self._object: BpfObject | None = None
        self._attached: Attached | None = None
        self._ring: Ring | None = None
        self._draining: asyncio.Task[None] | None = None
        self._sessions: dict[str, Recorded] = {}
        self.unavailable = ""
        self.fix = ""

    async def prepare(self) -> bool:
        """Loads the program ahead of the first session; False when it cannot be, see `unavailable` and `fix`."""
        async with self._lock:
            return await self._load() is not None

    async def warm_up(self) -> None:
        """Like `prepare`, for whoever does not ask how it went."""
        await self.prepare()

    async def begin(self, session: str, pids: Sequence[int], path: Path) -> str:
        """Appends the records of `pids` to `path` from now on; returns "" or why there will be none."""
        async with self._lock:
            loaded = await self._load()
            if loaded is None:
                return self.unavailable
            try:
                self._attach(loaded)
                # What is in the ring is not this session's.
                self._drain()
                self._sessions[session] = recorded = Recorded(path.open("ab", buffering=0))
                targets = loaded.map("targets")
                for pid in pids:
                    if not self._others_have(pid, session):
                        targets.put(PID.pack(pid), TARGET.pack(0, 0))
                    recorded.before[pid] = TARGET.unpack(targets.get(PID.pack(pid), TARGET.size))
            except (OSError, PermilleError) as error:
                self._forget(loaded, session)
                return f"the switch recorder refused: {error}"
            return ""

    async def end(self, session: str) -> SwitchCounts:
        """No more records for the session; the file is complete afterwards."""
        async with self._lock:
            if self._object is None or session not in self._sessions:
                return SwitchCounts(0, 0, 0, "the switch recorder was closed; records until then are kept")
            return self._forget(self._object, session)

    async def close(self) -> None:
        async with self._lock:
            if self._object is not None:
                for session in list(self._sessions):
                    self._forget(self._object, session)
                self._object.close()
                self._object = None

    async def _load(self) -> BpfObject | None:
        if not self._enabled:
            self.unavailable, self.fix = "switched off by the setting controller.switches", "controller.switches = true"
        elif self._object is None:
            try:
                self._object = await asyncio.to_thread(BpfObject, self._program)
                self.unavailable = self.fix = ""
            except PermilleError as error:
                self.unavailable, self.fix = error.message, error.help
        return self._object

    def _attach(self, loaded: BpfObject) -> None:
        if self._sessions:
            return
        loaded.map("running").put_on_each_core(PID.pack(0), bytes(8))
        self._ring = Ring(loaded.map("records"), RING_BYTES, RECORD_BYTES)
        self._attached = loaded.attach("on_switch")
        self._draining = asyncio.create_task(self._drain_always(), name="switch-records")

    def _forget(self, loaded: BpfObject, session: str) -> SwitchCounts:
        """Ends a session as far as it was begun; the last one takes the program from its place."""
        recorded = self._sessions.get(session, Recorded(io.BytesIO()))
        targets = loaded.map("targets")
        dropped = unseen = 0
        for pid, before in recorded.before.items():
            with contextlib.suppress(OSError):
                now = TARGET.unpack(targets.get(PID.pack(pid), TARGET.size))
                dropped, unseen = dropped + now[0] - before[0], unseen + now[1] - before[1]
                if not self._others_have(pid, session):
                    targets.remove(PID.pack(pid))
        self._drain()
        recorded.file.close()
        self._sessions.pop(session, None)
        if not self._sessions:
            self._detach()
        return SwitchCounts(recorded.count, dropped, unseen, recorded.failed)

    def _others_have(self, pid: int, session: str) -> bool:
        """Whether a process is recorded for another session too: a plan looks at it while it is traced."""
        return any(pid in one.before for name, one in self._sessions.items() if name != session)

    def _detach(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        if self._attached is not None:
            self._attached.detach()
        if self._ring is not None:
            self._ring.close()
        self._draining = self._attached = self._ring = None

    async def _drain_always(self) -> None:
        while True:
            await asyncio.sleep(DRAIN_S)
            self._drain()

    def _drain(self) -> None:
        records = self._ring.drain() if self._ring is not None else []
        for recorded in self._sessions.values() if records else ():
            own = set(map(PID.pack, recorded.before))
            recorded.write([record for record in records if record[12:16] in own])
