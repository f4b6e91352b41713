"""A program whose calls are known (kmod/selftest/known_calls.c), recorded by a back end and decoded."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PERMILLE = Path(sysconfig.get_path("scripts")) / "permille"
OUTER, INNER = "known_outer", "known_inner"
INNER_OF_OUTER = 3
ENOUGH = 1000
# Until enough was recorded: how fast a machine is is not asked.
PERIODS_MS = tuple(50 * 2**step for step in range(8))
# The smallest buffer of a core; and until its end was passed.
SNAPSHOT = ("--snapshot", "--buffer", "4MiB", "--psb-period", "2KiB")
SNAPSHOT_PERIODS_MS = tuple(1600 * 2**step for step in range(5))
_OVERWRITTEN = "a snapshot: "
READY_S = 600
_UNAVAILABLE = "BACKEND_UNAVAILABLE"
# Of a moment: a machine so busy that the recorder does not answer, a core that somebody else has.
_PASSING = ("TARGET_STOPPED", "RECORDER_REFUSED")


class NotRecordedError(Exception):
    """Why there is no recording, for people; `here` False: this machine lacks what it takes; `passing`: try again."""

    def __init__(self, why: str, *, here: bool = True, passing: bool = False) -> None:
        super().__init__(why)
        self.here = here
        self.passing = passing


@dataclass(frozen=True)
class Counted:
    """What the tables say of the program. `losses`: their kinds; `overwritten`: a snapshot that has passed its end."""

    outer: int
    inner: int
    lost_bytes: int
    instructions: int
    losses: int = 0
    overwritten: bool = False

    @property
    def as_known(self) -> bool:
        """Nothing is lost, and but for the calls that the recording begins and ends in, each has its own."""
        return not self.lost_bytes and abs(self.inner - INNER_OF_OUTER * self.outer) <= 2 * INNER_OF_OUTER


class PrivateMesh:
    """All services, with a state folder, settings and shared memory of their own."""

    def __init__(self, folder: Path) -> None:
        (folder / "settings.toml").touch()
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PERMILLE_")}
        self._environment: Mapping[str, str] = {
            **inherited,
            "PERMILLE_CONFIG": str(folder / "settings.toml"),
            "PERMILLE_STATE_DIR": str(folder / "state"),
            "PERMILLE_CONTROLLER_VPT_DIR": str(folder / "vpt"),
            "PERMILLE_LEASE_TTL_S": "60",
        }

    @contextmanager
    def up(self) -> Iterator[None]:
        """Raises NotRecordedError when it does not come up."""
        begin: list[str | Path] = [PERMILLE, "up", "--ready-timeout", str(READY_S)]
        with self._popen(begin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as mesh:
            try:
                told = []
                for line in mesh.stdout or ():
                    told.append(line.strip())
                    if line.startswith("ready"):
                        break
                else:
                    raise NotRecordedError(f"permille does not come up: {' '.join(told[-3:])}")
                yield
            finally:
                mesh.terminate()
                mesh.communicate()

    def count_calls(self, program: Path, backend: str, *, snapshot: bool = False) -> Counted:
        """Records `program` until enough is there. Raises NotRecordedError."""
        periods_ms, options = (SNAPSHOT_PERIODS_MS, SNAPSHOT) if snapshot else (PERIODS_MS, ())
        begin: list[str | Path] = [PERMILLE, "run", "--", program] if backend == "vpt" else [program]
        target = self._popen(begin, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            if backend == "vpt":
                self._until_recordable(target.pid)
            if snapshot:
                # Cores that go back less far than others would cut a call at each of the program's stays there.
                os.sched_setaffinity(target.pid, {min(os.sched_getaffinity(target.pid))})
            for period_ms in periods_ms:
                try:
                    counted = self._record(target.pid, backend, period_ms, options)
                except NotRecordedError as error:
                    if not error.passing or period_ms == periods_ms[-1]:
                        raise
                    continue
                if counted.outer >= ENOUGH and (counted.overwritten or not snapshot):
                    break
            return counted
        finally:
            target.kill()
            target.wait()

    def _record(self, pid: int, backend: str, period_ms: int, options: Sequence[str]) -> Counted:
        traced = self._asked("trace", "--backend", backend, "--pid", str(pid), "--for", f"{period_ms}ms", *options)
        report = self._asked("report", traced["sessions"][0])
        calls = {row["name"]: row["calls"] for row in report["functions"]}
        session = report["session"]
        return Counted(
            calls.get(OUTER, 0),
            calls.get(INNER, 0),
            session["lost_bytes"],
            session["instructions"],
            losses=len(report["losses"]),
            overwritten=any(note["text"].startswith(_OVERWRITTEN) for note in report["notes"]),
        )

    def _until_recordable(self, pid: int) -> None:
        """A program that has just been started has no recorder yet."""
        while subprocess.run(
            [PERMILLE, "trace", "--dry-run", "--pid", str(pid), "--for", "50ms"],
            env=self._environment,
            capture_output=True,
            check=False,
        ).returncode:
            if not Path(f"/proc/{pid}").exists():
                raise NotRecordedError("the program has ended")

    def _asked(self, *arguments: str) -> Any:
        done = subprocess.run(
            [PERMILLE, *arguments, "--json"], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise why_not(done.stderr.strip() or done.stdout.strip())
        return json.loads(done.stdout)

    def _popen(self, command: list[str | Path], **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=self._environment, text=True, **options)


def why_not(said: str) -> NotRecordedError:
    """From what a command prints that has failed."""
    try:
        error = json.loads(said)["error"]
    except (ValueError, KeyError, TypeError):
        return NotRecordedError(said[-400:])
    because = error["message"].partition("because ")[2]
    if error["reason"] == _UNAVAILABLE and because:
        return NotRecordedError(because, here=False)
    return NotRecordedError(f"{error['message']} ({error['reason']})", passing=error["reason"] in _PASSING)
