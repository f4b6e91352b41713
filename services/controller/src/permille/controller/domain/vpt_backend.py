"""The back end vpt: processes under QEMU with the recorder's plugin, found by their folders in shared memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from permille.controller.domain.capabilities import free_bytes
from permille.controller.domain.own_folder import own_folder
from permille.controller.domain.processes import describe, not_recordable
from permille.controller.domain.recording import RecordableProcess, RecordingConfig
from permille.controller.domain.vpt_control import Control, gone
from permille.controller.domain.vpt_recording import VptRecording
from permille.mesh.errors import PermilleError

# Data of a session that nobody here knows, of a process that is gone: another controller may still come for it.
FOREIGN_DATA_S = 3600


class VptBackend:
    """The recordable processes below `folder`."""

    name = "vpt"
    by_core = False
    joins = False
    snapshots = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own_folder(folder)

    def require(self) -> None:
        """It works on every machine."""

    def processes(self) -> list[RecordableProcess]:
        found = []
        for control in self._controls():
            process = describe(control.pid) if control.alive() else None
            if process is not None:
                session = control.session if control.busy() else ""
                found.append(replace(process, session=session))
        return found

    def process(self, pid: int) -> RecordableProcess | None:
        return next((process for process in self.processes() if process.pid == pid), None)

    def begin(self, config: RecordingConfig) -> list[VptRecording]:
        recordings: list[VptRecording] = []
        try:
            recordings.extend(self._begin(pid, config) for pid in config.pids)
        except PermilleError:
            for recording in recordings:
                recording.stop()
            raise
        return recordings

    def find(self, pids: Sequence[int], session_id: str) -> list[VptRecording]:
        controls = []
        for pid in pids:
            with suppress(OSError, ValueError):
                controls.append(Control(self._folder / str(pid)))
        return [VptRecording(control) for control in controls if control.session == session_id and control.busy()]

    def free_bytes(self) -> int:
        return free_bytes(self._folder)

    def collect_garbage(self, sessions: Collection[str]) -> None:
        for control in self._controls():
            if control.alive():
                continue
            unread = control.busy() and control.session
            if control.session in sessions and unread:
                continue
            age = time.time() - (control.folder / "control").stat().st_mtime
            if not unread or age > FOREIGN_DATA_S:
                shutil.rmtree(control.folder, ignore_errors=True)

    def _begin(self, pid: int, config: RecordingConfig) -> VptRecording:
        try:
            control = Control(self._folder / str(pid))
        except (OSError, ValueError):
            raise not_recordable(pid) from None
        if not control.alive():
            raise gone(pid)
        control.arm(config)
        control.wait_until_begun()
        return VptRecording(control)

    def _controls(self) -> Iterator[Control]:
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name.isdigit():
                with suppress(OSError, ValueError):
                    yield Control(folder)
