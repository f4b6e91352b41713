"""The unprivileged side of the switch recorder: starts the probe, gives it sessions, says why there are no records."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain.switches.kernel_headers import kernel_source

PROBE = Path(__file__).with_name("switch_probe.py")
# BCC is bound to the system's interpreter.
INTERPRETER = "/usr/bin/python3"
ANSWER_S = 60
KEPT = "; records until then are kept"


@dataclass(frozen=True)
class SwitchCounts:
    """Records of one session: written, dropped because the ring was full, and arrivals that the kernel did not report.

    `unavailable` says why there are none or not all.
    """

    count: int
    dropped: int
    unseen: int
    unavailable: str = ""


class ProbeError(Exception):
    """The probe ended or broke the protocol."""


class SwitchRecorder:
    """One probe process for all sessions of a controller; started at the first need, again after it died."""

    def __init__(self, cache: Path, *, interpreter: str = INTERPRETER, enabled: bool = True) -> None:
        self._enabled = enabled
        self._cache = cache
        self._interpreter = interpreter
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._active: set[str] = set()
        self.unavailable = ""
        self.fix = ""

    @property
    def pid(self) -> int | None:
        """The probe's process, while it lives."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def prepare(self) -> bool:
        """Loads the BPF program ahead of the first session; False when it cannot be, see `unavailable` and `fix`."""
        async with self._lock:
            return await self._ensure()

    async def warm_up(self) -> None:
        """Like `prepare`, for whoever does not ask how it went."""
        await self.prepare()

    async def begin(self, session: str, pids: Sequence[int], path: Path) -> str:
        """Appends the records of `pids` to `path` from now on; returns "" or why there will be none."""
        async with self._lock:
            if not await self._ensure():
                return self.unavailable
            try:
                answer = await self._ask({"begin": session, "pids": list(pids), "path": str(path)})
            except ProbeError as error:
                return str(error)
            if "failed" in answer:
                return f"the switch recorder refused: {answer['failed']}"
            self._active.add(session)
            return ""

    async def end(self, session: str) -> SwitchCounts:
        """No more records for the session; the file is complete afterwards."""
        async with self._lock:
            if session not in self._active:
                return SwitchCounts(
                    0, 0, 0, "the switch recorder ended during the session; records until then are kept"
                )
            self._active.discard(session)
            try:
                answer = await self._ask({"end": session})
            except ProbeError as error:
                return SwitchCounts(0, 0, 0, f"{error}{KEPT}")
            if "failed" in answer:
                return SwitchCounts(0, 0, 0, f"the switch recorder failed: {answer['failed']}")
            count, dropped, unseen = (int(str(answer[name])) for name in ("count", "dropped", "unseen"))
            return SwitchCounts(count, dropped, unseen)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _ensure(self) -> bool:
        if not self._enabled:
            self.unavailable, self.fix = "switched off by the setting controller.switches", "controller.switches = true"
            return False
        if self.pid is not None:
            return True
        self._active.clear()
        try:
            self._process = await self._spawn()
            greeting = await self._answer()
        except (OSError, ProbeError) as error:
            greeting = {"unavailable": str(error), "fix": f"check that {self._interpreter} works"}
        if "ready" in greeting:
            self.unavailable = self.fix = ""
            return True
        self.unavailable = str(greeting["unavailable"])
        self.fix = str(greeting["fix"])
        await self.close()
        return False

    async def _spawn(self) -> asyncio.subprocess.Process:
        source = await asyncio.to_thread(kernel_source, self._cache)
        environment = dict(os.environ)
        # The probe belongs to another interpreter than this one.
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            environment.pop(name, None)
        if source is not None:
            environment["BCC_KERNEL_SOURCE"] = str(source)
        return await asyncio.create_subprocess_exec(
            self._interpreter,
            "-s",
            str(PROBE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
        )

    async def _ask(self, command: dict[str, object]) -> dict[str, object]:
        process = self._process
        if process is None or process.stdin is None:
            raise ProbeError("the switch recorder is not running")
        process.stdin.write(json.dumps(command).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        return await self._answer()

    async def _answer(self) -> dict[str, object]:
        process = self._process
        if process is None or process.stdout is None:
            raise ProbeError("the switch recorder is not running")
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await process.stdout.readline()
            answer: dict[str, object] = json.loads(line) if line else {}
        except (TimeoutError, ValueError) as error:
            process.kill()
            raise ProbeError(f"the switch recorder does not answer: {error or 'timed out'}") from None
        if not answer:
            code = await process.wait()
            raise ProbeError(f"the switch recorder ended (exit status {code})")
        return answer
