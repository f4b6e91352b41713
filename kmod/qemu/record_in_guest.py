"""In the guest: one program, recorded by a back end of the controller alone (BACKEND=kmod or perf), without a service.

The session's archive is left in /recorded/store, as the controller would store it. The decoder's golden archive of two
cores was recorded so: `SCRIPT=record_in_guest.py PROGRAM=kmod/build/token-ring kmod/qemu/mesh KERNEL`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import zstandard
from mesh_in_guest import RECORDED, say, threads_of, write_pointers
from permille.controller.domain.archive import BINARIES, SwitchesOfSession, write_archive
from permille.controller.domain.jit_files import JitFiles
from permille.controller.domain.kmod_backend import KmodBackend
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.perf_backend import PerfBackend
from permille.controller.domain.recording import CoreBuffers, Recording, RecordingConfig
from permille.controller.domain.session import Session, TraceOptions
from permille.controller.domain.switches.switch_records import RECORD
from permille.controller.domain.unrecorded import overwritten

PERIOD_MS = int(os.environ.get("PERIOD_MS", "60"))
# Switch records after which the recording is ended; 0: the period ends it.
ENOUGH = int(os.environ.get("ENOUGH", "0"))
BUFFER_BYTES = int(os.environ.get("BUFFER_BYTES", "16777216"))
SNAPSHOT = bool(int(os.environ.get("SNAPSHOT", "0")))
BACKENDS = {backend.name: backend for backend in (KmodBackend, PerfBackend)}


def recorded(session: Session, switches: Path, jit: JitFiles) -> Recording:
    cores = dict.fromkeys(range(os.cpu_count() or 1), BUFFER_BYTES)
    config = RecordingConfig(session.id, session.pids, session.period_ms, session.options, CoreBuffers(cores))
    backend = BACKENDS[session.backend]()
    backend.require()
    jit.look(session.pids)
    (recording,) = backend.begin(config)
    while not recording.finished():
        recording.collect(switches)
        if jit.due(recording.pids):
            jit.look(recording.pids)
        if ENOUGH and switches.exists() and switches.stat().st_size >= ENOUGH * RECORD.size:
            recording.stop()
        time.sleep(0.01)
    recording.collect(switches)
    return recording


def store(session: Session, recording: Recording, switches: Path, jit: JitFiles) -> None:
    clock, own = recording.realtime(), recording.own_switches(switches)
    session = session.changed(start_ns=clock.ns0, end_ns=clock.ns1, stop_reason="PERIOD")
    folder = folder_of(session)
    notes = (*overwritten(recording.streams(), clock), *own.notes)
    told = SwitchesOfSession(own.records, own.counts, own.thread_names, notes)
    manifest = write_archive(folder, session, [recording], told, MappedBinaries().find, jit=jit.take())
    for key, path in json.loads((folder / BINARIES).read_text()).items():
        binary = RECORDED / "store" / key
        binary.parent.mkdir(exist_ok=True)
        binary.write_bytes(zstandard.compress(Path(path).read_bytes()))
    say(f"{own.counts}")
    for note in notes:
        say(note)
    for segment in manifest["segments"]:
        ends = f"full: {segment['full']}, overwritten: {segment['overwritten']}"
        say(f"core {segment['core']}: {segment['size_bytes']} bytes, {ends}, {segment['counters']}")


def folder_of(session: Session) -> Path:
    return RECORDED / "store" / "raw" / session.id


def main() -> None:
    RECORDED.mkdir()
    program = os.environ["PROGRAM"]
    target = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while len(threads_of(target.pid)) < 2:
        time.sleep(0.01)
    options = TraceOptions(psb_freq=0, snapshot=SNAPSHOT)
    session = Session(
        node="guest",
        id=Path(program).name,
        request_id=Path(program).name,
        pids=(target.pid,),
        purpose="ON_DEMAND",
        period_ms=PERIOD_MS,
        budget_bytes=2 * BUFFER_BYTES,
        options=options,
        target_name=Path(program).name,
        command_line=(program,),
        backend=os.environ.get("BACKEND", "kmod"),
    )
    switches = RECORDED / "switches.raw"
    folder_of(session).mkdir(parents=True)
    jit = JitFiles(folder_of(session))
    recording = recorded(session, switches, jit)
    store(session, recording, switches, jit)
    recording.release()
    write_pointers(target.pid)
    target.kill()
    target.wait()


if __name__ == "__main__":
    # The host keeps only lines that are said.
    sys.excepthook = lambda *raised: say("".join(traceback.format_exception(*raised)))
    main()
